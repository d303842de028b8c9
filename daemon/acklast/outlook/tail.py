"""What comes after the flow: the last handlers, and the last retries. Pure.

A job that fails again and again waits twice as long each time, so that few are late and those by much. Of the
jobs that were begun in the last minutes some are still on that way when the queue is empty. The finish is the
end of the last of them, and that is told like any other maximum: by how many are to be expected later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Final

_ROUNDS: Final = 7
"""No job fails more often than that before it is over, or hardly any."""
_STEPS: Final = 4
"""So many parts of a round are told apart."""
_FAILS: Final = 0.02
"""Fewer failures are not worth a thought."""
_HALVES: Final = 20
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


def last_s(retries: Retries, per_s: float, for_s: float, chance: float) -> float:
    """The time after the flow's end by which, with this chance, no retry is left.

    ``per_s``: jobs that are begun in a second, for ``for_s`` until that end.
    """
    if retries.fails < _FAILS:
        return 0.0
    room, waits = -log(chance), list(_waits(retries))

    def late(after_s: float) -> float:
        """How many jobs are to be expected later than that."""
        return per_s * (_beyond(waits, after_s) - _beyond(waits, after_s + for_s))

    low_s, high_s = 0.0, waits[-1].until_s * max(_DRAWN)
    if late(low_s) <= room:
        return 0.0
    for _ in range(_HALVES):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (middle_s, high_s) if late(middle_s) > room else (low_s, middle_s)
    return high_s


@dataclass(frozen=True, slots=True)
class _Wait:
    """A time that a job may have waited, and the part of all jobs that wait so long."""

    begin_s: float
    until_s: float
    share: float


def _waits(retries: Retries) -> Iterator[_Wait]:
    steps = [number / _STEPS for number in range(_ROUNDS * _STEPS + 1)]
    for less, more in pairwise(steps):
        share = retries.fails ** ((less + more) / 2)
        yield _Wait(retries.waited_s(less), retries.waited_s(more), share)


def _beyond(waits: Sequence[_Wait], after_s: float) -> float:
    """The mean time for which a job waits longer than that; waits are drawn, and so longer or shorter."""
    return sum(part * _longer(waits, after_s / part) for part in _DRAWN) / len(_DRAWN)


def _longer(waits: Sequence[_Wait], after_s: float) -> float:
    """The same where each wait is as long as its mean."""
    return sum(one.share * max(0.0, one.until_s - max(one.begin_s, after_s)) for one in waits)
