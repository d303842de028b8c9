"""What happened in a test, in order: for assertions, and for people to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, ``at_s`` seconds after the beginning.

    ``name`` is one of ``published``, ``started``, ``returned``, ``raised``, ``reconciled``, ``effect``,
    ``request``, ``recorded``, ``committed``, ``settled``, ``promised`` (a follow-up), and of the daemons
    ``fault``, ``began``, ``died``, ``notice``, which have no key.
    """

    at_s: float
    name: str
    text: str
    worker: str = ""
    """The daemon; empty for what the test itself did."""
    lane: str = ""
    key: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{clock(self.at_s)}  {self.worker or 'test':<5} {self.text}"


@dataclass(frozen=True, slots=True)
class Wait:
    """A job was sent to wait ``seconds``. ``spends``: the attempt before it counts."""

    seconds: float
    reason: str
    spends: bool


def clock(seconds: float) -> str:
    """Virtual time as people write it: ``0:00:30.000``."""
    millis = round(seconds * 1000)
    minutes, millis = divmod(millis, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{millis // 1000:02d}.{millis % 1000:03d}"


class Story:
    """The events of one test. ``now_s`` tells the seconds since its beginning."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.events: list[Event] = []

    def add(
        self, name: str, text: str, worker: str = "", place: tuple[str, str] = ("", ""), **fields: Any
    ) -> None:
        self.events.append(Event(self._now_s(), name, text, worker, *place, fields))

    def of(self, lane: str, key: str) -> list[Event]:
        """What happened to one job."""
        return [event for event in self.events if (event.lane, event.key) == (lane, key)]

    def around(self, lane: str, key: str) -> list[Event]:
        """The same, and what happened to the daemons meanwhile."""
        return [event for event in self.events if not event.key or (event.lane, event.key) == (lane, key)]


def told(events: Iterable[Event], *, places: bool) -> str:
    """The events for people, one a line. ``places``: with the job that each is of."""
    return "\n".join(
        f"{event}   [{event.lane}/{event.key}]" if places and event.key else str(event) for event in events
    )
