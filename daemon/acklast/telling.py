"""How a command that stays tells of itself: its log, what it counts, and what of it is exported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from acklast.config.models import Config
from acklast.telemetry import log
from acklast.telemetry.catalogue import OF_DAEMONS
from acklast.telemetry.events import Emitter, Sink
from acklast.telemetry.metric import Metric
from acklast.telemetry.spans import Names
from acklast.telemetry.tracing import server_of
from acklast.telemetry.wiring import Telemetry, open_telemetry


@dataclass(frozen=True, slots=True)
class Telling:
    """Made by ``telling``."""

    sink: log.LogSink
    emitter: Emitter
    telemetry: Telemetry


@asynccontextmanager
async def telling(
    config: Config,
    env: Mapping[str, str],
    *sinks: Sink,
    scraped: bool,
    role: str = "",
    metrics: Collection[Metric] = OF_DAEMONS,
) -> AsyncIterator[Telling]:
    """Open it all, and close it within a few seconds, also where the start fails: the log says why.

    ``sinks`` hear of every event as well. ``scraped``: metrics can be asked for. ``role`` is what the
    command is where it is no daemon: it may run beside one of its name, and what both count is not one count.
    ``metrics``: those that it can tell.

    Raises:
        ConfigError: one of the ``OTEL_*`` variables cannot be used.
    """
    telemetry = open_telemetry(
        env,
        version=config.version,
        instance=f"{config.instance}/{role}" if role else config.instance,
        lanes={name: lane.budget or "" for name, lane in config.lanes.items()},
        scraped=scraped,
        names=Names(config.names.work("{lane}"), server_of(config.broker.addresses())),
        metrics=metrics,
    )
    sink = log.configure(config.log.level, config.log.format, telemetry.records)
    emitter = Emitter(sink, *sinks, *telemetry.sinks)
    telemetry.start(emitter)
    try:
        yield Telling(sink, emitter, telemetry)
    finally:
        await telemetry.close()
