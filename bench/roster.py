"""Who is measured: each contender with its settings.

Other products run as their own documentation advises for speed. Where several settings were tried, the
fastest one is among the usual contenders, and the others run where --only names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from bench.queues import BenchError

BASE: Final = "a"
"""The contender that all others are compared with."""

_DAEMON: Final = ("acklast", "run", "--config", "{config}", "--instance", "bench-{number}")
_GEVENT: Final = ("gevent.monkey", "--module")
_UVLOOP: Final = "bench.contenders.under_uvloop"


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
    beside: tuple[str, ...] = ()
    """A command that runs beside it the whole time, answers SIGINT with JSON, and is not counted with it."""
    usual: bool = True
    """Whether it runs where --only names nobody."""


def _own(name: str, title: str, module: str, **more: Any) -> Contender:
    return Contender(name, title, f"bench.contenders.{module}", **more)


def _peer(name: str, title: str, module: str, *command: str, **more: Any) -> Contender:
    return _own(name, title, module, share=0.3, command=command, **more)


def _celery(name: str, title: str, *options: str, **more: Any) -> Contender:
    worker = ("celery", "-A", "bench.contenders.celery_app", "worker", "-c", "{concurrency}")
    quiet = ("--without-gossip", "--without-mingle")
    return _peer(name, title, "celery_app", *worker, *quiet, *options, **more)


def _dramatiq(name: str, title: str, threads: int, *before: str, **more: Any) -> Contender:
    worker = ("dramatiq", "bench.contenders.dramatiq_app", "--processes", "2", "--threads", str(threads))
    return _peer(name, title, "dramatiq_app", *before, *worker, **more)


def _faststream(name: str, title: str, processes: int, **more: Any) -> Contender:
    # At its usual level FastStream logs two lines a message.
    worker = ("faststream", "run", "bench.contenders.faststream_app:app", "--log-level", "warning")
    several = ("--workers", str(processes)) if processes > 1 else ()
    return _peer(name, title, "faststream_app", *worker, *several, **more)


def _taskiq(name: str, title: str, processes: int, **more: Any) -> Contender:
    worker = ("taskiq", "worker", "bench.contenders.taskiq_app:broker", "--ack-type", "when_executed")
    several = ("--workers", str(processes), "--max-async-tasks", str(500 // processes))
    return _peer(name, title, "taskiq_app", *worker, "--log-level", "WARNING", *several, **more)


def _under_uvloop(contender: Contender) -> Contender:
    command = (_UVLOOP, *(contender.command or (contender.module,)))
    name, title = f"{contender.name}-uvloop", f"{contender.title}, uvloop"
    return replace(contender, name=name, title=title, command=command, usual=False)


_AIO: Final = _own("a", "aio-pika, an ack each", "aio_each", share=0.5)
_BULK: Final = _own("b", "acklast's receiver, acks together", "bulk", share=2, prefetch=1000)
_ACKLAST: Final = _own(
    "d",
    "acklast",
    "lane",
    share=2,
    prefetch=1000,
    concurrency=500,
    ledger=Ledger.ACKLAST,
    command=_DAEMON,
)

CONTENDERS: Final = (
    _AIO,
    _BULK,
    _own("b2", "aio-pika, acks together", "aio_batched", share=0.5),
    _own(
        "c",
        "aio-pika, a ledger per message",
        "naive",
        share=0.15,
        prefetch=100,
        ledger=Ledger.NAIVE,
    ),
    _ACKLAST,
    replace(
        _ACKLAST,
        name="d-library",
        title="acklast, the library's reader",
        env={"ACKLAST__BROKER__RECEIVER": "library"},
    ),
    replace(
        _ACKLAST,
        name="d-custody",
        title="acklast, messages in the ledger's custody",
        env={"ACKLAST__LANES__BENCH__CUSTODY": "ledger"},
        usual=False,
    ),
    # Celery's guide: a multiplier of 64 or 128 where tasks are many and short.
    _celery("celery", "Celery, 10 threads", "-P", "threads", prefetch=640),
    _celery("celery-processes", "Celery, 2 processes", prefetch=256, concurrency=2, usual=False),
    _dramatiq(
        "dramatiq",
        "Dramatiq, 2 x 8 threads, prefetch 256",
        8,
        env={"dramatiq_queue_prefetch": "256"},
    ),
    _dramatiq("dramatiq-16", "Dramatiq, 2 x 8 threads, prefetch 16", 8, usual=False),
    _dramatiq("dramatiq-gevent", "Dramatiq, 2 x 100 greenlets", 100, *_GEVENT, usual=False),
    _faststream("faststream", "FastStream, 1 process", 1),
    _faststream("faststream-2", "FastStream, 2 processes", 2, prefetch=250, usual=False),
    _taskiq("taskiq", "taskiq, 1 process", 1),
    _taskiq("taskiq-2", "taskiq, 2 processes", 2, prefetch=250, usual=False),
    *(_under_uvloop(contender) for contender in (_AIO, _BULK, _ACKLAST)),
)


def listed() -> str:
    """The contenders for --help."""
    lines = (f"  {each.name:18} {each.title}{'' if each.usual else ' *'}" for each in CONTENDERS)
    return "\n".join(["contenders (* only where named):", *lines])


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
