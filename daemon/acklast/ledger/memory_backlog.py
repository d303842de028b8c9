"""The backlog of the ledger in memory: counted anew at each reading. A minute's starts are those of jobs that
have not been started again since, as nothing else is kept.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from acklast.ledger.api import State
from acklast.ledger.backlog import (
    DEPTHS,
    OPEN,
    PACE_MIN,
    Backlog,
    Dead,
    Depth,
    Oldest,
    OpenRun,
    Pace,
    by_deadline,
    due_bucket,
    ended_lately,
)
from acklast.ledger.memory_rows import Job, Rows
from acklast.telemetry.metric import MOST, OTHER
from acklast_topology.message import priority_class


def backlog_in(rows: Rows, now: datetime) -> Backlog:
    """What is to be done, at this moment."""
    pace = _pace(rows, now)
    return Backlog(
        at=now,
        depths=tuple(_depths(rows)),
        oldest=tuple(_oldest(rows, now)),
        pace=pace,
        dead=tuple(_dead(rows)),
        runs=tuple(sorted(_runs(rows, ended_lately(pace, now)), key=by_deadline)),
    )


def _depths(rows: Rows) -> list[Depth]:
    going_on = {job.run for job in rows.jobs.values() if job.state in OPEN}
    counts = Counter(
        (lane, priority_class(job.priority), job.state, job.run if job.run in going_on else None)
        for (lane, _), job in rows.jobs.items()
        if job.state in DEPTHS
    )
    return [Depth(*group, jobs) for group, jobs in counts.items()]


def _oldest(rows: Rows, now: datetime) -> list[Oldest]:
    since: dict[tuple[str, str], datetime] = {}
    jobs = Counter[tuple[str, str]]()
    for (lane, _), job in rows.jobs.items():
        if job.state in (State.QUEUED, State.WAITING) and (due := _due(job)) <= now:
            group = (lane, priority_class(job.priority))
            since[group] = min(due, since.get(group, due))
            jobs[group] += 1
    return [Oldest(*group, at, jobs[group]) for group, at in since.items()]


def _due(job: Job) -> datetime:
    return due_bucket(job.available_at or job.recorded_at or job.enqueued_at)


def _pace(rows: Rows, now: datetime) -> tuple[Pace, ...]:
    done, claimed, dead = Counter[_Minute](), Counter[_Minute](), Counter[_Minute]()
    for (lane, _), job in rows.jobs.items():
        if job.claimed_at is not None:
            claimed[lane, job.run, _minute(job.claimed_at)] += 1
        if job.recorded_at is not None and job.state in _ENDS:
            ended = done if job.state is State.DONE else dead
            ended[lane, job.run, _minute(job.recorded_at)] += 1
    first = _minute(now) - timedelta(minutes=PACE_MIN)
    return tuple(
        Pace(*place, done[place], claimed[place], dead[place])
        for place in dict.fromkeys([*claimed, *done, *dead])
        if place[2] > first
    )


_Minute = tuple[str, str | None, datetime]
_ENDS = (State.DONE, State.DEAD, State.UNRESOLVED)


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _dead(rows: Rows) -> list[Dead]:
    known = {lane for lane, _ in rows.jobs}
    counts = Counter(
        (kept.view.lane if kept.view.lane in known else "", kept.view.reason) for kept in rows.letters
    )
    found, told = Counter[tuple[str, str]](), Counter[str]()
    for (lane, reason), letters in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        found[lane, reason if told[lane] < MOST else OTHER] += letters
        told[lane] += 1
    return [Dead(lane, reason, letters) for (lane, reason), letters in found.items()]


def _runs(rows: Rows, ended: Counter[str]) -> list[OpenRun]:
    counts: dict[str, Counter[State]] = {}
    for job in rows.jobs.values():
        if job.run is not None:
            counts.setdefault(job.run, Counter())[job.state] += 1
    found = []
    for run, states in counts.items():
        if not OPEN & states.keys():
            continue
        made = rows.runs.get(run)
        found.append(
            OpenRun(
                run=run,
                counts=dict(states),
                manifest=made.manifest if made else None,
                created_at=made.created_at if made else None,
                deadline=made.about.deadline if made else None,
                cancelled=run in rows.cancelled,
                ended_lately=ended[run],
            )
        )
    return found
