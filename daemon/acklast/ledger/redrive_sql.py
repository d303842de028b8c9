"""The statements of a redrive at work.

What they have in common:

- The redrive's row is locked first, with its session and status asked for: two daemons, or a daemon and a
  person, come one after the other.
- Jobs and letters are locked under a lock that does not wait. What another transaction holds (a flush, a
  person at a prompt) is left for the next time; who never waits cannot deadlock.
- A row that was locked is seen as it is now, not as it was when the statement began. So whether a letter may
  be tried is asked of the locked rows.
"""

from __future__ import annotations

from typing import Final

COLUMNS: Final = ("step", "letters", "released", "refused", "done", "same", "other", "tolerate")
"""Of a redrive's standing, but for its steps."""

_REDRIVE: Final = f"""
r.id, r.lane, r.status, r.rate_per_s, r.steps, r.said, {", ".join(f"r.{name}" for name in COLUMNS)},
coalesce(r.started_at, r.planned_at) as started_at, clock_timestamp() as now"""

# What is out is settled whatever a person has said of the rest. A redrive whose daemon is gone is taken over
# as its jobs would be: when its lease is over.
OWN: Final = f"""
with taken as (
    update acklast.redrives r set session = $1
    where r.id in (
        select o.id from acklast.redrives o
        where o.lane = any($2::text[]) and o.steps is not null and o.session is distinct from $1
          and (o.status = 'running' or o.released > o.done + o.same + o.other)
          and not exists (select from acklast.workers w
                          where w.id = o.session and w.ended_at is null and w.lease_until > clock_timestamp())
          and exists (select from acklast.workers w
                      where w.id = $1 and w.ended_at is null and w.lease_until > clock_timestamp())
        for no key update of o skip locked)
    returning r.id
)
select {_REDRIVE}
from acklast.redrives r
where r.lane = any($2::text[]) and (r.session = $1 or r.id in (select id from taken)) and r.steps is not null
  and (r.status = 'running' or r.released > r.done + r.same + r.other)
order by r.id
"""  # noqa: S608 - names of this module alone

# Messages of any size: so many letters at most, and of those no more than fit in so many bytes, one at least.
# The sizes are known without reading what they are of.
_MESSAGES: Final = """
select f.position, f.key, f.reason, f.exchange, f.routing_key, f.headers, f.properties, f.payload, f.due
from (
    select l.position, l.key, l.reason, l.due, d.exchange, d.routing_key, d.headers, d.properties, d.payload,
           sum(coalesce(octet_length(d.payload), 0)) over before as bytes, row_number() over before as place
    from picked l left join acklast.dead_letters d on d.id = l.letter
    window before as (order by l.position rows unbounded preceding)
) as f
where f.bytes <= $4 or f.place = 1
order by f.position"""

# A job that has moved on has had a carrier: one that was in the broker still, or this one, before a crash.
UNSENT: Final = f"""
with picked as materialized (
    select l.position, l.key, l.reason, l.letter,
           coalesce(j.state = 'queued' and j.fence = l.at_fence, false) as due
    from acklast.redrive_letters l left join acklast.jobs j on j.lane = l.lane and j.key = l.key
    where l.redrive = $1 and l.position >= $2 and l.state = 'released' and l.sent_at is null
    order by l.position limit $3
){_MESSAGES}
"""  # noqa: S608 - names of this module alone

SENT: Final = """
update acklast.redrive_letters l set sent_at = clock_timestamp()
where l.redrive = $1 and l.position = any($3::bigint[]) and l.state = 'released' and l.sent_at is null
  and exists (select from acklast.redrives r where r.id = $1 and r.session = $2)
"""

NEXT: Final = f"""
with picked as materialized (
    select l.position, l.key, l.reason, l.letter, true as due
    from acklast.redrive_letters l
    where l.redrive = $1 and l.position >= $2 and l.state = 'planned'
    order by l.position limit $3
){_MESSAGES}
"""  # noqa: S608 - names of this module alone

# Over is over only at a fence that the release or a later claim has given. What it failed of is in the newest
# letter of the job; an older one is what it was redriven from.
SETTLE: Final = f"""
with mine as materialized (
    select id from acklast.redrives where id = $1 and session = $2 for no key update
),
over as materialized (
    select l.redrive, l.position, l.lane, l.key, l.failure,
           case when j.key is null then 'gone' else j.state end as outcome,
           n.reason as new_reason, n.failure as new_failure, n.version as new_version
    from mine join acklast.redrive_letters l on l.redrive = mine.id and l.state = 'released'
         left join acklast.jobs j on j.lane = l.lane and j.key = l.key
         left join lateral (
             select d.reason, d.failure, d.version from acklast.dead_letters d
             where d.lane = l.lane and d.key = l.key and d.fence >= l.at_fence
               and j.state in ('dead', 'unresolved')
             order by d.id desc limit 1
         ) as n on true
    where j.key is null
       or (j.state in ('done', 'dead', 'unresolved', 'cancelled') and j.fence >= l.at_fence)
    order by l.position limit $3
),
freed as (
    delete from acklast.custody c using over o
    where o.outcome <> 'gone' and c.lane = o.lane and c.key = o.key
),
settled as (
    update acklast.redrive_letters l
    set state = 'settled', settled_at = clock_timestamp(), outcome = o.outcome, new_reason = o.new_reason,
        new_failure = o.new_failure, new_version = o.new_version
    from over o where l.redrive = o.redrive and l.position = o.position
),
sums as (
    select count(*) as over, count(*) filter (where outcome = 'done') as done,
           count(*) filter (where outcome = 'dead' and new_failure = failure) as same
    from over
)
update acklast.redrives r
set done = r.done + s.done, same = r.same + s.same, other = r.other + s.over - s.done - s.same
from sums s where s.over > 0 and r.id = $1
returning {_REDRIVE}
"""  # noqa: S608 - names of this module alone

# The message is kept until the job is over, also in lanes that leave theirs to the broker: what that loses
# before the claim would be queued for ever. Whatever does not pass is refused with a reason that people see.
# Two letters of one key in a batch: the second waits for what becomes of the first.
RELEASE: Final = f"""
with mine as materialized (
    select id, decided, forced from acklast.redrives
    where id = $1 and session = $2 and status = 'running' and step = $3
    for no key update
),
picked as materialized (
    select l.position, l.letter, l.lane, l.key, l.fence, l.failure, l.reason, m.header, m.fingerprint, m.type,
           coalesce(m.run, l.run) as run, m.deadline, m.published_at,
           row_number() over (partition by l.lane, l.key order by l.position) as turn
    from mine
         cross join unnest($6::bigint[], $7::bytea[], $8::bytea[], $9::text[], $10::text[],
                           $11::timestamptz[], $12::timestamptz[])
             as m (position, header, fingerprint, type, run, deadline, published_at)
         join acklast.redrive_letters l on l.redrive = mine.id and l.position = m.position
    where l.state = 'planned'
),
letters as materialized (
    select d.id, d.payload is not null as whole, d.closed_at, d.version
    from picked p join acklast.dead_letters d on d.id = p.letter
    order by d.id for no key update of d skip locked
),
jobs as materialized (
    select j.lane, j.key, j.state, j.fence, j.claims, j.run, j.fingerprint
    from picked p join acklast.jobs j on j.lane = p.lane and j.key = p.key
    where p.turn = 1
    order by j.lane, j.key for no key update of j skip locked
),
judged as materialized (
    select p.position, p.letter, p.lane, p.key, p.header, p.fingerprint, p.type, p.run, p.deadline,
           p.published_at, j.fence as found, mine.decided,
           case
             when p.turn > 1 then 'later'
             when d.id is null and exists (select from acklast.dead_letters h where h.id = p.letter)
                 then 'later'
             when j.key is null
                  and exists (select from acklast.jobs h where h.lane = p.lane and h.key = p.key) then 'later'
             when d.id is null or not d.whole then 'gone'
             when exists (select from acklast.redrive_letters o
                          where o.lane = p.lane and o.key = p.key and o.state = 'released') then 'in_redrive'
             when d.closed_at is not null then 'closed'
             when p.header is null or p.reason = 'unpublishable' then 'malformed'
             when p.fence is null and j.key is not null
                  and not (j.state = 'queued' and j.claims = 0 and j.fingerprint = p.fingerprint)
                 then 'key_taken'
             when p.fence is not null and (j.key is null or j.fence <> p.fence) then 'open'
             when p.fence is not null and j.state = 'unresolved' and not mine.decided then 'unresolved'
             when p.fence is not null and j.state not in ('dead', 'unresolved') then 'open'
             when j.fingerprint <> p.fingerprint then 'key_conflict'
             when exists (select from acklast.cancelled_runs c where c.run = coalesce(j.run, p.run))
                 then 'run_cancelled'
             when (select count(*) from acklast.redrive_letters e
                   where e.lane = p.lane and e.key = p.key and e.released_at is not null) >= $4 then 'capped'
             when mine.forced is null and d.version = $5 and exists (
                     select from acklast.redrive_letters e
                     where e.lane = p.lane and e.key = p.key and e.state = 'settled' and e.outcome = 'dead'
                       and e.failure = p.failure and e.new_failure = p.failure) then 'unchanged'
             else 'go'
           end as answer
    from mine cross join picked p
         left join letters d on d.id = p.letter
         left join jobs j on j.lane = p.lane and j.key = p.key and p.turn = 1
),
queued as (
    update acklast.jobs j
    set state = 'queued', fence = j.fence + 1, attempts = 0, rate_limited = 0, available_at = null,
        reason = null, result = null, ambiguous = j.ambiguous and not g.decided, effect_at = null,
        settled_at = null, recorded_at = clock_timestamp()
    from judged g where g.answer = 'go' and j.lane = g.lane and j.key = g.key and j.fence = g.found
    returning j.lane, j.key, j.fence
),
made as (
    insert into acklast.jobs as j (lane, key, state, fence, published_at, deadline, fingerprint, type, run)
    select lane, key, 'queued', 1, published_at, deadline, fingerprint, type, run
    from judged where answer = 'go' and found is null
    order by lane, key
    on conflict (lane, key) do nothing
    returning j.lane, j.key, j.fence
),
gone as materialized (
    select g.position, g.letter, g.lane, g.key, g.header, j.fence
    from judged g
         join (select * from queued union all select * from made) as j on j.lane = g.lane and j.key = g.key
    where g.answer = 'go'
),
tried as (
    update acklast.redrive_letters l
    set state = 'released', at_fence = o.fence, released_at = clock_timestamp()
    from gone o where l.redrive = $1 and l.position = o.position
),
refused as (
    update acklast.redrive_letters l set state = 'refused', refusal = g.answer
    from judged g
    where g.answer not in ('go', 'later') and l.redrive = $1 and l.position = g.position
    returning l.refusal, l.key
),
closed as (
    update acklast.dead_letters d set closed_at = clock_timestamp(), closed_as = 'redriven'
    from gone o where d.id = o.letter
),
kept as (
    insert into acklast.custody as c (lane, key, header, body)
    select o.lane, o.key, o.header, d.payload
    from gone o join acklast.dead_letters d on d.id = o.letter
    order by o.lane, o.key
    on conflict (lane, key) do update
    set header = excluded.header, body = excluded.body, kept_at = excluded.kept_at, sends = 0, sent_at = null
)
update acklast.redrives r
set released = r.released + s.released, refused = r.refused + s.refused
from (select (select count(*) from gone) as released, (select count(*) from refused) as refused,
             (select count(*) from picked) as asked) as s
where r.id in (select id from mine)
returning {_REDRIVE}, s.asked - s.released - s.refused as later, r.decided,
          (select jsonb_object_agg(k.refusal, k.count)
           from (select refusal, count(*) as count from refused group by refusal) as k) as refusals,
          (select min(key) from refused) as refused_key
"""  # noqa: S608 - names of this module alone

# What a daemon says of a lane is a second old at most. One that has none of its permits may have some soon.
TRAFFIC: Final = """
with ours as (
    select l.redrive
    from acklast.redrives r join acklast.redrive_letters l on l.redrive = r.id and l.state = 'released'
         join acklast.jobs j on j.lane = l.lane and j.key = l.key
    where r.lane = $2 and r.released > r.done + r.same + r.other and j.state = 'queued'
      and j.fence = l.at_fence
)
select coalesce(sum(p.held), 0)::bigint as held,
       coalesce(sum(p.started / nullif(p.window_s, 0)), 0)::float8 as starts_per_s,
       coalesce(bool_or(p.state in ('open', 'slowed', 'no_permit')), false) as open,
       sum(p.rate_per_s)::float8 as most_per_s,
       (select count(*) from ours where redrive = $1) as queued, (select count(*) from ours) as ours
from acklast.lane_reports p join acklast.workers w on w.id = p.session
where p.lane = $2 and w.ended_at is null and w.lease_until > clock_timestamp()
"""

# In one snapshot, so that a failure is among all of them and among the redrives' own, or in neither.
LIVE: Final = """
select t.now,
       (select coalesce(sum(arrived), 0) from acklast.dead_counts
        where lane = $1 and last_at > $2)::bigint as since,
       (select coalesce(sum(arrived), 0) from acklast.dead_counts
        where lane = $1 and last_at <= $3 and last_at > $3 - (t.now - $2::timestamptz))::bigint as before,
       r.failed, r.out
from (select clock_timestamp()) as t (now) cross join (
    select coalesce(sum(same + other), 0)::bigint as failed,
           coalesce(sum(released - done - same - other), 0)::bigint as out
    from acklast.redrives where lane = $1
) as r
"""

KINDS: Final = """
with kind as materialized (
    select outcome, new_failure as failure, new_reason as reason, count(*) as count, min(key) as key,
           count(*) filter (where settled_at > $3) as own
    from acklast.redrive_letters
    where redrive = $1 and state = 'settled' and outcome <> 'done'
    group by outcome, new_failure, new_reason order by count(*) desc limit 10
)
select k.outcome, k.failure, k.reason, k.count, k.key, greatest(0, coalesce((
           select sum(c.arrived) from acklast.dead_counts c
           where c.lane = $2 and c.failure = k.failure and c.last_at > $3), 0) - k.own)::bigint as live
from kind k order by k.count desc
"""

# Only as long as it is running, and in that step: what a person has said meanwhile counts more.
TELL: Final = """
with told as (
    update acklast.redrives r
    set status = $4, step = $5, said = $6::jsonb,
        step_at = case when r.step = $5 then r.step_at else clock_timestamp() end,
        ended_at = case when $4 = 'finished' then clock_timestamp() end
    where r.id = $1 and r.session = $2 and r.status = 'running' and r.step = $3
    returning r.id, r.lane
),
audited as (
    insert into acklast.audit (actor, action, lane, detail)
    select $7, $8, lane, $6::jsonb || jsonb_build_object('redrive', id::text, 'login', $7::text,
                                                         'role', session_user)
    from told where $8::text is not null
)
select id from told
"""
