"""Figures out of measurements: pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, Self

WARM_UP: Final = 0.1
"""The first tenth of the jobs of a drain is not counted: caches fill, and windows of prefetch open."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the range that it comes from."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Raises ValueError for no values."""
        if not values:
            raise ValueError("no values")
        return cls(median(values), min(values), max(values))


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least ``part`` (0 to 1) of the values do not exceed.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def warmed_up(count: int) -> int:
    """After how many of ``count`` jobs the clock starts."""
    return max(1, int(count * WARM_UP))


def rate(moments: Sequence[float]) -> float:
    """Jobs per second from the end of the warm-up to the last job; ``moments`` are in order, in seconds.

    Raises:
        ValueError: too few to tell.
    """
    first = warmed_up(len(moments)) - 1
    if len(moments) - first < 2 or moments[-1] <= moments[first]:
        raise ValueError("too few jobs to tell a rate by")
    return (len(moments) - 1 - first) / (moments[-1] - moments[first])


def gaps(moments: Sequence[float]) -> list[float]:
    """The time from each job to the next, the warm-up left out; in the unit of ``moments``."""
    return [later - earlier for earlier, later in pairwise(moments[warmed_up(len(moments)) - 1 :])]


def ratios(rounds: Sequence[float], base: Sequence[float]) -> Spread:
    """Each round's value over the base's in the same round: what slows a whole round cancels out."""
    return Spread.of([value / of for value, of in zip(rounds, base, strict=True)])
