"""What leaves the process besides the log: each part brings a sink, and its own end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Protocol

from acklast.telemetry import catalogue as of
from acklast.telemetry.events import Emitter, Sink
from acklast.telemetry.exports import Exports
from acklast.telemetry.metric import DROPS, EXPORTS, Sample
from acklast.telemetry.registry import Registry
from acklast.telemetry.snapshot import Snapshot
from acklast.telemetry.variables import Signal, exporting_of


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

    @property
    def sinks(self) -> tuple[Sink, ...]:
        counting: tuple[Sink, ...] = () if self.registry is None else (self.registry,)
        return (*counting, *(part.sink for part in self.parts))

    @property
    def snapshot(self) -> Callable[[], Snapshot] | None:
        """What takes the metrics as they are at the moment."""
        return None if self.registry is None else self.registry.snapshot

    def start(self, emitter: Emitter) -> None:
        """Say by ``emitter`` what is not exported. Called in the running loop."""
        loop = asyncio.get_running_loop()

        def say(name: str, level: str = "info", **said: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                loop.call_soon_threadsafe(partial(emitter.notice, name, level, **said))

        self.exports.tells(say)

    async def close(self) -> None:
        for part in self.parts:
            await part.close()


def open_telemetry(
    env: Mapping[str, str],
    *,
    version: str,
    instance: str,
    lanes: Mapping[str, str] | None = None,
    scraped: bool = False,
) -> Telemetry:
    """What the standard ``OTEL_*`` variables switch on. Nothing is imported for what they do not.

    ``lanes``: the budget of each, empty where it has none. ``scraped``: metrics can be asked for.

    Raises:
        ConfigError: one of the variables cannot be used.
    """
    exporting = exporting_of(env)
    exports = Exports()
    registry = Registry(lanes) if scraped or Signal.METRICS in exporting.routes else None
    if registry is not None:
        registry.watch(partial(_samples_of, exports))
    return Telemetry(exports=exports, registry=registry)


def _samples_of(exports: Exports) -> Iterator[Sample]:
    """What became of what was to be exported, of every signal from the start."""
    waiting = exports.queued()
    for signal in Signal:
        yield Sample(of.QUEUED, (signal.value,), waiting.get(signal, 0))
    for signal, why in product(Signal, DROPS):
        yield Sample(of.DROPPED, (signal.value, why), exports.dropped[signal, why])
    for signal, result in product(Signal, EXPORTS):
        yield Sample(of.EXPORTS_TOTAL, (signal.value, result), exports.exports[signal, result])
