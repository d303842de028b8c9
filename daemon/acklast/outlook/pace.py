"""How fast a lane gets through its jobs, and how sure that is: read out of what ended in each of the last
minutes. Pure.

Rates change. So the newest minutes count most, and those before a lasting change do not count at all: minutes
are taken in from the newest back, until two in a row are too far from the rate so far for chance to explain
them. A single bad minute stays in: there will be others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from acklast.outlook.facts import Minute


@dataclass(frozen=True, slots=True)
class Rules:
    """The estimator's numbers, found by ``bench/backtest.py`` on drains other than those it reports on."""

    half_life_min: float = 5.0
    """A minute that is so much older counts half."""
    least_min: int = 2
    """So many minutes are taken in whatever they show."""
    far: float = 2.5
    """Two minutes in a row that are so many standard deviations away are another rate."""
    rough: float = 0.1
    """A minute's own variation, as a part of the rate, besides chance."""
    floor: float = 0.04
    """The least standard deviation of a rate's logarithm: nothing is known better."""
    drift: float = 0.14
    """What a rate may yet do within ``drift_min``, as a standard deviation of its logarithm."""
    drift_min: float = 30.0
    trust: float = 2.0
    """For so many times that a forecast could be tried in the last hour ``drift`` counts."""
    late: float = 1.8
    """A finish is later than expected by more than it is earlier."""
    by_limits: float = 0.6
    """The standard deviation of the logarithm where nothing was measured and only limits are known."""


RULES: Final = Rules()
_SAYS_S: Final = 15.0
"""A shorter time says less than a minute that work may have filled in part."""


@dataclass(frozen=True, slots=True)
class Flight:
    """What is in flight, of so many slots."""

    jobs: int
    slots: int

    @property
    def lag(self) -> float:
        """By how many jobs what has ended is behind what was done, since a beginning with none in flight.

        Where slots are free, jobs begin one after the other, and all that are in flight are behind. Where
        all slots are in use they began together, and are half-way through in the mean.
        """
        return self.jobs * (1 - 0.5 * min(1.0, self.jobs / self.slots)) if self.slots else 0.0


NONE: Final = Flight(0, 0)


@dataclass(frozen=True, slots=True)
class Pace:
    """What lately happened, as a rate.

    ``per_s``: jobs that end in a second. ``spread``: the standard deviation of its logarithm, as it is now.
    ``stalled_s``: since when nothing ended at all though something was there to be done. ``ended`` jobs in
    ``minutes``, in which ``worked_s`` were worked, are what it goes by.
    """

    per_s: float
    spread: float
    starts_per_job: float
    stalled_s: float
    ended: int
    minutes: int
    worked_s: float
    hour: tuple[tuple[float, float], ...] = ()
    """What ended in each minute, and how long that was worked in, the newest first."""


def pace(minutes: Sequence[Minute], in_flight: Flight = NONE, rules: Rules = RULES) -> Pace | None:
    """``minutes``: the newest first. None where nothing ended in any of them."""
    stalled, rest = _stalled(_at_work(minutes))
    chosen = _of_one_rate([_Part.of(one, in_flight) for one in rest], rules)
    weights = [0.5 ** (number / rules.half_life_min) for number in range(len(chosen))]
    length_s = _sum(weights, (one.length_s for one in chosen))
    ended = _sum(weights, (one.ended for one in chosen))
    if not ended or not length_s:
        return None
    per_s = ended / length_s
    # As many as if all had counted in full: what the noise of a weighted sum is like.
    counted = ended**2 / _sum((w * w for w in weights), (one.ended for one in chosen))
    rough = _rough(chosen, per_s)
    spread = sqrt(1.0 / counted + rough**2 / len(chosen))
    return Pace(
        per_s,
        spread,
        max(1.0, _sum(weights, (one.started for one in chosen)) / ended),
        stalled,
        round(sum(one.ended for one in chosen)),
        len(chosen),
        sum(one.length_s for one in chosen),
        tuple((one.ended, one.worked_s) for one in rest),
    )


def _sum(weights: Iterable[float], values: Iterable[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


@dataclass(frozen=True, slots=True)
class _Part:
    """A minute, for as long as it was worked in."""

    ended: float
    started: float
    length_s: float

    @classmethod
    def of(cls, minute: Minute, in_flight: Flight) -> _Part:
        """What is in flight since a fresh beginning has done a part of its work, and has not ended."""
        if not minute.fresh:
            return cls(minute.ended, minute.started, minute.worked_s)
        lag = in_flight.lag
        return cls(minute.ended + lag, minute.started - in_flight.jobs + lag, minute.worked_s)


def _at_work(minutes: Sequence[Minute]) -> list[Minute]:
    """Those that were worked in; those in which work came at some time only where nothing else is known."""
    worked = [one for one in minutes if one.worked_s > 0]
    sure = [one for one in worked if one.sure]
    return sure if sum(one.worked_s for one in sure) >= _SAYS_S else worked


def _stalled(minutes: Sequence[Minute]) -> tuple[float, Sequence[Minute]]:
    """For how long next to nothing ended, and what was before. Less than a minute is no standstill."""
    usual = sorted(one.ended / one.worked_s for one in minutes if one.ended)
    little = 0.02 * usual[len(usual) // 2] if usual else 0.0
    stalled_s, number = 0.0, 0
    for one in minutes:
        expected = usual[len(usual) // 2] * one.worked_s if usual else 0.0
        if expected < 5 or one.ended > little * one.worked_s:
            break
        stalled_s += one.worked_s
        number += 1
    return (stalled_s, minutes[number:]) if stalled_s >= 60 else (0.0, minutes)


def _of_one_rate(minutes: Sequence[_Part], rules: Rules) -> Sequence[_Part]:
    """The newest minutes, up to the last lasting change."""
    ended, length_s, odd = 0.0, 0.0, 0
    for number, one in enumerate(minutes):
        expected = (ended / length_s) * one.length_s if length_s else one.ended
        room = rules.far * sqrt(max(expected, 1.0) + (rules.rough * expected) ** 2)
        odd = odd + 1 if number >= rules.least_min and abs(one.ended - expected) > room else 0
        if odd == 2:
            return minutes[: number - 1]
        ended, length_s = ended + one.ended, length_s + one.length_s
    return minutes


def _rough(minutes: Sequence[_Part], per_s: float) -> float:
    """How much the minutes differ beyond what chance makes of them, as a part of the rate."""
    if len(minutes) < 2:
        return 0.0
    seen = expected = chance = 0.0
    for one in minutes:
        mean = per_s * one.length_s
        seen += (one.ended - mean) ** 2
        expected += mean**2
        chance += mean
    return sqrt(max(0.0, seen - chance) / expected)
