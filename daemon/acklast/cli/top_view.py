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

RATE_S: Final = 60.0
"""Rates are of the last whole minute and what has passed of this one."""
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


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run with something to do. ``left_s``: how long it takes at the pace of the last minute."""

    run: str
    status: Status
    open: int
    total: int
    dead: int
    unresolved: int
    per_s: float
    left_s: float | None
    finish_at: datetime | None
    deadline: datetime | None


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
    views = [view_of(config, standing, name, _queues(name, ready, backlog)) for name in names]
    rows = sorted((_lane(view, backlog) for view in views), key=_keys(sort))
    runs = [one for one in backlog.runs if not lanes or _touches(backlog, one, lanes)]
    return Shot(
        at=backlog.at,
        lanes=tuple(rows),
        runs=tuple(sorted((_run(one, backlog.at) for one in runs), key=_by_risk)),
        budgets=tuple(_budgets(config, standing, views)),
        workers=tuple(one for one in read.workers if not lanes or set(lanes) & set(one.lanes)),
        ledger=ledger,
        broker=broker,
    )


# --- lanes ----------------------------------------------------------------------------------------------


def _lanes(config: Config, standing: Standing, backlog: Backlog) -> list[str]:
    known = lanes_of(config, standing)
    return [*known, *sorted({one.lane for one in backlog.depths} - {*known})]


def _queues(lane: str, ready: Mapping[str, Queues], backlog: Backlog) -> Queues:
    seen = ready.get(lane, Queues())
    return Queues(seen.ready, backlog.jobs(lane, None, Job.WAITING), [*seen.missing], [*seen.unseen])


def _lane(view: LaneView, backlog: Backlog) -> LaneRow:
    state, why = explain(view)
    mine = [one.since for one in backlog.oldest if one.lane == view.lane]
    done, _, seconds = _ended(backlog, view.lane, RATE_S)
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


def _run(run: OpenRun, at: datetime) -> RunRow:
    per_s = run.ended_lately / 60.0
    left_s = run.open / per_s if per_s else None
    longest_s = timedelta(days=3650).total_seconds()
    finish = None if left_s is None else at + timedelta(seconds=min(left_s, longest_s))
    total = run.manifest if run.manifest is not None else sum(run.counts.values())
    return RunRow(
        run=run.run,
        status=run.status(at),
        open=run.open,
        total=total,
        dead=run.counts.get(Job.DEAD, 0),
        unresolved=run.counts.get(Job.UNRESOLVED, 0),
        per_s=round(per_s, 3),
        left_s=left_s,
        finish_at=finish,
        deadline=run.deadline,
    )


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
