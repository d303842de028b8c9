"""What ``acklast top`` shows at one moment, put together of what was read: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from acklast.cli.lane_view import LaneView, lanes_of, view_of
from acklast.cli.lane_why import State, explain
from acklast.cli.queues import Queues
from acklast.config import Config
from acklast.ledger.api import State as Job
from acklast.ledger.backlog import Backlog, OpenRun
from acklast.ledger.run_status import Status
from acklast.ledger.standing import DaemonView, Standing
from acklast.ledger.workers import WorkerView
from acklast.outlook.cast import Meets, Prospect, moment_of, outlook
from acklast.outlook.gather import facts_of

_BEGUN_S: Final = 20
"""Rates are of this minute; where less of it has passed, of the one before, too."""
SHARE_S: Final = 600.0
"""Shares of errors are of ten minutes."""


class Sort(StrEnum):
    """What lanes are sorted by: the first is what needs somebody."""

    NEED = "need"
    LANE = "lane"
    READY = "ready"
    OLDEST = "oldest"
    RATE = "rate"
    ERRORS = "errors"


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One lane. ``error_share``: of the jobs that ended in ten minutes the part that is dead, else None."""

    lane: str
    state: State
    why: str
    budget: str | None
    workers: int
    in_flight: int
    slots: int
    held: int
    ready: int | None
    """In the broker's work queue; None where that could not be seen."""
    queued: int
    """Promised or given back, by the ledger: they are, or should be, among those that are ready."""
    waiting: int
    unresolved: int
    dead: int
    oldest_s: float | None
    per_s: float
    error_share: float | None
    left_s: float | None = None
    """Until its backlog is done, likely; None where nobody can tell."""
    binding: str | None = None
    """What holds it back (``outlook.binding.Constraint``)."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run with something to do. ``left_s``: how long it takes, likely; ``low_s``, ``high_s``: the band
    in which it ends four times out of five."""

    run: str
    status: Status
    open: int
    total: int
    dead: int
    unresolved: int
    left_s: float | None
    low_s: float | None
    high_s: float | None
    finish_at: datetime | None
    deadline: datetime | None
    binding: str | None
    """What holds its lane back."""


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One budget over all its daemons and lanes. ``quota``: what may be used, after what operators ask."""

    budget: str
    quota: str
    used_per_s: float
    effective_per_s: float
    permits: int
    busy: int
    paused_until: datetime | None
    paused_why: str | None
    """By whom, or what the downstream said."""


@dataclass(frozen=True, slots=True)
class Shot:
    """All of it. ``ledger`` and ``broker`` say why one of them could not be asked: then it is of before."""

    at: datetime
    lanes: tuple[LaneRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    budgets: tuple[BudgetRow, ...] = ()
    workers: tuple[WorkerView, ...] = ()
    complete: bool = True
    """False while the ledger still counts the jobs of before an upgrade: no number of them is known yet."""
    ledger: str | None = None
    broker: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """What the ledger said, at one moment."""

    standing: Standing
    workers: tuple[WorkerView, ...]
    backlog: Backlog


def shot(
    config: Config,
    read: Read,
    ready: Mapping[str, Queues],
    *,
    lanes: Sequence[str] = (),
    sort: Sort = Sort.NEED,
    ledger: str | None = None,
    broker: str | None = None,
) -> Shot:
    """``lanes`` are those to show; none are all. Runs and daemons without any of them are left out."""
    backlog, standing = read.backlog, read.standing
    names = [*lanes] or _lanes(config, standing, backlog)
    expected = outlook(facts_of(config, backlog, standing, _messages(ready, backlog)))
    by_lane = {one.lane: one for one in expected.lanes}
    by_run = {one.run: one for one in expected.runs}
    views = [view_of(config, standing, name, _queues(name, ready, backlog)) for name in names]
    rows = sorted((_lane(view, backlog, by_lane.get(view.lane)) for view in views), key=_keys(sort))
    runs = [one for one in backlog.runs if not lanes or _touches(backlog, one, lanes)]
    return Shot(
        at=backlog.at,
        lanes=tuple(rows),
        runs=tuple(sorted((_run(one, backlog.at, by_run.get(one.run)) for one in runs), key=_by_risk)),
        budgets=tuple(_budgets(config, standing, views)),
        workers=tuple(one for one in read.workers if not lanes or set(lanes) & set(one.lanes)),
        complete=backlog.complete,
        ledger=ledger,
        broker=broker,
    )


# --- lanes ----------------------------------------------------------------------------------------------


def _lanes(config: Config, standing: Standing, backlog: Backlog) -> list[str]:
    known = lanes_of(config, standing)
    return [*known, *sorted({one.lane for one in backlog.depths} - {*known})]


def _messages(ready: Mapping[str, Queues], backlog: Backlog) -> dict[str, int]:
    """In the lanes' queues: what waits there for its time the ledger knows as well, and where that has come
    it is among those that are ready.
    """
    seen = {lane: queues.ready for lane, queues in ready.items() if queues.ready is not None}
    return {lane: count + backlog.not_due(lane) for lane, count in seen.items()}


def _queues(lane: str, ready: Mapping[str, Queues], backlog: Backlog) -> Queues:
    seen = ready.get(lane, Queues())
    return Queues(seen.ready, backlog.jobs(lane, None, Job.WAITING), [*seen.missing], [*seen.unseen])


def _lane(view: LaneView, backlog: Backlog, expected: Prospect | None) -> LaneRow:
    state, why = explain(view)
    mine = [one.since for one in backlog.oldest if one.lane == view.lane]
    done, _, seconds = _ended(backlog, view.lane, 60.0 if backlog.at.second < _BEGUN_S else 0.0)
    ended, dead, _ = _ended(backlog, view.lane, SHARE_S)
    return LaneRow(
        lane=view.lane,
        state=state,
        why=why,
        budget=view.budget,
        workers=len(view.daemons),
        in_flight=view.in_flight,
        slots=view.slots,
        held=view.held,
        ready=view.queues.ready,
        queued=backlog.jobs(view.lane, None, Job.QUEUED),
        waiting=backlog.jobs(view.lane, None, Job.WAITING),
        unresolved=backlog.jobs(view.lane, None, Job.UNRESOLVED),
        dead=backlog.jobs(view.lane, None, Job.DEAD),
        oldest_s=(backlog.at - min(mine)).total_seconds() if mine else None,
        per_s=round(done / seconds, 3) if seconds else 0.0,
        error_share=round(dead / (ended + dead), 4) if ended + dead else None,
        left_s=expected.finish.likely_s if expected else None,
        binding=expected.binding.constraint.value if expected else None,
    )


def _ended(backlog: Backlog, lane: str, window_s: float) -> tuple[int, int, float]:
    """Done and dead jobs of the minutes that begin in the window before this one, and how long that is."""
    first = backlog.at.replace(second=0, microsecond=0) - timedelta(seconds=window_s)
    mine = [one for one in backlog.pace if one.lane == lane and one.minute >= first]
    done, dead = sum(one.done for one in mine), sum(one.dead for one in mine)
    return done, dead, (backlog.at - first).total_seconds()


_NEEDS: Final = (State.STOPPED, State.PAUSED, State.WAITING, State.RUNNING, State.IDLE)


def _keys(sort: Sort) -> Callable[[LaneRow], Any]:
    """The largest first, except for names."""
    match sort:
        case Sort.NEED:
            return lambda row: (_NEEDS.index(row.state), row.lane)
        case Sort.LANE:
            return lambda row: row.lane
        case Sort.READY:
            return lambda row: (-(row.ready or 0) - row.waiting, row.lane)
        case Sort.OLDEST:
            return lambda row: (-(row.oldest_s or 0.0), row.lane)
        case Sort.RATE:
            return lambda row: (-row.per_s, row.lane)
        case Sort.ERRORS:
            return lambda row: (-(row.error_share or 0.0), -row.dead, row.lane)


# --- runs -----------------------------------------------------------------------------------------------


def _run(run: OpenRun, at: datetime, expected: Prospect | None) -> RunRow:
    finish = expected.finish if expected else None
    total = run.manifest if run.manifest is not None else sum(run.counts.values())
    return RunRow(
        run=run.run,
        status=_status(run, at, expected),
        open=run.open,
        total=total,
        dead=run.counts.get(Job.DEAD, 0),
        unresolved=run.counts.get(Job.UNRESOLVED, 0),
        left_s=finish.likely_s if finish else None,
        low_s=finish.low_s if finish else None,
        high_s=finish.high_s if finish else None,
        finish_at=moment_of(at, finish.likely_s) if finish else None,
        deadline=run.deadline,
        binding=expected.binding.constraint.value if expected else None,
    )


def _status(run: OpenRun, at: datetime, expected: Prospect | None) -> Status:
    """At risk is what the forecast says is, and not the last minute alone."""
    if run.cancelled:
        return Status.CANCELLING
    if run.deadline is not None and at >= run.deadline:
        return Status.LATE
    risky = expected is not None and expected.meets in (Meets.AT_RISK, Meets.MISSED)
    return Status.AT_RISK if risky else Status.OPEN


_RISKS: Final = (Status.LATE, Status.AT_RISK, Status.OPEN, Status.CANCELLING)


def _by_risk(row: RunRow) -> tuple[int, float, str]:
    risk = _RISKS.index(row.status) if row.status in _RISKS else len(_RISKS)
    return risk, row.deadline.timestamp() if row.deadline else float("inf"), row.run


def _touches(backlog: Backlog, run: OpenRun, lanes: Sequence[str]) -> bool:
    return any(one.run == run.run and one.lane in lanes for one in backlog.depths)


# --- budgets --------------------------------------------------------------------------------------------


def _budgets(config: Config, standing: Standing, views: Sequence[LaneView]) -> Iterable[BudgetRow]:
    for budget in dict.fromkeys(view.budget for view in views if view.budget is not None):
        mine = [view for view in views if view.budget == budget]
        # What a daemon says of a budget is the same in each of its lanes.
        daemons: dict[int, DaemonView] = {one.session: one for view in mine for one in view.daemons}
        paused = next((view.paused for view in mine if view.paused and view.paused.name == budget), None)
        quiet = standing.pauses.get(budget)
        until = paused.until if paused else quiet.until if quiet else None
        why = f"{paused.actor}: {paused.reason}" if paused else quiet.reason if quiet else None
        in_force = mine[0].in_force or config.budgets[budget].ours()
        most = in_force.count / in_force.period_s
        told = sum(one.rate_per_s or 0.0 for one in daemons.values())
        yield BudgetRow(
            budget=budget,
            quota=str(in_force),
            used_per_s=round(sum(view.used_per_s for view in mine), 3),
            effective_per_s=0.0 if paused or quiet else round(min(told, most), 3),
            permits=sum(one.permits or 0 for one in daemons.values()),
            busy=sum(one.busy or 0 for one in daemons.values()),
            paused_until=until,
            paused_why=why,
        )
