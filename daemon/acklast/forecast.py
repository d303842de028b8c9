"""When runs would be finished, and what one more does to the others. Pure: what is known comes in as values.

Jobs are taken for a flow. A budget's rate is shared by the lanes that wait for it, by their weights; in a
lane jobs go in the order in which they came, or run by run in turns. Nothing is foreseen that is not known
now: no failures, no hints of a downstream, no daemon that comes or goes. So a finish is the earliest that is
likely.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_NONE_LEFT: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be done of one run in one lane; ``run`` is None for jobs of no run, or of one not known."""

    lane: str
    run: str | None
    jobs: int
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class LanePace:
    """How fast a lane may go. ``most_per_s`` bounds it besides its budget; None where nothing known does.

    ``opens_s`` is when it starts anything, in seconds from now; None where nobody can tell.
    ``in_turns``: its runs take turns, and do not wait for one another. ``starts_per_job``: of the budget's
    starts, what a job takes until it is over, those that fail included.
    """

    budget: str | None
    weight: float = 1.0
    most_per_s: float | None = None
    opens_s: float | None = 0.0
    in_turns: bool = False
    starts_per_job: float = 1.0


@dataclass(frozen=True, slots=True)
class Effect:
    """What the new run does to another one that has a deadline. Times are None where they cannot be known."""

    run: str
    jobs: int
    deadline: datetime
    without: datetime | None
    with_: datetime | None

    @property
    def met_without(self) -> bool | None:
        return None if self.without is None else self.without <= self.deadline

    @property
    def met_with(self) -> bool | None:
        return None if self.with_ is None else self.with_ <= self.deadline


@dataclass(frozen=True, slots=True)
class Forecast:
    """``finish`` of the new run: None where it cannot be known; ``before``: others' open jobs in its lane."""

    finish: datetime | None
    deadline: datetime | None
    jobs: int
    before: int
    effects: tuple[Effect, ...]

    @property
    def met(self) -> bool | None:
        """Whether the deadline is met; None without one, or where the finish cannot be known."""
        return None if self.finish is None or self.deadline is None else self.finish <= self.deadline


def forecast(
    now: datetime,
    loads: Sequence[Load],
    new: Load,
    lanes: Mapping[str, LanePace],
    budgets: Mapping[str, float],
) -> Forecast:
    """``loads`` are what is open, in each lane the first to come first; ``budgets`` are starts a second.

    Jobs of the new run that are open already count with it.
    """
    before = _finishes(loads, lanes, budgets)
    after = _finishes([*loads, new], lanes, budgets)
    jobs: dict[str, int] = {}
    deadlines: dict[str, datetime] = {}
    for load in loads:
        if load.run is not None and load.run != new.run and load.deadline is not None:
            jobs[load.run] = jobs.get(load.run, 0) + load.jobs
            deadlines[load.run] = max(load.deadline, deadlines.get(load.run, load.deadline))
    effects = (
        Effect(run, count, deadlines[run], _at(now, before[run]), _at(now, after[run]))
        for run, count in jobs.items()
    )
    return Forecast(
        finish=_at(now, after.get(new.run, 0.0)),
        deadline=new.deadline,
        jobs=new.jobs + sum(load.jobs for load in loads if load.run == new.run),
        before=sum(load.jobs for load in loads if load.lane == new.lane and load.run != new.run),
        effects=tuple(sorted(effects, key=lambda effect: (effect.deadline, effect.run))),
    )


def _at(now: datetime, seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else now + timedelta(seconds=seconds)
    except OverflowError:  # so slow that no calendar holds it
        return None


# --- the flow ---------------------------------------------------------------------------------------------


Key = tuple[str, str | None]
"""A lane, and a run in it."""


@dataclass(slots=True)
class _Work:
    """What is to be done in one lane. ``ends`` tells how many of its jobs are left when each load is done,
    and whose that is; the last to end comes first.
    """

    left: float
    ends: list[tuple[int, Key]]

    @classmethod
    def of(cls, loads: Sequence[Load], *, in_turns: bool) -> _Work:
        """Where runs take turns, each gets on like the others until the smallest is through."""
        total, before, ends = sum(load.jobs for load in loads), 0, []
        ordered = sorted(loads, key=lambda load: load.jobs) if in_turns else loads
        for after, load in zip(range(len(loads) - 1, -1, -1), ordered, strict=True):
            before += load.jobs
            meanwhile = after * load.jobs if in_turns else 0
            ends.append((total - before - meanwhile, (load.lane, load.run)))
        return cls(total, ends[::-1])

    def go(self, jobs: float) -> list[tuple[float, Key]]:
        """Do so many: which loads are through, and how many were done until each was."""
        left, through = self.left - jobs, []
        while self.ends and self.ends[-1][0] >= left - _NONE_LEFT:
            rest, key = self.ends.pop()
            through.append((self.left - rest, key))
        self.left = left
        return through


def _finishes(
    loads: Sequence[Load], lanes: Mapping[str, LanePace], budgets: Mapping[str, float]
) -> dict[str | None, float | None]:
    """Seconds until each run is finished, all its lanes together; None where nobody can tell."""
    found: dict[str | None, float | None] = {}
    for (_, run), at in flow(loads, lanes, budgets).items():
        before = found.get(run, 0.0)
        found[run] = None if at is None or before is None else max(at, before)
    return found


def flow(
    loads: Sequence[Load], lanes: Mapping[str, LanePace], budgets: Mapping[str, float]
) -> dict[Key, float | None]:
    """Seconds until each lane is through with each run; None where nobody can tell.

    Paces change only when a lane is through or opens, so it takes a step for each lane, and not for each of
    what may be thousands of runs.
    """
    ended: dict[Key, float | None] = {(load.lane, load.run): 0.0 for load in loads}
    works, now_s = _works(loads, lanes), 0.0
    while works:
        rates = _rates(works, lanes, budgets, now_s)
        step_s = _next_s(works, rates, lanes, now_s)
        if step_s is None:
            return ended | {key: None for work in works.values() for _, key in work.ends}
        for name, per_s in rates.items():
            for jobs, key in works[name].go(per_s * step_s):
                ended[key] = now_s + min(step_s, jobs / per_s)
        now_s += step_s
        works = {name: work for name, work in works.items() if work.ends}
    return ended


def _works(loads: Iterable[Load], lanes: Mapping[str, LanePace]) -> dict[str, _Work]:
    mine: dict[str, list[Load]] = {}
    for load in loads:
        if load.jobs > 0:
            mine.setdefault(load.lane, []).append(load)
    turns = {name for name, lane in lanes.items() if lane.in_turns}
    return {name: _Work.of(of, in_turns=name in turns) for name, of in mine.items()}


def _next_s(
    works: Mapping[str, _Work], rates: Mapping[str, float], lanes: Mapping[str, LanePace], now_s: float
) -> float | None:
    """Seconds until a lane is through or one opens; None where nothing more happens."""
    ends = [works[name].left / per_s for name, per_s in rates.items()]
    opens = {lane.opens_s for name in works if (lane := lanes.get(name))}
    ends += [at - now_s for at in opens if at is not None and at > now_s]
    return min(ends, default=None)


def _rates(
    works: Iterable[str], lanes: Mapping[str, LanePace], budgets: Mapping[str, float], now_s: float
) -> dict[str, float]:
    """What each lane goes at now, in jobs a second; without those that stand still."""
    at_work = {
        name: lane
        for name in works
        if (lane := lanes.get(name)) and lane.opens_s is not None and lane.opens_s <= now_s
    }
    paces = {name: lane.most_per_s or 0.0 for name, lane in at_work.items() if lane.budget is None}
    for budget in {lane.budget for lane in at_work.values() if lane.budget is not None}:
        mine = {name: lane for name, lane in at_work.items() if lane.budget == budget}
        starts = shared(budgets.get(budget, 0.0), mine)
        paces |= {name: per_s / mine[name].starts_per_job for name, per_s in starts.items()}
    return {name: per_s for name, per_s in paces.items() if per_s > 0}


def shared(per_s: float, lanes: Mapping[str, LanePace]) -> dict[str, float]:
    """A budget's starts by the lanes' weights; what a lane cannot use goes to the others."""
    found: dict[str, float] = {}
    rest = dict(lanes)
    while rest:
        weights = sum(lane.weight for lane in rest.values())
        bound = {
            name: most
            for name, lane in rest.items()
            if (most := _most_starts(lane)) is not None and most < per_s * lane.weight / weights
        }
        if not bound:
            return found | {name: per_s * lane.weight / weights for name, lane in rest.items()}
        found |= bound
        per_s -= sum(bound.values())
        rest = {name: lane for name, lane in rest.items() if name not in bound}
    return found


def _most_starts(lane: LanePace) -> float | None:
    return None if lane.most_per_s is None else lane.most_per_s * lane.starts_per_job


def joined(loads: Iterable[Load], others: Mapping[str, int]) -> list[Load]:
    """The loads, with what the broker holds beyond them: jobs that the ledger does not know yet.

    They came after what is known, or before it; for a new run that is the same.
    """
    known: dict[str, int] = {}
    kept = list(loads)
    for load in kept:
        known[load.lane] = known.get(load.lane, 0) + load.jobs
    more = {lane: count - known.get(lane, 0) for lane, count in others.items()}
    return [*kept, *(Load(lane, None, count) for lane, count in more.items() if count > 0)]
