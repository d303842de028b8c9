"""How each lane stands in this daemon, as operators want to know it: made of what is known anyway."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from acklast.consumer import Consumer
from acklast.intake import Intake
from acklast.lane import Lane
from acklast.ledger.controls import Report
from acklast.pacing.breaker import State as Breaker
from acklast.pacing.budgets import Budget

WINDOW_S: Final = 5.0
"""Starts are counted over this time, or over a budget's period where that is longer."""
_SAMPLES: Final = 60


class Standing(StrEnum):
    """Why a lane starts nothing in a daemon, or that it does. The first that is true counts."""

    PAUSED = "paused"
    """An operator has paused it."""
    LEASE_LOST = "lease_lost"
    """The daemon has no live session."""
    BREAKER = "breaker"
    """The downstream is down."""
    QUIET = "quiet"
    """The downstream asked for quiet."""
    NO_PERMIT = "no_permit"
    """The daemon holds no permit, or none that comes free soon."""
    NOT_CONSUMING = "not_consuming"
    """The broker gives it nothing."""
    SLOWED = "slowed"
    """It starts less than its permits allow: after a pause, or because the downstream asked for less."""
    OPEN = "open"
    """It starts what comes."""


class Meter:
    """How many starts there were in the last ``window_s`` seconds, from a count that only grows."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._seen = deque([(float("-inf"), 0)])

    def started(self, now: float, count: int) -> tuple[int, float]:
        """Look at the count: so many starts in so many seconds, a little more than the window at most."""
        seen, since = self._seen, now - self.window_s
        while len(seen) > 1 and seen[1][0] <= since:
            seen.popleft()
        at, before = seen[0]
        if now - seen[-1][0] >= self.window_s / _SAMPLES:
            seen.append((now, count))
        if count == before:
            return 0, self.window_s  # the same again and again, so that it is not written again and again
        return count - before, self.window_s if at == float("-inf") else round(now - at, 3)


class Observed:
    """One lane and what belongs to it."""

    def __init__(self, lane: Lane, intake: Intake, consumer: Consumer) -> None:
        self._lane = lane
        self._intake = intake
        self._consumer = consumer
        budget = lane.pacing.budget
        self._meter = Meter(max(WINDOW_S, budget.quota.period_s if budget else 0.0))

    def report(self, now: float) -> Report:
        lane, budget, slots = self._lane, self._lane.pacing.budget, self._lane.pacing.slots
        standing, left_s = self._standing(budget)
        started, window_s = self._meter.started(now, slots.started)
        return Report(
            lane=lane.name,
            concurrency=slots.count,
            in_flight=len(lane.active),
            # What waits for the broker to take its carrier in is in no queue either.
            held=len(self._intake) + max(0, slots.held - len(lane.active)) + lane.settler.stuck(),
            started=started,
            window_s=window_s,
            permits=budget.starts.held if budget else None,
            busy=budget.starts.busy if budget else None,
            rate_per_s=round(budget.effective_per_s(), 6) if budget else None,
            state=standing.value,
            left_s=left_s,
        )

    def state(self) -> tuple[str, Standing]:
        """The lane, and how it stands."""
        return self._lane.name, self._standing(self._lane.pacing.budget)[0]

    def _standing(self, budget: Budget | None) -> tuple[Standing, float | None]:
        pacing = self._lane.pacing
        if pacing.gate.paused:
            return Standing.PAUSED, None
        if not self._lane.lease.live:
            return Standing.LEASE_LOST, None
        if pacing.circuit is not None and pacing.circuit.state is not Breaker.CLOSED:
            return Standing.BREAKER, _known(budget.paused_s if budget else 0.0)
        if budget is not None and budget.paused:
            return Standing.QUIET, _known(budget.paused_s)
        if budget is not None and (budget.stands_by or not budget.starts.held):
            return Standing.NO_PERMIT, _known(budget.opens_s) if budget.starts.held else None
        if not self._consumer.consuming.is_set():
            return Standing.NOT_CONSUMING, None
        if budget is not None and budget.effective_per_s() < budget.rate_per_s * 0.999:
            return Standing.SLOWED, None
        return Standing.OPEN, None


def _known(seconds: float) -> float | None:
    """To the tenth: what changes all the time would be written all the time."""
    return round(seconds, 1) if seconds > 0 else None


def reports_of(observed: Sequence[Observed]) -> Callable[[], Sequence[Report]]:
    """What tells how all of these lanes stand."""
    return lambda: [one.report(time.monotonic()) for one in observed]
