"""What comes after the flow: the last handlers, and the last retries. Pure.

A job that fails again and again waits twice as long each time, so that few are late and those by much. Of the
jobs that were begun in the last minutes some are still on that way when the queue is empty. The finish is the
end of the last of them, and that is told like any other maximum: by how many are to be expected later.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, log
from typing import Final

_ROUNDS: Final = 7
"""No job fails more often than that before it is over, or hardly any."""
_STEPS: Final = 4
"""So many parts of a round are told apart."""
_FAILS: Final = 0.02
"""Fewer failures are not worth a thought."""
_HALVES: Final = 16
_STEP_S: Final = 10.0
_DRAWN: Final = (0.4, 1.0, 1.4)
"""What a sum of waits comes to, over its mean: each is drawn between nothing and twice its mean."""


@dataclass(frozen=True, slots=True)
class Retries:
    """``fails``: the part of all attempts, 0 to 1. The first retry waits ``wait_s`` in the mean, the next
    ones twice as long each, up to ``cap_s``.
    """

    fails: float
    wait_s: float
    cap_s: float

    def waited_s(self, rounds: float) -> float:
        """How long so many retries in a row wait."""
        waits = [min(self.cap_s, self.wait_s * 2.0**number) for number in range(int(rounds) + 1)]
        return sum(waits[:-1]) + waits[-1] * (rounds - int(rounds))


class Tail:
    """What lies between an empty queue and the last end, of a lane with such retries."""

    def __init__(self, retries: Retries) -> None:
        self._seldom = retries.fails < _FAILS
        steps = [] if self._seldom else [number / _STEPS for number in range(_ROUNDS * _STEPS + 1)]
        self._waits = [retries.waited_s(step) for step in steps]
        """Times that a job may have waited."""
        self._shares: list[float] = [retries.fails ** ((less + more) / 2) for less, more in pairwise(steps)]
        """The part of all jobs that wait for so long, between two of these times."""
        widths = [more - less for less, more in pairwise(self._waits)]
        areas = [share * width for share, width in zip(self._shares, widths, strict=True)]
        self._rest = [*accumulate(reversed(areas), initial=0.0)][::-1]
        """From each of these times on: the mean time for which a job waits longer than that."""
        self._found: dict[tuple[float, float, float], float] = {}

    def last_s(self, per_s: float, for_s: float, chance: float) -> float:
        """The time after the flow's end by which, with this chance, no retry is left.

        ``per_s``: jobs that are begun in a second, for ``for_s`` until that end.
        """
        if self._seldom:
            return 0.0
        # Of a thousand runs nearly all end longer after the lane's beginning than any job waits: asked once.
        for_s = min(_STEP_S * ceil(for_s / _STEP_S), self._waits[-1] * max(_DRAWN))
        asked = per_s, for_s, chance
        if asked not in self._found:
            self._found[asked] = self._last_s(*asked)
        return self._found[asked]

    def _last_s(self, per_s: float, for_s: float, chance: float) -> float:
        room = -log(chance)

        def late(after_s: float) -> float:
            """How many jobs are to be expected later than that."""
            return per_s * (self._beyond(after_s) - self._beyond(after_s + for_s))

        low_s, high_s = 0.0, self._waits[-1] * max(_DRAWN)
        if late(low_s) <= room:
            return 0.0
        for _ in range(_HALVES):
            middle_s = (low_s + high_s) / 2
            low_s, high_s = (middle_s, high_s) if late(middle_s) > room else (low_s, middle_s)
        return high_s

    def _beyond(self, after_s: float) -> float:
        """The mean time for which a job waits longer than that; waits are drawn, and so longer or shorter."""
        return sum(part * self._longer(after_s / part) for part in _DRAWN) / len(_DRAWN)

    def _longer(self, after_s: float) -> float:
        """The same where each wait is as long as its mean."""
        number = bisect_right(self._waits, after_s) - 1
        if number >= len(self._shares):
            return 0.0
        return self._rest[number + 1] + self._shares[number] * (self._waits[number + 1] - after_s)
