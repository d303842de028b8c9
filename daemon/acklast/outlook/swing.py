"""What a lane's last hour says of how a rate goes on: whether it comes back to what is usual, and how far off
a forecast by its newest minutes would have been. Pure.

Every minute of the hour is taken for the moment of a forecast, and held against the minutes after it. Where
the rate was away from its mean and went back, it will again: the mean then says more than the newest minutes
do. Where it went to another level and stayed there, it says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp, log, sqrt
from typing import Final

_LEAST_MIN: Final = 16
"""Fewer minutes say nothing of what comes back."""
_RIDGE: Final = 0.1
"""As much of the square of a distance as nothing is made of: small ones are chance."""
_STILL: Final = 0.4
"""A minute with less than this part of the mean stood still."""


@dataclass(frozen=True, slots=True)
class Swing:
    """``back``: the part of its distance from ``usual_per_s`` that a rate loses until the horizon, 0 to 1.
    ``spread``: by how much the logarithm of such a forecast was off in the hour, beyond chance; ``times`` it
    could be looked at.
    """

    back: float = 0.0
    usual_per_s: float = 0.0
    spread: float = 0.0
    times: float = 0.0

    def per_s(self, now_per_s: float) -> float:
        if not self.back or not self.usual_per_s:
            return now_per_s
        return exp((1 - self.back) * log(now_per_s) + self.back * log(self.usual_per_s))


CALM: Final = Swing()


@dataclass(frozen=True, slots=True)
class Trial:
    """A forecast of the past: logarithms of the rate as it was then, as it had been before, and as it became;
    and the chance in the difference, as a variance.
    """

    now: float
    usual: float
    then: float
    noise: float


def swing(minutes: Sequence[tuple[float, float]], horizon_min: float, half_life_min: float) -> Swing:
    """``minutes``: what ended, and in how many seconds, the newest first."""
    usual_per_s, minutes = _mean(minutes), _going(minutes)
    if len(minutes) < _LEAST_MIN:
        return CALM
    ahead = max(2, min(round(horizon_min), len(minutes) // 2))
    tried = list(_trials(minutes, ahead, half_life_min))
    if not tried:
        return CALM
    away = sum((one.usual - one.now) ** 2 for one in tried)
    won = sum((one.usual - one.now) * (one.then - one.now) for one in tried)
    back = min(1.0, max(0.0, won / (away + _RIDGE)))
    off = sum((one.then - one.now - back * (one.usual - one.now)) ** 2 - one.noise for one in tried)
    # Beyond what could be tried it comes back further.
    back += back * (1 - back) * (1 - ahead / max(ahead, horizon_min))
    return Swing(back, usual_per_s, sqrt(max(0.0, off / len(tried))), len(minutes) / ahead - 1)


def _going(minutes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without those in which something stood still: an outage or a pause is no swing."""
    least = _STILL * _mean(minutes)
    return [(ended, length_s) for ended, length_s in minutes if length_s and ended / length_s > least]


def _mean(minutes: Sequence[tuple[float, float]]) -> float:
    length_s = sum(length_s for _, length_s in minutes)
    return sum(ended for ended, _ in minutes) / length_s if length_s else 0.0


def _trials(minutes: Sequence[tuple[float, float]], ahead: int, half_life_min: float) -> list[Trial]:
    jobs = list(accumulate((ended for ended, _ in minutes), initial=0.0))
    times = list(accumulate((length_s for _, length_s in minutes), initial=0.0))
    fade = 0.5 ** (1 / half_life_min)
    found: list[Trial] = []
    ended = length_s = squares = 0.0
    for at in range(len(minutes) - 1, 0, -1):
        ended = fade * ended + minutes[at][0]
        length_s = fade * length_s + minutes[at][1]
        squares = fade * fade * squares + minutes[at][0]
        before = jobs[-1] - jobs[at]
        until = max(0, at - ahead)
        then, then_s = jobs[at] - jobs[until], times[at] - times[until]
        if at < ahead / 2 or len(minutes) - at < 3 or not (ended and then):
            continue
        found.append(
            Trial(
                log(ended / length_s),
                log(before / (times[-1] - times[at])),
                log(then / then_s),
                squares / ended**2 + 1 / then,
            )
        )
    return found
