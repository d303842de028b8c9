"""How fast a lane gets through its jobs, and how sure that is: read out of what ended in each of the last
minutes. Pure.

Rates change. So the newest minutes count most, and those before a lasting change do not count at all: minutes
are taken in from the newest back, until two in a row are too far from the rate so far for chance to explain
them. A single bad minute stays in: there will be others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
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
class Pace:
    """What lately happened, as a rate.

    ``per_s``: jobs that end in a second. ``spread``: the standard deviation of its logarithm, as it is
    now. ``stalled_s``: since when nothing ended at
    all though something was there to be done. ``ended`` jobs in ``minutes`` are what it goes by.
    """

    per_s: float
    spread: float
    starts_per_job: float
    stalled_s: float
    ended: int
    minutes: int


def pace(minutes: Sequence[Minute], busy_s: float, rules: Rules = RULES) -> Pace | None:
    """``minutes``: the newest first; those with nothing in them from before ``busy_s`` may have been idle.

    None where nothing ended in any of them.
    """
    stalled, rest = _stalled(_at_work(minutes, busy_s))
    chosen = _of_one_rate(rest, rules)
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
        _starts_per_job(rest),
        stalled,
        sum(one.ended for one in chosen),
        len(chosen),
    )


def _at_work(minutes: Sequence[Minute], busy_s: float) -> list[Minute]:
    """Without the minutes in which there may have been nothing to do, for all or for some of their time."""
    ages = list(accumulate((one.length_s for one in minutes), initial=0.0))
    idle = [
        not (one.ended or one.started or age_s < busy_s - one.length_s / 2)
        for one, age_s in zip(minutes, ages[:-1], strict=True)
    ]
    # In the first minute after an idle one work may have come at its end: it says too little of the rate.
    whole = [
        one
        for one, end_s, before, mine in zip(minutes, ages[1:], [*idle, True][1:], idle, strict=True)
        if not mine and (not before or end_s <= busy_s)
    ]
    if sum(one.length_s for one in whole) >= _SAYS_S:
        return whole
    return [one for one, mine in zip(minutes, idle, strict=True) if not mine]


def _stalled(minutes: Sequence[Minute]) -> tuple[float, Sequence[Minute]]:
    """For how long next to nothing ended, and what was before. Less than a minute is no standstill."""
    usual = sorted(one.ended / one.length_s for one in minutes if one.ended)
    little = 0.02 * usual[len(usual) // 2] if usual else 0.0
    stalled_s, number = 0.0, 0
    for one in minutes:
        expected = usual[len(usual) // 2] * one.length_s if usual else 0.0
        if expected < 5 or one.ended > little * one.length_s:
            break
        stalled_s += one.length_s
        number += 1
    return (stalled_s, minutes[number:]) if stalled_s >= 60 else (0.0, minutes)


def _of_one_rate(minutes: Sequence[Minute], rules: Rules) -> Sequence[Minute]:
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


def _rough(minutes: Sequence[Minute], per_s: float) -> float:
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


def _starts_per_job(minutes: Sequence[Minute]) -> float:
    """Starts for each job that ended; one at least."""
    ended = sum(one.ended for one in minutes)
    started = sum(one.started for one in minutes)
    return max(1.0, started / ended) if ended else 1.0
