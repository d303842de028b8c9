"""Who is measured: each contender with its settings. The settings of other products are those that their own
documentation advises for speed; where two were tried, the faster one has the plain name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bench.queues import BenchError

BASE: Final = "a"
"""The contender that all others are compared with."""

DAEMON: Final = ("acklast", "run", "--config", "{config}", "--instance", "bench-{number}")


class Ledger(StrEnum):
    """Where a contender records its jobs."""

    NONE = "no"
    NAIVE = "per message"
    ACKLAST = "acklast"


@dataclass(frozen=True, slots=True)
class Contender:
    """One consumer under one set of settings."""

    name: str
    title: str
    module: str
    """Declares its queue and makes its messages; the program itself where ``command`` is empty."""
    share: float = 1.0
    """Of --jobs: slow ones get fewer, or a run would take an hour. A rate does not depend on it."""
    prefetch: int = 500
    concurrency: int = 10
    ledger: Ledger = Ledger.NONE
    command: tuple[str, ...] = ()
    """What follows ``python -m``. {config} is acklast.toml, {number} tells several processes apart."""
    env: Mapping[str, str] = field(default_factory=dict)
    daemons: int = 1
    usual: bool = True
    """Whether it runs where --only names nobody."""


def _acklast(name: str, title: str, **more: object) -> Contender:
    settings: dict[str, object] = {"prefetch": 1000, "concurrency": 500, "command": DAEMON} | more
    return Contender(name, title, "bench.contenders.lane", ledger=Ledger.ACKLAST, **settings)  # type: ignore[arg-type]


CONTENDERS: Final = (
    Contender("a", "aio-pika, an ack each", "bench.contenders.aio_each", share=0.5),
    Contender("b", "bulk receiver, acks together", "bench.contenders.bulk", share=2, prefetch=1000),
    Contender("b2", "aio-pika, acks together", "bench.contenders.aio_batched", share=0.5),
    Contender(
        "c",
        "aio-pika, a ledger per message",
        "bench.contenders.naive",
        share=0.15,
        prefetch=100,
        ledger=Ledger.NAIVE,
    ),
    _acklast("d", "acklast"),
    _acklast("d-library", "acklast, library's reader", env={"ACKLAST__BROKER__RECEIVER": "library"}),
)


def chosen(names: str, contenders: Iterable[Contender] = CONTENDERS) -> list[Contender]:
    """The contenders of a comma-separated list, in the list's order; the usual ones for an empty one.

    Raises:
        BenchError: a name is nobody's.
    """
    by_name = {contender.name: contender for contender in contenders}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in by_name]:
        raise BenchError(f"no contender is called {', '.join(unknown)}; there are {', '.join(by_name)}")
    return [by_name[name] for name in wanted] or [each for each in by_name.values() if each.usual]
