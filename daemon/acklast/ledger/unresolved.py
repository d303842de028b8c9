"""Unresolved jobs read for people: page by page, and one of them with all that was found of it.

An unresolved job has a held letter that is open; both have the same fence. The index of the held ones is as
large as what waits for a decision, however many other letters there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg

from acklast.ledger.dead import ENTRY, Cursor, Entry, Wanted
from acklast.ledger.operate import Operations
from acklast.ledger.retrying import BEING_RETRIED


@dataclass(frozen=True, slots=True)
class Held:
    """An unresolved job in a list: its letter without the message, and what is being done about it."""

    entry: Entry
    deadline: datetime | None
    asked: bool
    """A daemon is to ask whether its effect has happened."""
    retried: bool
    """It is to run again, and waits for the redrive that releases it."""
    found: str | None
    """What the last answer was: ``happened``, ``not_happened`` or ``unknown``; None where nobody asked."""
    code: str | None
    """Why it could not be told."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and what was found. What an error said of itself is in the attempt."""

    id: int
    actor: str
    reason: str
    asked_at: datetime
    worker: str | None
    found: str | None
    code: str | None
    effect: str | None
    done_at: datetime | None


IS_UNRESOLVED: Final = """d.held and d.closed_at is null and j.state = 'unresolved' and j.fence = d.fence"""

_HELD: Final = f"""{ENTRY}, j.deadline, {BEING_RETRIED} as retried, exists (
           select from acklast.reconciliations o where o.lane = d.lane and o.key = d.key and o.done_at is null
       ) as asked, q.found, q.code"""

# A page is merged from the next ones of each lane, as that of the dead letters is.
PAGE: Final = f"""
with recursive lanes (lane) as (
    (select lane from acklast.dead_letters
     where held and closed_at is null and lane >= coalesce($1::text, '') order by lane limit 1)
    union all
    select (select d.lane from acklast.dead_letters d
            where d.held and d.closed_at is null and d.lane > l.lane order by d.lane limit 1)
    from lanes l where l.lane is not null and $1 is null
)
select p.* from (select lane from lanes where lane is not null and ($1 is null or lane = $1)) as w
cross join lateral (
    select {_HELD} from acklast.dead_letters d join acklast.jobs j on j.lane = d.lane and j.key = d.key
    left join lateral (
        select r.found, r.code from acklast.reconciliations r
        where r.lane = d.lane and r.key = d.key and r.found is not null order by r.id desc limit 1
    ) as q on true
    where d.lane = w.lane and {IS_UNRESOLVED}
      and d.last_failure_at >= coalesce($2::timestamptz, '-infinity')
      and (d.last_failure_at, d.id) < (coalesce($3::timestamptz, 'infinity'), $4::bigint)
      and ($6::text is null or coalesce(d.run, '') = $6) and ($7::text is null or d.reason = $7)
      and ($8::text is null or d.failure = $8)
    order by d.last_failure_at desc, d.id desc limit $5
) as p
order by p.last_failure_at desc, p.id desc limit $5
"""  # noqa: S608 - ours


def page_arguments(wanted: Wanted, after: Cursor | None, limit: int) -> tuple[Any, ...]:
    """The parameters of a page."""
    start = (after.at, after.id) if after else (wanted.until, 0)
    return (wanted.lane, wanted.since, *start, limit, wanted.run, wanted.reason, wanted.failure)


async def page(operations: Operations, wanted: Wanted, limit: int, after: Cursor | None = None) -> list[Held]:
    """The unresolved jobs that failed last, or those after a place that was listed.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(PAGE, *page_arguments(wanted, after, limit))
    return [_held(row) for row in rows]


def _held(row: asyncpg.Record) -> Held:
    found = dict(row)
    more = {name: found.pop(name) for name in ("deadline", "asked", "retried", "found", "code")}
    return Held(Entry(**found), **more)


# By id or by key: a key may look like an id.
_NAMED: Final = f"""
with recursive lanes (lane) as (
    (select lane from acklast.dead_letters where held and closed_at is null order by lane limit 1)
    union all
    select (select d.lane from acklast.dead_letters d
            where d.held and d.closed_at is null and d.lane > l.lane order by d.lane limit 1)
    from lanes l where l.lane is not null
),
meant as (
    select id from acklast.dead_letters where id = any($1::bigint[]) and fence is not null
    union
    select d.id from unnest($2::text[]) as w (key) cross join lanes n
                     join acklast.dead_letters d on d.lane = n.lane and d.key = w.key
    where d.held and d.closed_at is null
)
select d.id, d.lane, d.key, j.state, {IS_UNRESOLVED} as unresolved
from meant m join acklast.dead_letters d on d.id = m.id
     join acklast.jobs j on j.lane = d.lane and j.key = d.key
where ($3::text is null or d.lane = $3) and (d.id = any($1) or {IS_UNRESOLVED})
order by d.id
"""  # noqa: S608 - ours


@dataclass(frozen=True, slots=True)
class Named:
    """A letter that somebody has named, by its id or by its job's key, and the state of that job."""

    id: int
    lane: str
    key: str
    state: str
    unresolved: bool


async def named(
    operations: Operations, ids: Sequence[int], keys: Sequence[str], lane: str | None = None
) -> list[Named]:
    """The letters with these ids, whatever became of their jobs, and those of unresolved jobs by these keys.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return [Named(**dict(row)) for row in await operations.fetch(_NAMED, list(ids), list(keys), lane)]


_ASKED: Final = """
select q.id, q.actor, q.reason, q.asked_at, w.worker, q.found, q.code, q.effect, q.done_at
from acklast.reconciliations q left join acklast.workers w on w.id = q.session
where q.lane = $1 and q.key = $2 order by q.id
"""


async def asked_of(operations: Operations, lane: str, key: str) -> list[Asked]:
    """What was asked of a job, the oldest first.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return [Asked(**dict(row)) for row in await operations.fetch(_ASKED, lane, key)]


_RUN_BY: Final = """
select distinct r.lane from acklast.lane_reports r join acklast.workers w on w.id = r.session
where w.ended_at is null and w.lease_until > clock_timestamp()
"""


async def lanes_run(operations: Operations) -> set[str]:
    """The lanes that a living daemon runs.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return {row["lane"] for row in await operations.fetch(_RUN_BY)}


def arguments_of(wanted: Wanted) -> dict[str, Any]:
    """What was meant, as it is kept with a decision."""
    told = {name: getattr(wanted, name) for name in Wanted.__slots__}
    return {name: value for name, value in told.items() if value is not None}
