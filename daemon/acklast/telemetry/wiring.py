"""What leaves the process besides the log: each part brings a sink, and its own end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from acklast.telemetry.events import Sink


class Part(Protocol):
    """One signal that is derived from the stream of events."""

    @property
    def sink(self) -> Sink:
        """Takes each event, in the loop's thread: what takes time is done in a thread of its own."""

    async def close(self) -> None:
        """Send what is left, within a bounded time. Called after the drain. Never raises."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The parts that are switched on."""

    parts: Sequence[Part] = ()

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return tuple(part.sink for part in self.parts)

    async def close(self) -> None:
        for part in self.parts:
            await part.close()


def open_telemetry(env: Mapping[str, str], *, version: str, instance: str) -> Telemetry:
    """What the standard ``OTEL_*`` variables switch on. Nothing is imported for what they do not."""
    return Telemetry()
