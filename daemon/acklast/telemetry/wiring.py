"""What leaves the process besides the log: each part brings a sink, and its own end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Final, Protocol

from acklast import __version__
from acklast.telemetry import catalogue as of
from acklast.telemetry.credentials import check_credentials
from acklast.telemetry.events import Emitter, Sink
from acklast.telemetry.exports import Exports
from acklast.telemetry.metric import DROPS, EXPORTS, Metric, Sample
from acklast.telemetry.metrics_export import MetricsExport, open_metrics
from acklast.telemetry.records import Records, open_records
from acklast.telemetry.registry import Registry
from acklast.telemetry.resource import resource_of
from acklast.telemetry.snapshot import Snapshot
from acklast.telemetry.spans import Names
from acklast.telemetry.tracer import Tracer
from acklast.telemetry.tracing import open_traces, tracer_of
from acklast.telemetry.variables import Signal, exporting_of

NOWHERE: Final = Names("{lane}")


class Part(Protocol):
    """One signal that is derived from the stream of events."""

    @property
    def sink(self) -> Sink:
        """Takes each event, in the loop's thread: what takes time is done in a thread of its own."""

    async def close(self) -> None:
        """Send what is left, within a bounded time. Called after the drain. Never raises."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The parts that are switched on, and what becomes of what they export."""

    parts: Sequence[Part] = ()
    exports: Exports = field(default_factory=Exports)
    registry: Registry | None = None
    """What counts, where somebody scrapes it or it is exported."""
    tracer: Tracer = field(default_factory=Tracer)
    """What begins the traces of deliveries."""
    records: Records | None = None
    """What exports the log, where it is exported."""
    metrics: MetricsExport | None = None
    """What exports what the registry has counted, where that is exported."""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        counting: tuple[Sink, ...] = () if self.registry is None else (self.registry,)
        return (*counting, *(part.sink for part in self.parts))

    @property
    def snapshot(self) -> Callable[[], Snapshot] | None:
        """What takes the metrics as they are at the moment."""
        return None if self.registry is None else self.registry.snapshot

    def start(self, emitter: Emitter) -> None:
        """Export from now on, and say by ``emitter`` what is not. Called in the running loop."""
        loop = asyncio.get_running_loop()

        def say(name: str, level: str = "info", **said: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                loop.call_soon_threadsafe(partial(emitter.notice, name, level, **said))

        self.exports.tells(say)
        if self.metrics is not None:
            self.metrics.start(loop)

    async def close(self) -> None:
        """Send what is left, within a few seconds, whatever the collector does."""
        closing = [part.close() for part in self.parts]
        if self.records is not None:
            closing.append(self.records.close())
        if self.metrics is not None:
            closing.append(self.metrics.close())
        await asyncio.gather(*closing)


def open_telemetry(
    env: Mapping[str, str],
    *,
    version: str,
    instance: str,
    lanes: Mapping[str, str] | None = None,
    scraped: bool = False,
    names: Names = NOWHERE,
    metrics: Collection[Metric] = of.OF_DAEMONS,
) -> Telemetry:
    """What the standard ``OTEL_*`` variables switch on. Nothing is imported for what they do not.

    ``lanes``: the budget of each, empty where it has none. ``scraped``: metrics can be asked for.
    ``names``: of the queues, and the broker's. ``metrics``: what this process can tell.

    Raises:
        ConfigError: one of the variables cannot be used.
    """
    exporting = exporting_of(env)
    check_credentials(env, exporting)
    exports = Exports()
    counts = scraped or Signal.METRICS in exporting.routes
    registry = Registry(lanes, only=metrics) if counts else None
    if registry is not None:
        registry.watch(partial(_samples_of, exports, version))
    resource = resource_of(exporting, version=version, instance=instance)
    tracer = tracer_of(exporting, env, resource)
    traces = open_traces(exporting, exports, names, resource, version)
    records = open_records(exporting, exports, resource, version)
    counted = registry.snapshot if registry is not None else None
    sending = open_metrics(exporting, exports, counted, resource, version)
    return Telemetry((traces,) if traces else (), exports, registry, tracer, records, sending)


def _samples_of(exports: Exports, release: str) -> Iterator[Sample]:
    """Who tells, and what became of what was to be exported, of every signal from the start."""
    yield Sample(of.BUILD_INFO, (__version__, release), 1)
    waiting = exports.queued()
    for signal in Signal:
        yield Sample(of.QUEUED, (signal.value,), waiting.get(signal, 0))
    for signal, why in product(Signal, DROPS):
        yield Sample(of.DROPPED, (signal.value, why), exports.dropped[signal, why])
    for signal, result in product(Signal, EXPORTS):
        yield Sample(of.EXPORTS_TOTAL, (signal.value, result), exports.exports[signal, result])
