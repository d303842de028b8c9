"""How many deliveries a lane holds: what runs, and what it can start in the next second.

What one daemon holds no other can start. A lane that does two jobs a second and holds a thousand keeps the
last of them waiting for eight minutes beside an idle neighbour, and a delivery that is held for half an hour
costs the whole channel. A fast lane needs many all the same: its batches are cut from what it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, exp
from typing import Final

HORIZON_S: Final = 1.0
"""Hold what can be started within this time.

Long against a round trip (a flush, an ack and the next delivery: some 10 ms, 100 on a slow disk), so that no
lane runs dry. Short for whoever waits: a job is held up by about this much behind a busy daemon. A lane that
does 1,000 a second holds 1,000, from where larger batches bring nothing more.
"""

_MEMORY_S: Final = HORIZON_S
"""How far back the pace is measured. Handlers that all end at the same moment count as one second's work at
most: that alone never doubles what is held."""

_FACTOR: Final = 2
"""A change costs a round trip in which nothing is delivered: it must be worth it."""

_CHANGE_S: Final = 2.0
"""No two changes within this time."""


def prefetch_for(ceiling: int, concurrency: int, started_per_s: float, quota_per_s: float | None) -> int:
    """Deliveries to hold, those that run included: at least 1 and at most ``ceiling``.

    Never fewer than all slots take and a few more, so that a slot that comes free finds its next job here.
    ``started_per_s`` is the lane's pace as it was measured, 0 where it is not known yet; a quota bounds it.
    """
    pace = started_per_s if quota_per_s is None else min(started_per_s, quota_per_s)
    ahead = max(1 + concurrency // 10, ceil(min(pace * HORIZON_S, ceiling)))
    return min(ceiling, concurrency + ahead)


class Pace:
    """What a lane gets done in a second while it has enough to do. What is old fades."""

    __slots__ = ("_done", "_seconds")

    def __init__(self) -> None:
        self._done = 0.0
        self._seconds = 0.0

    @property
    def per_s(self) -> float:
        """0 where nothing is known yet."""
        return self._done / self._seconds if self._seconds else 0.0

    def note(self, done: int, seconds: float, *, busy: bool) -> None:
        """``done`` jobs were done in the last ``seconds``.

        A lane that was not ``busy`` could have done more: then only more than was known says anything.
        """
        if seconds <= 0 or not (busy or done > self.per_s * seconds):
            return
        kept = exp(-seconds / _MEMORY_S)
        self._done = self._done * kept + done
        self._seconds = self._seconds * kept + seconds


class Prefetch:
    """The prefetch of one lane, as it follows the pace. Times are in seconds, of any clock that is monotonic.

    It begins low, because nothing is known: a fast lane shows what it is within the first look.
    """

    def __init__(self, ceiling: int, concurrency: int, quota_per_s: float | None = None) -> None:
        self.ceiling = ceiling
        self.pace = Pace()
        self.concurrency = concurrency
        self._quota_per_s = quota_per_s
        self.stuck: Callable[[], int] = lambda: 0
        """How many deliveries are held though their jobs' turns are over: their carriers do not get out."""
        self.count = self.wanted()
        self._looked_at = self._changed_at = float("-inf")
        self._settled = 0

    def bound(self, ceiling: int, quota_per_s: float | None) -> None:
        """Other bounds from now on: they count at the next look."""
        self.ceiling, self._quota_per_s = ceiling, quota_per_s

    def wanted(self) -> int:
        """What the pace asks for, and room for what is stuck: a lane that holds nothing else stands still."""
        paced = prefetch_for(self.ceiling, self.concurrency, self.pace.per_s, self._quota_per_s)
        return min(self.ceiling, paced + self.stuck())

    def begin(self, now: float) -> int:
        """A channel is being opened at ``now``, on which nothing has been settled: the prefetch for it."""
        self._looked_at, self._changed_at, self._settled = now, float("-inf"), 0
        self.count = self.wanted()
        return self.count

    def look(self, now: float, settled: int, held: int) -> int | None:
        """What to change to; None where it is good as it is.

        ``settled`` is how many deliveries have been settled on this channel so far, ``held`` how many not.
        """
        busy = held - self.stuck() >= min(self.concurrency, self.count)
        self.pace.note(settled - self._settled, now - self._looked_at, busy=busy)
        self._looked_at, self._settled = now, settled
        wanted = self.wanted()
        if now - self._changed_at < _CHANGE_S or not self._is_due(wanted):
            return None
        return wanted

    def change(self, now: float, count: int) -> None:
        """The lane's consumer has ``count`` now."""
        self._changed_at, self.count = now, count

    def _is_due(self, wanted: int) -> bool:
        if wanted > self.count:
            if self.count - self.stuck() < self.concurrency:
                return True
            return wanted >= self.count * _FACTOR or wanted == self.ceiling
        return wanted * _FACTOR <= self.count
