"""When lanes and runs are finished: the middle, and a band that is to hold four times out of five. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil, exp, floor, hypot, sqrt
from typing import Final

from acklast.forecast import Key, LanePace, Load, flow
from acklast.outlook.binding import Binding, Constraint, binding, effective_per_s, handler_time_s
from acklast.outlook.facts import Facts, LaneFacts, Open
from acklast.outlook.pace import RULES, Flight, Pace, Rules, pace
from acklast.outlook.swing import CALM, Swing, swing
from acklast.outlook.tail import Retries, Tail
from acklast.reporter import Standing

BAND: Final = 0.8
"""The part of all forecasts whose finish is to lie inside their band."""
_Z: Final = 1.2816
"""So many standard deviations to either side hold that part."""
_LEAST_S: Final = 1.0
"""No finish is known better: a retry starts up to a second late, and what has ended is counted later."""
_STALL: Final = 9.0
"""What stands still for a time goes on for nine times that long in one case of ten."""


class Basis(StrEnum):
    """What a finish is reckoned by."""

    MEASURED = "measured"
    """By what ended in the last minutes."""
    LIMITS = "limits"
    """By what is allowed: nothing of it was measured yet."""
    UNKNOWN = "unknown"
    """There is nothing to reckon by; ``why`` says what is missing."""


class Meets(StrEnum):
    """How a finish stands against a deadline."""

    MET = "met"
    """The whole band is before it."""
    AT_RISK = "at_risk"
    """It is inside the band, or nobody can tell."""
    MISSED = "missed"
    """It is over, or the whole band is after it."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Seconds from now until the last job has ended: as likely sooner as later, and a band of 80 %, in whole
    seconds, rounded outward.

    None where nobody can tell; ``low_s`` may be known all the same: it is no earlier.
    """

    likely_s: float | None
    low_s: float | None
    high_s: float | None
    basis: Basis
    why: str = ""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is to be expected of one lane (``run`` None) or of one run (``lane``: the last of its lanes)."""

    lane: str
    run: str | None
    jobs: int
    per_s: float | None
    """Jobs that end in a second, of the lane."""
    starts_per_job: float | None
    finish: Finish
    binding: Binding
    deadline: datetime | None = None
    margin_s: float | None = None
    """From the likely finish to the deadline; negative: after it."""
    meets: Meets | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """Every lane, and every run that has open jobs: those with the nearest deadlines first."""

    at: datetime
    lanes: tuple[Prospect, ...] = ()
    runs: tuple[Prospect, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class _Lane:
    facts: LaneFacts
    pace: Pace | None
    binding: Binding
    opens_s: float | None
    going: LanePace
    swing: Swing
    tail: Tail
    jobs: int
    """That are open."""
    handler_s: float
    worked_s: float
    """For how long it worked in the minutes that are known."""


def outlook(facts: Facts, rules: Rules = RULES) -> Outlook:
    """What is to be expected, by what is known."""
    lanes = _lanes(facts, rules)
    budgets = _budgets(facts, lanes)
    loads = [Load(one.lane, one.run, one.jobs) for one in facts.open]
    ends = flow(loads, {name: lane.going for name, lane in lanes.items()}, budgets)
    finishes = {
        (name, run): _finish(lanes[name], end, rules) for (name, run), end in ends.items() if name in lanes
    }
    return Outlook(
        facts.at,
        tuple(_lane_prospects(lanes, finishes)),
        tuple(sorted(_runs(facts, lanes, finishes), key=_by_deadline)),
    )


# --- paces ------------------------------------------------------------------------------------------------


def _lanes(facts: Facts, rules: Rules) -> dict[str, _Lane]:
    found, open_of = {}, _by_lane(facts.open)
    for name, lane in facts.lanes.items():
        others = [
            one for one in facts.lanes.values() if lane.budget is not None and one.budget == lane.budget
        ]
        per_s = facts.budgets.get(lane.budget) if lane.budget is not None else None
        open_ = open_of.get(name, ())
        jobs = sum(one.jobs for one in open_)
        what = binding(lane, others, per_s, open_)
        known = pace(lane.minutes, Flight(lane.in_flight, lane.slots), rules)
        # What a lane gets of a budget changes as others come and are through: that is in the flow.
        shares = what.constraint is Constraint.BUDGET and sum(bool(one.minutes) for one in others) > 1
        swung = CALM if known is None or shares else _swing(known, jobs, rules)
        if known is not None:
            known = replace(known, per_s=swung.per_s(known.per_s))
        opens_s = _opens_s(lane, known, what)
        found[name] = _Lane(
            facts=lane,
            pace=known,
            binding=what,
            opens_s=opens_s,
            going=_going(lane, known, what, opens_s),
            swing=swung,
            tail=_tail(lane, known),
            jobs=jobs,
            handler_s=handler_time_s(lane) or 0.0,
            worked_s=sum(one.worked_s for one in lane.minutes),
        )
    return found


def _tail(lane: LaneFacts, known: Pace | None) -> Tail:
    fails = 0.0 if known is None else 1 - 1 / known.starts_per_job
    return Tail(Retries(fails, lane.retry_s, lane.retry_cap_s))


def _swing(known: Pace, jobs: int, rules: Rules) -> Swing:
    """Towards what the pace comes back until so many jobs are done."""
    return swing(known.hour, jobs / known.per_s / 60, rules.half_life_min)


def _by_lane(open_: Iterable[Open]) -> dict[str, list[Open]]:
    found: dict[str, list[Open]] = {}
    for one in open_:
        found.setdefault(one.lane, []).append(one)
    return found


def _opens_s(lane: LaneFacts, known: Pace | None, what: Binding) -> float | None:
    """When it starts anything; None where nobody can tell."""
    match what.constraint:
        case Constraint.NO_WORKER:
            return None
        case Constraint.PAUSED:
            hold = lane.paused or lane.quiet
            return None if hold is None else hold.left_s
        case _:
            # What has stood still for a time does so for as long again, in one case of two.
            probes = (one.left_s for one in lane.daemons if one.state == Standing.BREAKER)
            return max([known.stalled_s if known else 0.0, *(left_s or 0.0 for left_s in probes)])


def _going(lane: LaneFacts, known: Pace | None, what: Binding, opens_s: float | None) -> LanePace:
    """How fast it goes once it does. A lane that its budget holds back gets more as others are through."""
    by_budget = lane.budget is not None and (known is None or what.constraint is Constraint.BUDGET)
    most = None if by_budget or known is None else known.per_s
    if known is None and lane.budget is None and lane.starts_per_s:
        most = lane.starts_per_s
    starts = known.starts_per_job if known else 1.0
    return LanePace(lane.budget, lane.weight, most, opens_s, lane.in_turns, starts)


def _budgets(facts: Facts, lanes: Mapping[str, _Lane]) -> dict[str, float]:
    """Starts a second of each budget: what was got of it lately, where it is what holds its lanes back."""
    found = dict(facts.budgets)
    for name, per_s in facts.budgets.items():
        mine = [lane for lane in lanes.values() if lane.facts.budget == name]
        if not any(lane.binding.constraint is Constraint.BUDGET for lane in mine):
            continue
        told = min(per_s, effective_per_s([lane.facts for lane in mine])) or per_s
        got = sum(lane.pace.per_s * lane.pace.starts_per_job for lane in mine if lane.pace is not None)
        found[name] = min(per_s, sqrt(told * got)) if 0 < got < told else told
    return found


# --- finishes ---------------------------------------------------------------------------------------------


def _finish(lane: _Lane, end_s: float | None, rules: Rules) -> Finish:
    known, what = lane.pace, lane.binding
    opens_s = lane.opens_s
    if opens_s is None:
        return Finish(None, None, None, Basis.UNKNOWN, f"nobody can tell when it goes on: {what.said}")
    if end_s is None:
        return Finish(
            None,
            opens_s,
            None,
            Basis.UNKNOWN,
            "none of its work was measured yet, and no budget says how fast it may go",
        )
    work_s = max(0.0, end_s - opens_s)
    spread = _spread(lane, work_s, rules)
    stalled_s = known.stalled_s if known is not None else 0.0
    low = opens_s - stalled_s + stalled_s / _STALL + work_s * exp(-_Z * spread)
    high = opens_s + stalled_s * (_STALL - 1) + work_s * exp(_Z * spread * rules.late)
    handler_s = lane.handler_s
    first_s, tail_s, most_s = (_retries_s(lane, work_s, chance) for chance in (0.1, 0.5, 0.9))
    likely = end_s + handler_s + tail_s
    # What goes wrong with the one has nothing to do with the other.
    return Finish(
        likely,
        float(floor(max(0.0, likely - _LEAST_S - hypot(end_s - low, tail_s - first_s, handler_s)))),
        float(ceil(likely + _LEAST_S + hypot(high - end_s, most_s - tail_s, handler_s))),
        Basis.LIMITS if known is None else Basis.MEASURED,
        "" if known else "by its limits: none of its work was measured yet",
    )


def _spread(lane: _Lane, work_s: float, rules: Rules) -> float:
    """The standard deviation of the finish's logarithm. The further away it is, the more may happen."""
    known, tried = lane.pace, lane.swing
    if known is None:
        return rules.by_limits
    far = min(1.0, work_s / 60 / rules.drift_min)
    drift = (rules.trust * rules.drift**2 + tried.times * tried.spread**2) / (rules.trust + tried.times)
    return sqrt(known.spread**2 + rules.floor**2 + far * drift)


def _retries_s(lane: _Lane, end_s: float, chance: float) -> float:
    """How long after the flow the last retry is over, with this chance.

    Waits are of the lane's rules, and not measured: what waits is mostly due and behind others in the queue.
    """
    known = lane.pace
    if known is None:
        return 0.0
    return lane.tail.last_s(known.per_s, lane.worked_s + end_s, chance)


# --- prospects --------------------------------------------------------------------------------------------


def _lane_prospects(lanes: Mapping[str, _Lane], finishes: Mapping[Key, Finish]) -> Iterator[Prospect]:
    mine: dict[str, list[Finish]] = {}
    for (name, _), finish in finishes.items():
        mine.setdefault(name, []).append(finish)
    for name, lane in lanes.items():
        yield _prospect(lane, name, None, lane.jobs, _last(mine.get(name, ())))


def _runs(facts: Facts, lanes: Mapping[str, _Lane], finishes: Mapping[Key, Finish]) -> Iterator[Prospect]:
    jobs = Counter[str]()
    for one in facts.open:
        if one.run is not None:
            jobs[one.run] += one.jobs
    mine: dict[str, dict[str, Finish]] = {}
    for (name, run), finish in finishes.items():
        if run is not None and jobs[run]:
            mine.setdefault(run, {})[name] = finish
    for run, ends in mine.items():
        last = max(ends, key=lambda name: _order(ends[name]))
        prospect = _prospect(lanes[last], last, run, jobs[run], _last(list(ends.values())))
        yield _against(prospect, facts.deadlines.get(run), facts.at)


def _prospect(lane: _Lane, name: str, run: str | None, jobs: int, finish: Finish) -> Prospect:
    known = lane.pace
    return Prospect(
        lane=name,
        run=run,
        jobs=jobs,
        per_s=known.per_s if known else None,
        starts_per_job=known.starts_per_job if known else None,
        finish=finish,
        binding=lane.binding,
    )


def _order(finish: Finish) -> float:
    return float("inf") if finish.likely_s is None else finish.likely_s


def _last(finishes: Sequence[Finish]) -> Finish:
    """That of all of them together: the latest of each; nothing open is finished now."""
    if not finishes:
        return Finish(0.0, 0.0, 0.0, Basis.MEASURED)
    last = max(finishes, key=_order)
    if last.likely_s is None:
        lows = [one.low_s for one in finishes if one.low_s is not None]
        return Finish(None, max(lows, default=None), None, last.basis, last.why)
    return Finish(
        last.likely_s,
        max(one.low_s or 0.0 for one in finishes),
        max(one.high_s or 0.0 for one in finishes),
        last.basis,
        last.why,
    )


def _against(prospect: Prospect, deadline: datetime | None, at: datetime) -> Prospect:
    if deadline is None:
        return prospect
    left_s = (deadline - at).total_seconds()
    finish = prospect.finish
    margin_s = None if finish.likely_s is None else left_s - finish.likely_s
    return replace(prospect, deadline=deadline, margin_s=margin_s, meets=meets(finish, left_s))


def meets(finish: Finish, left_s: float) -> Meets:
    """How a finish stands against a deadline in ``left_s`` seconds."""
    if left_s <= 0 or (finish.low_s is not None and finish.low_s > left_s):
        return Meets.MISSED
    return Meets.MET if finish.high_s is not None and finish.high_s <= left_s else Meets.AT_RISK


def _by_deadline(prospect: Prospect) -> tuple[bool, float, str]:
    deadline = prospect.deadline
    return deadline is None, deadline.timestamp() if deadline else 0.0, prospect.run or ""


def moment_of(at: datetime, seconds: float | None) -> datetime | None:
    """``seconds`` after ``at``; None where that is not known, or beyond the calendar."""
    try:
        return None if seconds is None else at + timedelta(seconds=seconds)
    except OverflowError:
        return None
