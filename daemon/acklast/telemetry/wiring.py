"""What leaves the process besides the log: each part brings a sink, and its own end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from acklast.telemetry.events import Emitter, Sink
from acklast.telemetry.exports import Exports
from acklast.telemetry.variables import exporting_of


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

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return tuple(part.sink for part in self.parts)

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


def open_telemetry(env: Mapping[str, str], *, version: str, instance: str) -> Telemetry:
    """What the standard ``OTEL_*`` variables switch on. Nothing is imported for what they do not.

    Raises:
        ConfigError: one of them cannot be used.
    """
    exporting_of(env)
    return Telemetry()
