"""How a redrive goes on: a few letters at first, and the others only once these have gone well. Pure.

A redrive is tried in steps. Whether the next one may begin, and whether this one may go on at all, is decided
by what became of the letters that are settled, beside what the lane's other jobs come to meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from acklast_topology.value import value

SAME: Final = "same_failure"
OTHER: Final = "other_outcome"
LIVE: Final = "live_fails_more"

YIELD_SHARE: Final = 0.04
"""Of what a lane starts, while other jobs of it wait."""
QUEUED_S: Final = 2.0
"""So many seconds' worth may be in the lane's queue: it is in front of whatever comes now."""
OUT_S: Final = 60.0
"""So many seconds' worth may be out at all: jobs that wait for their retries tell nothing yet."""
BURST_S: Final = 1.0


@value
class Accepted:
    """Failures that a person has said it may go on after."""

    same: int = 0
    other: int = 0
    live: bool = False


@value
class Standing:
    """How far a redrive has come, in letters. ``steps``: as many are released at the end of each."""

    steps: tuple[int, ...]
    step: int
    letters: int
    released: int = 0
    refused: int = 0
    done: int = 0
    same: int = 0
    other: int = 0
    tolerate: float = 0.0
    accepted: Accepted = Accepted()

    @property
    def out(self) -> int:
        """Released, and nobody knows yet what becomes of them."""
        return self.released - self.done - self.same - self.other

    @property
    def left(self) -> int:
        return self.letters - self.released - self.refused

    @property
    def room(self) -> int:
        """How many more belong to the step. What was refused is no sample of anything."""
        return max(0, min(self.steps[self.step] - self.released, self.left))


@value
class Live:
    """Failures of jobs that are not the redrive's: since the step began, and in as long before its start."""

    before: int
    since: int

    @property
    def fails_more(self) -> bool:
        """Markedly: by half, and by more than chance has between two such counts."""
        more = self.since - self.before
        return more > 3 + 3 * math.sqrt(self.before + self.since) and self.since > 1.5 * self.before


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be said: the step goes on."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """The step went well; this one is next."""

    step: int


@dataclass(frozen=True, slots=True)
class Stop:
    """It fails as before: whatever was to put it right has not."""

    why: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Something else happens than was meant: a person is to look."""

    why: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing is left to try, and everything is known."""


Decision: TypeAlias = Wait | GoOn | Stop | Ask | Finished


def decide(now: Standing, live: Live | None = None) -> Decision:
    """What follows from how a running redrive stands."""
    if now.left == 0:
        # There is nothing to stop any more.
        return Wait() if now.out else Finished()
    if now.same > _allowed(now, now.accepted.same):
        return Stop(SAME)
    if now.other > _allowed(now, now.accepted.other):
        return Ask(OTHER)
    if live is not None and live.fails_more and not now.accepted.live:
        return Ask(LIVE)
    if now.room == 0 and now.out == 0:
        return GoOn(next(n for n, upto in enumerate(now.steps) if upto > now.released))
    return Wait()


def _allowed(now: Standing, accepted: int) -> int:
    """So many may fail of the letters up to the end of this step."""
    return max(accepted, math.floor(now.tolerate * now.steps[now.step]))


@value
class Traffic:
    """A lane in the whole fleet.

    ``held``: deliveries that daemons hold and have not started. ``open``: whether any daemon starts them.
    ``most_per_s``: what its budget allows; None without one.
    """

    held: int
    starts_per_s: float
    open: bool
    most_per_s: float | None = None


def pace_per_s(rate_per_s: float, lane: Traffic, *, live_waits: bool) -> float:
    """How many letters a second may be released now."""
    if not lane.open:
        return 0.0
    if live_waits:
        return min(rate_per_s, YIELD_SHARE * lane.starts_per_s)
    return rate_per_s if lane.most_per_s is None else min(rate_per_s, lane.most_per_s)


def earned(saved: float, pace: float, elapsed_s: float) -> float:
    """How many letters may be released, of which ``saved`` could have been ``elapsed_s`` ago."""
    return min(saved + pace * elapsed_s, max(1.0, pace * BURST_S))


def quantity(now: Standing, saved: float, pace: float, queued: int) -> int:
    """How many letters to release at once. ``queued``: those that are out and have not started."""
    short = max(1, math.ceil(pace * QUEUED_S)) - queued
    out = max(1, math.ceil(pace * OUT_S)) - now.out
    return max(0, min(now.room, int(saved), short, out)) if pace > 0 else 0
