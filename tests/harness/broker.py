"""One virtual host of the session's broker: a test's own, with nothing in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, urlsplit, urlunsplit

import aio_pika
from aio_pika.abc import AbstractConnection

from dev.rabbitmq import Management, Node


@dataclass(frozen=True, slots=True)
class Broker:
    """``ctl`` and ``node`` are None where the environment gave the broker: it is not ours to crash."""

    url: str
    vhost: str
    management: Management
    node: Node | None

    @property
    def ctl(self) -> Callable[..., str] | None:
        """``rabbitmqctl`` with ``-p`` left to the caller: about a second a call."""
        return self.node.ctl if self.node else None

    async def connect(self) -> AbstractConnection:
        """A plain connection (one that does not come back by itself). The caller closes it."""
        return await aio_pika.connect(self.url)


def at_vhost(url: str, vhost: str) -> str:
    """The broker's address with another virtual host."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path="/" + quote(vhost, safe="")))
