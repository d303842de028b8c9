"""What a forecast goes by, at one moment. Durations are from then, in seconds; ``None`` is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

ENOUGH: Final = 20
"""Starts that tell a rate well enough."""


@dataclass(frozen=True, slots=True)
class Minute:
    """What a lane did in one minute. ``length_s`` is shorter for the one that still runs.

    For ``idle_s`` of it nobody was there to work, or there was nothing to do. ``fresh``: before it nothing
    was in flight. ``sure`` is False where work came in it and nobody can tell when.
    """

    ended: int
    started: int
    length_s: float = 60.0
    idle_s: float = 0.0
    fresh: bool = False
    sure: bool = True

    @property
    def worked_s(self) -> float:
        return self.length_s - self.idle_s


@dataclass(frozen=True, slots=True)
class Hold:
    """Why nothing starts: ``said`` for people; ``left_s`` until it does, None where nobody can tell."""

    said: str
    left_s: float | None


@dataclass(frozen=True, slots=True)
class Open:
    """Open jobs of one run in one lane. ``run`` is None for jobs of no run, or of one not known.

    ``waiting`` of them are not due yet, ``in_flight`` have started.
    """

    lane: str
    run: str | None
    jobs: int
    waiting: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Daemon:
    """One live daemon's word on one lane; ``state`` is a ``reporter.Standing``."""

    slots: int
    in_flight: int
    started: int
    window_s: float
    state: str
    permits: int = 0
    busy: int = 0
    rate_per_s: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """One lane.

    ``minutes`` are the last ones, the newest first, without those before the first that is known.
    ``configured_slots`` are those of the daemons that live, before what an operator lowered. ``retry_s``:
    what a job's first retry waits, in the mean; the next ones twice as long each, up to ``retry_cap_s``.
    """

    budget: str | None = None
    weight: float = 1.0
    in_turns: bool = False
    daemons: tuple[Daemon, ...] = ()
    minutes: Sequence[Minute] = ()
    paused: Hold | None = None
    """By an operator."""
    quiet: Hold | None = None
    """By the downstream."""
    configured_slots: int = 0
    overdue: int = 0
    """Of the jobs that wait for their time, those for which it has come: they wait for others alone."""
    retry_s: float = 1.0
    retry_cap_s: float = 1800.0

    @property
    def slots(self) -> int:
        return sum(one.slots for one in self.daemons)

    @property
    def in_flight(self) -> int:
        return sum(one.in_flight for one in self.daemons)

    @property
    def starts_per_s(self) -> float:
        """Over the last seconds; where those are too few to tell, over the last minute or two."""
        lately = sum(one.started for one in self.daemons)
        if lately >= ENOUGH or not self.minutes:
            return sum(one.started / one.window_s for one in self.daemons)
        newest = self.minutes[:2]
        worked_s = sum(one.worked_s for one in newest)
        return sum(one.started for one in newest) / worked_s if worked_s else 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it. ``budgets`` are the starts a second that are in force for each; ``open`` has in each lane
    the first to come first; ``deadlines`` are the runs'."""

    at: datetime
    lanes: Mapping[str, LaneFacts]
    budgets: Mapping[str, float] = field(default_factory=dict)
    open: Sequence[Open] = ()
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
