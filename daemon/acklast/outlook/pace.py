"""How fast a lane gets through its jobs, and how sure that is: read out of what ended in each of the last
minutes. Pure.

Rates change. So the newest minutes count most, and those before a lasting change do not count at all: minutes
are taken in from the newest back, until two in a row are too far from the rate so far for chance to explain
them. A single bad minute stays in: there will be others.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    floor: float = 0.05
    """The least standard deviation of a rate's logarithm: nothing is known better."""
    drift: float = 0.14
    """What a rate may yet do within ``drift_min``, as a standard deviation of its logarithm."""
    drift_min: float = 30.0
    late: float = 1.6
    """A finish is later than expected by more than it is earlier."""
    first: float = 0.1
    """The standard deviation of the logarithm that comes on top while only seconds were measured."""
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


def pace(minutes: Sequence[Minute], in_flight: Flight = NONE, rules: Rules = RULES) -> Pace | None:
    """``minutes``: the newest first. None where nothing ended in any of them."""
    stalled, rest = _stalled(_at_work(minutes))
    starts = _starts_per_job(rest, in_flight.jobs)
    lag = in_flight.lag / starts
    chosen = _of_one_rate([_Part.of(one, lag) for one in rest], rules)
    weights = [0.5 ** (number / rules.half_life_min) for number in range(len(chosen))]
    length_s = sum(w * one.length_s for w, one in zip(weights, chosen, strict=True))
    ended = sum(w * one.ended for w, one in zip(weights, chosen, strict=True))
    if not ended or not length_s:
        return None
    per_s = ended / length_s
    # As many as if all had counted in full: what the noise of a weighted sum is like.
    counted = ended**2 / sum(w * w * one.ended for w, one in zip(weights, chosen, strict=True))
    rough = _rough(chosen, per_s)
    spread = sqrt(1.0 / counted + rough**2 / len(chosen))
    return Pace(
        per_s,
        spread,
        starts,
        stalled,
        round(sum(one.ended for one in chosen)),
        len(chosen),
        sum(one.length_s for one in chosen),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A minute, for as long as it was worked in."""

    ended: float
    length_s: float

    @classmethod
    def of(cls, minute: Minute, lag: float) -> _Part:
        """``lag``: what has not ended yet of the work that a fresh beginning has done."""
        return cls(minute.ended + lag * minute.fresh, minute.worked_s)


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
    if len(minutes) < 3:
        return 0.0
    seen = expected = chance = 0.0
    for one in minutes:
        mean = per_s * one.length_s
        seen += (one.ended - mean) ** 2
        expected += mean**2
        chance += mean
    return sqrt(max(0.0, seen - chance) / expected)


def _starts_per_job(minutes: Sequence[Minute], in_flight: int) -> float:
    """Starts for each job that ended; one at least. Those that are in flight since a beginning with none have
    come to nothing yet.
    """
    ended = sum(one.ended for one in minutes)
    started = sum(one.started for one in minutes) - in_flight * any(one.fresh for one in minutes)
    return max(1.0, started / ended) if ended else 1.0
