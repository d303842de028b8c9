"""The counts of jobs: kept short, and made for the jobs from before there were any.

Triggers on ``acklast.jobs`` add what each statement changes; ``backlog`` reads the sums. What is done here is
done now and then beside the lanes, holds nobody up, and changes no sum.
"""

from __future__ import annotations

import hashlib
from typing import Final

from acklast.ledger.connect import Connection

_FEW: Final = 500
"""Rows that are always few enough."""
KEPT_MIN: Final = 65
"""Minutes for which it is known what each of them did."""
RUNS_MIN: Final = 3
"""Minutes for which it is known what they did of each run."""

_LOCK: Final = int.from_bytes(hashlib.sha256(b"acklast job counts").digest()[:8], signed=True)
_ALONE: Final = "select pg_try_advisory_xact_lock($1)"


def worth_a_sum(added: int, summed: int) -> bool:
    """Whether so many rows that were added since are to be summed with those that are sums.

    All of them are written anew: at this pace each row that is added costs two or three more, and readings
    take at most half as long again as right after a sum.
    """
    return added > max(_FEW, summed // 2)


# Rows that come meanwhile are not seen, and stay. What is over goes to a table of its own, where only who
# reads a run looks. Which run it was is kept of the last minutes alone.
_SUM: Final = """
with old as (
    delete from acklast.job_counts returning *
),
level as materialized (
    select lane, run, priority, sum(queued) as queued, sum(waiting) as waiting, sum(claimed) as claimed,
           sum(unresolved) as unresolved, sum(dead) as dead, sum(done) as done, sum(cancelled) as cancelled
    from old where priority <> '' group by lane, run, priority
),
ended as (
    insert into acklast.job_counts_over as o (run, lane, priority, done, cancelled)
    select run, lane, priority, done, cancelled from level
    where (done, cancelled) <> (0, 0)
    on conflict (run, lane, priority) do update
    set done = o.done + excluded.done, cancelled = o.cancelled + excluded.cancelled
),
due as (
    insert into acklast.job_dues as d (due, lane, priority, startable)
    select due, lane, priority, sum(startable) from old
    where due is not null group by due, lane, priority having sum(startable) <> 0
    on conflict (due, lane, priority) do update set startable = d.startable + excluded.startable
)
insert into acklast.job_counts (lane, run, priority, minute, queued, waiting, claimed, unresolved, dead,
                                started, completed, failed, summed)
select lane, run, priority, null::timestamptz, queued, waiting, claimed, unresolved, dead, 0, 0, 0, true
from level where (queued, waiting, claimed, unresolved, dead) <> (0, 0, 0, 0, 0)
union all
select o.lane, case when o.minute > t.now - make_interval(mins => $2) then o.run else '' end as of, '',
       o.minute, 0, 0, 0, 0, 0, sum(o.started), sum(o.completed), sum(o.failed), true
from old o cross join (select clock_timestamp()) as t (now)
where o.minute > t.now - make_interval(mins => $1)
group by o.lane, of, o.minute having (sum(o.started), sum(o.completed), sum(o.failed)) <> (0, 0, 0)
"""
_FORGET: Final = (
    "delete from acklast.job_counts_over where done = 0 and cancelled = 0",
    "delete from acklast.job_dues where startable = 0",
)


async def sum_up(connection: Connection) -> bool:
    """Replace the rows by their sums, unless somebody else does at this moment; whether it did."""
    async with connection.transaction():
        if not await connection.fetchval(_ALONE, _LOCK):
            return False
        await connection.execute(_SUM, KEPT_MIN, RUNS_MIN)
        for forget in _FORGET:
            await connection.execute(forget)
    return True


# One statement, and so one snapshot: every job that is in it, less what the rows in it have counted of them.
# What a statement changes and the rows that count it are in a snapshot together or not at all; so from here
# on the sums are right, whatever goes on meanwhile, and where they were right already nothing is added.
_COUNT: Final = """
with job as materialized (
    select lane, coalesce(run, '') as run, acklast.job_priority(priority) as priority, state,
           acklast.job_due(state, available_at, recorded_at, enqueued_at) as due, count(*) as n
    from acklast.jobs group by 1, 2, 3, 4, 5
),
level as (
    select lane, run, priority, sum(n) filter (where state = 'queued') as queued,
           sum(n) filter (where state = 'waiting') as waiting,
           sum(n) filter (where state = 'claimed') as claimed,
           sum(n) filter (where state = 'unresolved') as unresolved,
           sum(n) filter (where state = 'dead') as dead, sum(n) filter (where state = 'done') as done,
           sum(n) filter (where state = 'cancelled') as cancelled
    from job group by lane, run, priority
    union all
    select lane, run, priority, -queued, -waiting, -claimed, -unresolved, -dead, -done, -cancelled
    from acklast.job_counts where priority <> ''
    union all
    select lane, run, priority, 0, 0, 0, 0, 0, -done, -cancelled from acklast.job_counts_over
),
short as (
    select lane, run, priority, coalesce(sum(queued), 0) as queued, coalesce(sum(waiting), 0) as waiting,
           coalesce(sum(claimed), 0) as claimed, coalesce(sum(unresolved), 0) as unresolved,
           coalesce(sum(dead), 0) as dead, coalesce(sum(done), 0) as done,
           coalesce(sum(cancelled), 0) as cancelled
    from level group by lane, run, priority
),
ended as (
    insert into acklast.job_counts_over as o (run, lane, priority, done, cancelled)
    select run, lane, priority, done, cancelled from short where (done, cancelled) <> (0, 0)
    on conflict (run, lane, priority) do update
    set done = o.done + excluded.done, cancelled = o.cancelled + excluded.cancelled
)
insert into acklast.job_counts (lane, run, priority, due, queued, waiting, claimed, unresolved, dead,
                                startable)
select lane, run, priority, null::timestamptz, queued, waiting, claimed, unresolved, dead, 0
from short where (queued, waiting, claimed, unresolved, dead) <> (0, 0, 0, 0, 0)
union all
select lane, '', priority, due, 0, 0, 0, 0, 0, sum(n)
from (select lane, priority, due, n from job where due is not null
      union all
      select lane, priority, due, -startable from acklast.job_counts where due is not null
      union all
      select lane, priority, due, -startable from acklast.job_dues) as d
group by lane, priority, due having sum(n) <> 0
"""
_IN_TURN: Final = "select pg_advisory_xact_lock($1)"
_COMPLETE: Final = "select exists (select from acklast.job_counting)"
_TELL: Final = "insert into acklast.job_counting default values on conflict do nothing"


async def count_older(connection: Connection) -> None:
    """Count the jobs from before there were counts, unless that was done. Reads all jobs there are, once.

    Takes as long as that takes; whoever calls it allows the time.
    """
    if not await connection.fetchval(_COMPLETE):
        await count_all(connection)


async def count_all(connection: Connection) -> None:
    """Make the counts right, whatever they were: after rows were loaded in a way that no trigger sees."""
    async with connection.transaction():
        # A statement of its own: who waited for another count sees in the next one what that has added.
        await connection.execute(_IN_TURN, _LOCK)
        await connection.execute(_COUNT)
        await connection.execute(_TELL)
