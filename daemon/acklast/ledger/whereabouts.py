"""All that the ledger knows of one key at one moment: its jobs, and whatever else may be of it.

A key that has no job yet may be promised in the outbox, be in a message that was set aside, or belong to a
schedule's firing that has not come to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg

from acklast.ledger.about import Cancellation
from acklast.ledger.api import JobView, State
from acklast.ledger.operate import Operations
from acklast.ledger.reading import cancellation_of, read_jobs
from acklast.ledger.unresolved import Asked, asked_of


@dataclass(frozen=True, slots=True)
class Claimer:
    """The session of a job's last claim. ``live``: its lease holds."""

    worker: str
    version: str
    live: bool
    lease_until: datetime
    ended_at: datetime | None
    draining_at: datetime | None


@dataclass(frozen=True, slots=True)
class Trying:
    """A redrive that the job is part of, and how that stands."""

    id: int
    status: str
    actor: str
    released: int
    letters: int


@dataclass(frozen=True, slots=True)
class Usual:
    """How long the handler takes, of a sample of the lane's jobs that are done: the half, and one in twenty
    longer."""

    jobs: int
    half_s: float
    most_s: float


@dataclass(frozen=True, slots=True)
class Hand:
    """The last thing that somebody did to the job."""

    at: datetime
    actor: str
    action: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job, and what its row does not say."""

    view: JobView
    claims: int
    claimer: Claimer | None
    cancelled: Cancellation | None
    """Of its run."""
    kept: bool
    """The ledger has its message."""
    sent_at: datetime | None
    """When that was last sent again."""
    hand: Hand | None
    trying: Trying | None = None
    usual: Usual | None = None
    asked: Sequence[Asked] = ()


@dataclass(frozen=True, slots=True)
class Promise:
    """A row of the outbox: the job is promised, and not published. ``behind``: earlier rows of its key."""

    id: int
    lane: str
    run: str | None
    created_at: datetime
    due_at: datetime
    tries: int
    error: str | None
    behind: int


@dataclass(frozen=True, slots=True)
class Stray:
    """A dead letter of a message that has no job of its own. ``lane`` is "" where none was meant."""

    id: int
    lane: str
    reason: str
    detail: str
    routing_key: str
    last_failure_at: datetime
    seen: int


@dataclass(frozen=True, slots=True)
class Fired:
    """A schedule's firing whose run is in the key."""

    schedule: str
    run: str
    state: str
    scheduled_at: datetime
    due_at: datetime
    rows: int
    promised: int
    bad: int
    tries: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Known:
    """All of it."""

    now: datetime
    key: str
    jobs: tuple[JobFacts, ...] = ()
    promises: tuple[Promise, ...] = ()
    strays: tuple[Stray, ...] = ()
    firings: tuple[Fired, ...] = ()
    oldest_due: datetime | None = None
    """Since when the oldest row of the outbox is due: a relay takes one within a second."""


_NOW: Final = "select clock_timestamp() as now, min(due_at) as oldest_due from acklast.outbox"

_FACTS: Final = """
select j.claims, w.worker, w.version, w.ended_at is null and w.lease_until > clock_timestamp() as live,
       w.lease_until, w.ended_at, w.draining_at, c.at as cancelled_at, c.actor, c.reason,
       k.key is not null as kept, k.sent_at
from acklast.jobs j left join acklast.workers w on w.id = j.session
     left join acklast.cancelled_runs c on c.run = j.run
     left join acklast.custody k on k.lane = j.lane and k.key = j.key
where j.lane = $1 and j.key = $2
"""

_HAND: Final = """
select at, actor, action, detail->>'reason' as reason from acklast.audit
where lane = $1 and key = $2 order by id desc limit 1
"""

_TRYING: Final = """
select q.id, q.status, q.actor, q.released, q.letters
from acklast.redrive_letters l join acklast.redrives q on q.id = l.redrive
where l.lane = $1 and l.key = $2 and l.state in ('planned', 'released')
  and q.status not in ('finished', 'cancelled')
order by q.id desc limit 1
"""

# The first that the index has: a figure of all would read them all, and nobody needs it that exact.
_USUAL: Final = """
select count(*) as jobs, percentile_cont(0.5) within group (order by took_s) as half_s,
       percentile_cont(0.95) within group (order by took_s) as most_s
from (select extract(epoch from effect_at - claimed_at)::float8 as took_s
      from (select state, claimed_at, effect_at from acklast.jobs where lane = $1 limit 5000) as sample
      where state = 'done' and effect_at >= claimed_at) as took
"""

# By lane and key, as the index is: from one lane to the next, as the jobs are looked for.
_PROMISES: Final = """
with recursive lanes (lane) as (
    (select lane from acklast.outbox order by lane limit 1)
    union all
    select (select o.lane from acklast.outbox o where o.lane > l.lane order by o.lane limit 1)
    from lanes l where l.lane is not null
)
select o.id, o.lane, o.run, o.created_at, o.due_at, o.tries, o.error,
       (row_number() over (partition by o.lane order by o.id) - 1)::int as behind
from lanes l join acklast.outbox o on o.lane = l.lane and o.key = $1
order by o.lane, o.id
"""

_STRAYS: Final = """
with recursive lanes (lane) as (
    (select lane from acklast.dead_letters order by lane limit 1)
    union all
    select (select d.lane from acklast.dead_letters d where d.lane > l.lane order by d.lane limit 1)
    from lanes l where l.lane is not null
)
select d.id, d.lane, d.reason, d.detail, d.routing_key, d.last_failure_at, d.seen
from lanes l join acklast.dead_letters d on d.lane = l.lane and d.key = $1
where d.fence is null and d.closed_at is null
order by d.id desc limit 20
"""

# One row for each firing there ever was: thousands.
_FIRINGS: Final = """
select schedule, run, state, scheduled_at, due_at, rows, promised, bad, tries, error
from acklast.firings where run is not null and position(run in $1) > 0
order by length(run) desc, id desc limit 3
"""


async def read_known(operations: Operations, key: str) -> Known:
    """All that is of one moment.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    async with operations.snapshot():
        [moment] = await operations.fetch(_NOW)
        views = await read_jobs(operations.connection, key, None)
        return Known(
            moment["now"],
            key,
            tuple([await _facts(operations, view) for view in views]),
            tuple(Promise(**dict(row)) for row in await operations.fetch(_PROMISES, key)),
            tuple(Stray(**dict(row)) for row in await operations.fetch(_STRAYS, key)),
            tuple(Fired(**dict(row)) for row in await operations.fetch(_FIRINGS, key)),
            moment["oldest_due"],
        )


async def _facts(operations: Operations, view: JobView) -> JobFacts:
    where = (view.lane, view.key)
    [row] = await operations.fetch(_FACTS, *where)
    hands = await operations.fetch(_HAND, *where)
    trying = await operations.fetch(_TRYING, *where) if view.redrives else []
    unresolved, claimed = view.state is State.UNRESOLVED, view.state is State.CLAIMED
    return JobFacts(
        view,
        row["claims"],
        _claimer(row),
        cancellation_of(row),
        row["kept"],
        row["sent_at"],
        Hand(**dict(hands[0])) if hands else None,
        Trying(**dict(trying[0])) if trying else None,
        await _usual(operations, view.lane) if claimed else None,
        tuple(await asked_of(operations, *where)) if unresolved else (),
    )


def _claimer(row: asyncpg.Record) -> Claimer | None:
    if row["worker"] is None:
        return None
    names: tuple[Any, ...] = Claimer.__slots__
    return Claimer(**{name: row[name] for name in names})


async def _usual(operations: Operations, lane: str) -> Usual | None:
    [row] = await operations.fetch(_USUAL, lane)
    return Usual(**dict(row)) if row["jobs"] else None


_PAUSED: Final = """
select paused_by, coalesce(paused_reason, '') as paused_reason
from acklast.schedules where name = $1 and paused_at is not null
"""


async def schedule_paused(operations: Operations, schedule: str) -> tuple[str, str] | None:
    """By whom a schedule is paused, and why; None where it is not.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(_PAUSED, schedule)
    return (rows[0]["paused_by"], rows[0]["paused_reason"]) if rows else None
