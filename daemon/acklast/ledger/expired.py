"""The statements of retention: what has expired in one stretch of a table, removed or only counted.

Parameters of the three that walk: ``$1`` lanes, ``$2`` and ``$3`` their windows in seconds, in the same
order, ``$4`` and ``$5`` the stretch as places (ctid), ``$6`` rows at most. ``$3`` is the dead ones' window;
``$2`` is that of payloads where letters are looked at, and of done jobs elsewhere.

Why they are shaped like this:

- A row is removed by its place under a lock that does not wait. What another transaction holds is left for
  the next pass, and what has changed since the statement began lies elsewhere: it is not found.
- One statement is one transaction: the jobs that go, what belongs to them, and the run's tally. Whoever is
  killed leaves all of it or nothing.
- Nothing here waits for a row that a flush may hold, so the two cannot deadlock. A claim of a key that is
  being removed finds the job as it was until the batch is committed, or waits for that and has a new one.
- A lane's window is looked up in the arrays and not joined: a join might deliver the rows in another order,
  and the walk goes on after the last place of a batch. An unknown lane gives null, and its rows stay.
"""

from __future__ import annotations

from typing import Final

# A job that was done at its first claim has neither attempts nor letters, and that is nearly every job. Any
# other stays until its letters may go with it: none outlives it into another job's life under the same key.
# What is redriven stays until the redrive has seen what became of it.
_LOOK_AT_JOBS: Final = """
with looked as materialized (
    select j.ctid as place, j.lane, j.key, j.state <> 'done' or j.fence > 1 as storied,
           case j.state when 'dead' then ($3::float8[])[array_position($1::text[], j.lane)]
                        else ($2::float8[])[array_position($1::text[], j.lane)] end
               - date_part('epoch', now() - j.recorded_at) as left_s
    from acklast.jobs j
    where j.ctid >= $4 and j.ctid < $5 and j.state in ('done', 'dead', 'cancelled')
),
expired as materialized (
    select l.place from looked l
    where l.left_s <= 0 and (not l.storied or not exists (
        select from acklast.dead_letters d
        where d.lane = l.lane and d.key = l.key and d.fence is not null
          and date_part('epoch', now() - d.last_failure_at)
              < ($3::float8[])[array_position($1::text[], d.lane)]))
      and not exists (select from acklast.redrive_letters r
                      where r.lane = l.lane and r.key = l.key and r.state = 'released')
    limit $6
)"""

_REMOVE_JOBS: Final = """,
gone as (
    delete from acklast.jobs j
    where j.ctid = any(array(select h.ctid from acklast.jobs h
                             where h.ctid = any(array(select place from expired)) for update skip locked))
    returning j.lane, j.key, j.state, j.fence, j.run, j.claims
),
storied as materialized (
    select lane, key from gone where state <> 'done' or fence > 1
),
attempts as (
    delete from acklast.attempts a using storied s where a.lane = s.lane and a.key = s.key returning 1
),
letters as (
    delete from acklast.dead_letters d using storied s
    where d.lane = s.lane and d.key = s.key and d.fence is not null returning 1
),
questions as (
    delete from acklast.reconciliations q using storied s where q.lane = s.lane and q.key = s.key
),
tallied as (
    insert into acklast.run_tallies as t (run, state, jobs, claims)
    select run, state, count(*), sum(claims) from gone where run is not null
    group by run, state order by run, state
    on conflict (run, state) do update set jobs = t.jobs + excluded.jobs, claims = t.claims + excluded.claims
)"""

# The letters are counted where their own table is looked at.
_COUNT_JOBS: Final = """,
gone as materialized (
    select j.lane, j.key, j.state, j.fence from acklast.jobs j
    where j.ctid = any(array(select place from expired))
),
storied as materialized (
    select lane, key from gone where state <> 'done' or fence > 1
),
attempts as materialized (
    select from storied s join acklast.attempts a on a.lane = s.lane and a.key = s.key
),
letters as materialized (
    select where false
)"""

# What each of them tells: how far it came, when there is more to do here, and what it removed.
_TELL: Final = """
select (select max(place) from expired) as reached, (select count(*) from expired) as expired,
       (select min(left_s) from looked where left_s > 0) as next_s,
       (select count(*) from looked where left_s <= 0) as overdue, """

_TELL_JOBS: Final = """
       count(*) filter (where state = 'done') as done, count(*) filter (where state = 'dead') as dead,
       count(*) filter (where state = 'cancelled') as cancelled, count(*) as gone,
       (select count(*) from attempts) as attempts, (select count(*) from letters) as letters
from gone"""

REMOVE_JOBS: Final = _LOOK_AT_JOBS + _REMOVE_JOBS + _TELL + _TELL_JOBS
COUNT_JOBS: Final = _LOOK_AT_JOBS + _COUNT_JOBS + _TELL + _TELL_JOBS

# An open job's letters are the way back for it, whatever their age. A letter without a fence has no job of
# its own, and its key may be another message's, until it is redriven: then it has one.
_LOOK_AT_LETTERS: Final = """
with aged as materialized (
    select d.ctid as place, d.lane, d.key, d.fence is null and d.closed_at is null as jobless,
           d.payload is not null as full,
           date_part('epoch', now() - d.last_failure_at) as age_s
    from acklast.dead_letters d where d.ctid >= $4 and d.ctid < $5
),
looked as materialized (
    select a.*, w.whole_s, least(w.whole_s, w.payload_s) as left_s
    from aged a cross join lateral (
        select ($3::float8[])[array_position($1::text[], a.lane)] - a.age_s,
               case when a.full then ($2::float8[])[array_position($1::text[], a.lane)] - a.age_s end
    ) as w (whole_s, payload_s)
),
expired as materialized (
    select l.place, l.whole_s <= 0 as whole from looked l
    where l.left_s <= 0 and (l.jobless or not exists (
        select from acklast.jobs j where j.lane = l.lane and j.key = l.key
                                     and j.state in ('queued', 'claimed', 'waiting', 'unresolved')))
    limit $6
)"""

_REMOVE_LETTERS: Final = """,
gone as (
    delete from acklast.dead_letters d
    where d.ctid = any(array(select h.ctid from acklast.dead_letters h
                             where h.ctid = any(array(select place from expired where whole))
                             for update skip locked))
    returning 1
),
emptied as (
    update acklast.dead_letters d
    set payload = null, headers = '{}', properties = d.properties - 'as_sent_base64'
    where d.ctid = any(array(select h.ctid from acklast.dead_letters h
                             where h.ctid = any(array(select place from expired where not whole))
                             for update skip locked))
    returning 1
)"""

_COUNT_LETTERS: Final = """,
gone as materialized (
    select from expired where whole
),
emptied as materialized (
    select from expired where not whole
)"""

_TELL_LETTERS: Final = """
       count(*) as letters, (select count(*) from emptied) as payloads,
       count(*) + (select count(*) from emptied) as gone
from gone"""

REMOVE_LETTERS: Final = _LOOK_AT_LETTERS + _REMOVE_LETTERS + _TELL + _TELL_LETTERS
COUNT_LETTERS: Final = _LOOK_AT_LETTERS + _COUNT_LETTERS + _TELL + _TELL_LETTERS

# An attempt goes with its job; this is for those whose job has gone in another way, by a person's hand.
_LOOK_AT_ATTEMPTS: Final = """
with looked as materialized (
    select a.ctid as place, a.lane, a.key,
           greatest(($2::float8[])[array_position($1::text[], a.lane)],
                    ($3::float8[])[array_position($1::text[], a.lane)])
               - date_part('epoch', now() - a.ended_at) as left_s
    from acklast.attempts a
    where a.ctid >= $4 and a.ctid < $5
),
expired as materialized (
    select l.place from looked l
    where l.left_s <= 0
      and not exists (select from acklast.jobs j where j.lane = l.lane and j.key = l.key)
    limit $6
)"""

_REMOVE_ATTEMPTS: Final = """,
gone as (
    delete from acklast.attempts a
    where a.ctid = any(array(select h.ctid from acklast.attempts h
                             where h.ctid = any(array(select place from expired)) for update skip locked))
    returning 1
)"""

_COUNT_ATTEMPTS: Final = """,
gone as materialized (
    select from expired
)"""

_TELL_ATTEMPTS: Final = """
       count(*) as attempts, count(*) as gone
from gone"""

REMOVE_ATTEMPTS: Final = _LOOK_AT_ATTEMPTS + _REMOVE_ATTEMPTS + _TELL + _TELL_ATTEMPTS
COUNT_ATTEMPTS: Final = _LOOK_AT_ATTEMPTS + _COUNT_ATTEMPTS + _TELL + _TELL_ATTEMPTS

# Few rows, so all of them are looked at: $1 seconds, $2 rows at most. A session that ended unseen counts from
# the end of its lease; a renewal and this lock the same row.
REMOVE_SESSIONS: Final = """
with gone as (
    delete from acklast.workers where ctid = any(array(
        select ctid from acklast.workers
        where date_part('epoch', now() - coalesce(ended_at, lease_until)) > $1
        limit $2 for update skip locked))
    returning id
),
forgotten as (
    delete from acklast.settlements s using gone where s.session = gone.id
)
select count(*) from gone
"""
COUNT_SESSIONS: Final = """
select count(*) from acklast.workers
where date_part('epoch', now() - coalesce(ended_at, lease_until)) > $1 and $2::bigint is null
"""

# A redrive goes with its letters, some thousand of them a commit and the row itself behind the last: $1
# seconds, $2 letters at most. One that was planned and never started ends when it is that old.
_OLD_REDRIVES: Final = """
    select q.id from acklast.redrives q
    where date_part('epoch', now() - case q.status when 'planned' then q.planned_at else q.ended_at end) > $1
"""
REMOVE_REDRIVES: Final = f"""
with old as materialized (
    {_OLD_REDRIVES} order by q.id limit 1 for update skip locked
),
letters as (
    delete from acklast.redrive_letters r using old
    where r.redrive = old.id and r.position = any(array(
        select l.position from acklast.redrive_letters l where l.redrive = (select id from old)
        order by l.position limit $2))
    returning 1
),
gone as (
    delete from acklast.redrives q using old
    where q.id = old.id and (select count(*) from letters) < $2
    returning 1
)
select (select count(*) from old) as found, (select count(*) from gone) as gone
"""  # noqa: S608 - ours
COUNT_REDRIVES: Final = f"select 0 as found, count(*) as gone from ({_OLD_REDRIVES}) as o"  # noqa: S608 - ours
