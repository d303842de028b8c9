"""Figures out of measurements: pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, Self

EDGE: Final = 0.1
"""The first and the last tenth of the jobs of a drain are not counted.

At first caches fill and windows of prefetch open; at last a process that is done waits for one that still
holds messages. Both are the same for a long backlog and a short one, and the backlog here is short.
"""


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


def window(count: int) -> tuple[int, int]:
    """After how many of ``count`` jobs the clock starts, and after how many it stops."""
    edge = max(1, int(count * EDGE))
    return edge, count - edge


def rate(moments: Sequence[float]) -> float:
    """Jobs per second between the edges; ``moments`` are in order, in seconds.

    Raises:
        ValueError: too few to tell.
    """
    first, last = (number - 1 for number in window(len(moments)))
    if last <= first or moments[last] <= moments[first]:
        raise ValueError("too few jobs to tell a rate by")
    return (last - first) / (moments[last] - moments[first])


def gaps(moments: Sequence[float]) -> list[float]:
    """The time from each job to the next between the edges, in the unit of ``moments``."""
    first, last = window(len(moments))
    return [later - earlier for earlier, later in pairwise(moments[first - 1 : last])]


def ratios(rounds: Sequence[float], base: Sequence[float]) -> Spread:
    """Each round's value over the base's in the same round: what slows a whole round cancels out."""
    return Spread.of([value / of for value, of in zip(rounds, base, strict=True)])
