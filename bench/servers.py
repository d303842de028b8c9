"""The broker and the database of a run, and what can be told of their processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from urllib.parse import quote, urlsplit

from bench.processes import listeners
from dev.rabbitmq import Management
from dev.stack import Stack


@dataclass(slots=True)
class Servers:
    """Where both are. A server on another machine has no processes here, and its costs are not shown."""

    url: str
    dsn: str
    management: Management
    broker_pids: list[int]
    postgres_pids: list[int]
    _numbers: Iterator[int] = field(default_factory=count)

    @classmethod
    def of(cls, stack: Stack) -> Servers:
        return cls(
            stack.broker.url,
            stack.ledger.dsn,
            stack.broker.management,
            listeners(urlsplit(stack.broker.url).port or 5672),
            listeners(urlsplit(stack.ledger.dsn).port or 5432),
        )

    def trees(self) -> dict[str, list[int]]:
        """The roots of the servers' process trees."""
        return {"broker": self.broker_pids, "postgres": self.postgres_pids}

    @contextmanager
    def vhost(self) -> Iterator[str]:
        """A virtual host for one drain, and its address: nothing of an earlier one is left in it."""
        name = f"bench-{next(self._numbers)}"
        self.management.create_vhost(name)
        try:
            yield urlsplit(self.url)._replace(path=f"/{quote(name, safe='')}").geturl()
        finally:
            self.management.delete_vhost(name)
