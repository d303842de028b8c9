"""What commands have in common that stay and run no lane: the relay and the scheduler."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from acklast.cli.servers import fit_ledger
from acklast.config import Config, LogFormat
from acklast.config.health import Listen
from acklast.config.rotation import Servers
from acklast.errors import Exit
from acklast.handlers.executor import end_with_the_process
from acklast.ledger.connect import Address
from acklast.notify import Notify
from acklast.probes import Probes
from acklast.progress import Part
from acklast.stop import stop_signals
from acklast.telemetry.events import Emitter
from acklast.telemetry.metric import Metric
from acklast.telling import telling
from acklast.vitals import Vitals
from acklast.watchdog import Watchdog

STOP_S: Final = 10.0
"""What systemd is told that the end may take: what is under way, and two seconds for what is exported."""


class Work(Protocol):
    """What it is at until it is closed."""

    def start(self) -> None: ...
    async def close(self) -> None: ...
    def part(self, now: float) -> Part: ...
    def text(self) -> str:
        """How it is while all is well."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What work is made of."""

    servers: Servers
    ledger: Address
    emitter: Emitter
    worker: str
    tell: Callable[[str], None]
    """Takes in one line how it is, whenever that changes."""


@dataclass(frozen=True, slots=True)
class Service:
    """One such command."""

    name: str
    listen: Listen | None
    leaving: str
    """What it does when it is told to stop."""
    metrics: Collection[Metric]
    """What it tells."""
    known: Iterable[tuple[Metric, tuple[str, ...]]] = ()
    """Series that are known to come: an alert sees only a count that was there before it grew."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """With its first line in the log."""


def logging_json(config: Config, as_json: bool) -> Config:
    """The configuration as ``--json`` wants it."""
    if not as_json:
        return config
    log = config.log.model_copy(update={"format": LogFormat.JSON})
    return config.model_copy(update={"log": log})


async def serve(config: Config, service: Service, make: Callable[[Parts], Work]) -> Exit:
    """Have it work until SIGTERM or SIGINT.

    Raises:
        ConfigError, SchemaError: it must not start like this.
        LedgerUnavailable: it cannot start now.
    """
    end_with_the_process()
    listen = service.listen
    async with telling(
        config, os.environ, scraped=listen is not None, role=service.name, metrics=service.metrics
    ) as told:
        emitter, telemetry = told.emitter, told.telemetry
        if telemetry.registry is not None:
            for metric, labels in service.known:
                telemetry.registry.count(metric, *labels, by=0)
        servers = Servers(config, os.environ)
        worker = f"{config.instance}@{socket.gethostname()}:{os.getpid()}"
        notify, vitals = Notify(), Vitals()
        work = make(Parts(servers, await fit_ledger(config, servers), emitter, worker, notify.status))
        watchdog = Watchdog(notify, emitter, vitals.parts)
        probes = Probes(listen, config.state_dir, emitter, watchdog.why, metrics=telemetry.snapshot)
        with stop_signals(emitter) as stop:
            await probes.start()
            work.start()
            vitals.add(work)
            watchdog.start()
            notify.ready(work.text())
            emitter.notice(f"{service.name}.ready", worker=worker, **service.said)
            await stop.asked.wait()
            watchdog.ending = True
            notify.stopping(service.leaving, STOP_S)
            await work.close()
            await watchdog.close()
            await probes.close()
            emitter.notice(f"{service.name}.stopped")
    return Exit.OK
