"""Where is counted: plain lists and numbers. Each job comes by here; the SDK takes 5 to 40 us for a figure.

Everything here is called in the event loop's thread alone.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from acklast.telemetry.events import Settled
from acklast.telemetry.metric import DURATION_S, MOST, OTHER, WAIT_S
from acklast.telemetry.snapshot import Buckets


class Histogram:
    """Observations of one series."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """A value that is a bound belongs to its bucket."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def buckets(self) -> Buckets:
        return Buckets(tuple(self.counts), self.sum)


class LaneCells:
    """What is observed of one lane."""

    __slots__ = ("_reasons", "ack", "handler", "pace", "queue")

    def __init__(self) -> None:
        self.pace = Histogram(DURATION_S)
        self.ack = Histogram(DURATION_S)
        self.handler = {"done": Histogram(DURATION_S)}
        self.queue = {"normal": Histogram(WAIT_S)}
        self._reasons: set[str] = set()

    def handling(self, outcome: str) -> Histogram:
        return self.handler.get(outcome) or self.handler.setdefault(outcome, Histogram(DURATION_S))

    def queueing(self, priority: str) -> Histogram:
        return self.queue.get(priority) or self.queue.setdefault(priority, Histogram(WAIT_S))

    def reason(self, said: str) -> str:
        """As it is told apart from others: the first ones as they are."""
        if said not in self._reasons:
            if len(self._reasons) >= MOST:
                return OTHER
            self._reasons.add(said)
        return said


_UNSTARTED: Final = frozenset({None, "not_started", "reconciled"})


class Line:
    """Deliveries that came to the same: one lookup and one addition a job, whatever is told of it later."""

    __slots__ = ("ack", "count", "handler", "pace", "queue")

    def __init__(self, lane: LaneCells, outcome: str | None) -> None:
        self.count = 0
        # Of those that start no handler nothing is observed, and nothing is to be seen.
        self.handler = Histogram(DURATION_S) if outcome in _UNSTARTED else lane.handling(outcome or "")
        self.pace = lane.pace
        self.ack = lane.ack
        self.queue = lane.queueing


class Settlements:
    """Counts what becomes of deliveries."""

    def __init__(self, lanes: tuple[str, ...]) -> None:
        self.lanes = {name: LaneCells() for name in lanes}
        self.lines: dict[tuple[str, str, str | None, str | None], Line] = {}

    def add(self, event: Settled) -> None:
        """Written out, not ``observe`` for each: the calls would take longer than what they do."""
        line = self.lines.get((event.lane, event.disposition, event.outcome, event.reason))
        if line is None:
            line = self._line_of(event)
        line.count += 1
        if (seconds := event.handler_s) is not None:
            cell = line.handler
            cell.counts[bisect_left(DURATION_S, seconds)] += 1
            cell.sum += seconds
        if (seconds := event.pace_s) is not None:
            cell = line.pace
            cell.counts[bisect_left(DURATION_S, seconds)] += 1
            cell.sum += seconds
        if (seconds := event.effect_to_ack_s) is not None:
            cell = line.ack
            cell.counts[bisect_left(DURATION_S, seconds)] += 1
            cell.sum += seconds
        if (seconds := event.queue_s) is not None:
            line.queue(event.priority).observe(seconds)

    def _line_of(self, event: Settled) -> Line:
        """Also of each delivery with a reason that is not told apart: those are looked up here every time."""
        if (lane := self.lanes.get(event.lane)) is None:
            lane = self.lanes[event.lane] = LaneCells()
        reason = None if event.reason is None else lane.reason(event.reason)
        place = (event.lane, event.disposition, event.outcome, reason)
        if (line := self.lines.get(place)) is None:
            line = self.lines[place] = Line(lane, event.outcome)
        return line
