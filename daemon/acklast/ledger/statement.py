"""The statement of a flush: the claims of the next jobs and the verdicts of the last, in one commit.

It is put together of the parts that a batch needs: a part that has nothing to do would still cost its start.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from acklast.ledger.columns import ACKED, ASKED, DONE, FOLLOW, KEPT, SETTLED, TOLD
from acklast.ledger.promises import INTO, RECORD, VALUES

# Why the parts are shaped like this:
#
# - One statement has one snapshot, so no job may be in it twice; the batcher sees to that.
# - It comes in two manners. Hopeful: it writes at once, as if nobody else touched these jobs, which is what
#   nearly every flush finds. Careful: it locks what it writes first and skips what others hold; a third more
#   CPU in Postgres. What the hopeful manner leaves without an answer is asked again, carefully.
# - Neither waits for a row. The hopeful one gives up as a whole after _PATIENCE, having done nothing, and
#   the flush is repeated carefully: a row that another transaction holds (another daemon's flush, a person's
#   psql) is skipped and asked for again in the next flush. One locked row must not hold up 500 jobs, and who
#   never waits for long cannot deadlock.
# - The careful inserts come first, in key order, because ON CONFLICT does wait for a concurrent insert of the
#   same key. At that moment this statement holds nothing that others wait for, except inserted rows of its
#   own, taken in the same order. The other parts read `inserted` ({after}) to make sure that it comes first.
# - The hopeful inserts look first and then insert without ON CONFLICT, whose speculative insertions cost a
#   fifth of the whole flush. Where somebody inserts the same key in between, the flush is refused
#   (unique_violation) and repeated carefully.
# - A row that another daemon inserted after this snapshot is neither inserted nor found: no answer, asked
#   again.
# - An update that follows its own row lock sees the newest version of the row, as the lock did
#   (EvalPlanQual). So the answer is computed once, from the locked row. An update without such a lock checks
#   its conditions again on the newest version, and answers for the rows that it has written: a job's fence
#   and state together tell whether it has moved since the snapshot.
# - A session is dead when its ended_at is set. One whose lease has run out and that nobody has ended yet is
#   'expired': REAP ends it, and the claim is asked again. Ending and renewing lock the same row, so a
#   renewal that commits late and a takeover cannot both believe that they were in time.
# - Nothing of a cancelled run starts. What is new is entered as cancelled; what is there and cannot have had
#   its effect is answered 'stopped', and STOP cancels it before it is asked again. What may have had its
#   effect is claimed all the same, as 'doubtful': its worker finds out, or keeps the evidence.
# - A claim that is repeated (its flush was lost on the way back) finds its own ticket and is answered as
#   before.
_HEAD: Final = """
with moment as materialized (
    select clock_timestamp() as now{patience}
),
me as materialized (
    select m.now, coalesce(w.worker, '') as worker, coalesce(w.version, '') as version,
           w.ended_at is null and w.lease_until > m.now as alive
    from moment m left join acklast.workers w on w.id = $1
)"""

_PATIENCE: Final = ", set_config('lock_timeout', '50ms', true)"
"""How long a hopeful flush may wait for others, in all but name: a commit of theirs, not a person."""

# Nearly every claim is an insert: the others are looked for only where some row was there already.
_CLAIMS: Final = """,
inserted as (
    insert into acklast.jobs as j (lane, key, state, fence, attempts, claims, session, ticket, claimed_at,
                                   available_at, enqueued_at, published_at, deadline, fingerprint, type, run,
                                   reason, recorded_at, priority)
    select a.lane, a.key, case when c.run is not null then 'cancelled' when d.due then 'claimed'
                               else 'waiting' end, d.due::int, d.due::int,
           d.due::int, case when d.due then $1 end, a.ticket, case when d.due then me.now end,
           case when not d.due then a.not_before end,
           me.now, a.published_at, a.deadline, a.fingerprint, a.type, a.run,
           case when c.run is not null then 'run_cancelled' end, case when c.run is not null then me.now end,
           a.priority
    from me cross join {asked} left join acklast.cancelled_runs c on c.run = a.run
         cross join lateral (select coalesce(a.not_before <= me.now, true) and c.run is null) as d (due)
    where me.alive{manner}
    returning j.ticket, j.state, j.available_at
),
found as materialized (
    select a.*, j.state, j.fence, j.attempts, j.rate_limited, j.ambiguous, j.session, j.ticket as holder,
           j.claimed_at, j.fingerprint as stored,
           case j.state when 'waiting' then j.available_at else a.not_before end as due_at,
           c.run is not null as stopped
    from {asked} join acklast.jobs j on j.lane = a.lane and j.key = a.key
         left join acklast.cancelled_runs c on c.run = coalesce(j.run, a.run)
    where (select count(*) from inserted) < cardinality({tickets}::bigint[]){hold}
),
judged as materialized (
    select f.*, me.now, w.ended_at, w.lease_until, w.worker, w.version,
           case when me.alive is not true then 'ended'
                when f.stored <> f.fingerprint then 'conflict'
                when f.state in ('done', 'dead', 'unresolved', 'cancelled') then 'decided'
                when f.state = 'claimed' and f.session = $1 and f.holder = f.ticket then 'mine'
                when f.state = 'claimed' and w.ended_at is null and w.lease_until > me.now then 'held'
                when f.state = 'claimed' and w.id is not null and w.ended_at is null then 'expired'
                when f.state = 'claimed' then 'taken'
                when f.stopped and not f.ambiguous then 'stopped'
                when f.due_at > me.now and not f.stopped then 'not_due'
                else 'fresh' end as answer
    from me cross join found f left join acklast.workers w on f.state = 'claimed' and w.id = f.session
),
claimed as (
    update acklast.jobs j
    set state = 'claimed', fence = j.fence + 1, attempts = j.attempts + 1, claims = j.claims + 1,
        ambiguous = j.ambiguous or f.answer = 'taken', session = $1, ticket = f.ticket,
        claimed_at = f.now, available_at = null, effect_at = null, recorded_at = null, settled_at = null,
        published_at = coalesce(j.published_at, f.published_at), deadline = coalesce(j.deadline, f.deadline),
        fingerprint = coalesce(j.fingerprint, f.fingerprint), type = coalesce(j.type, f.type),
        run = coalesce(j.run, f.run), priority = coalesce(j.priority, f.priority)
    from judged f
    where f.answer in ('fresh', 'taken') and j.lane = f.lane and j.key = f.key and j.fence = f.fence
      and j.state = f.state
    returning f.*
),
crashed as (
    insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, started_at, ended_at, worker,
                                  version)
    select lane, key, fence, attempts, 'crashed', 'session_ended', claimed_at, coalesce(ended_at, now),
           coalesce(worker, ''), coalesce(version, '')
    from claimed where answer = 'taken'
    on conflict do nothing
)"""

# Only what is open is kept: of a job that is decided, or another's, this message is no carrier.
_KEPT: Final = """,
kept as (
    insert into acklast.custody (lane, key, header, body)
    select k.lane, k.key, k.header, k.body from {kept}
    where k.ticket in (select ticket from inserted where state <> 'cancelled'
                       union all select ticket from claimed)
    order by k.lane collate "C", k.key collate "C"
    on conflict (lane, key) do nothing
)"""

_HOLD: Final = """
    for no key update of j skip locked"""
_INSERT: Final = """
      and not exists (select from acklast.jobs k where k.lane = a.lane and k.key = a.key)"""
_INSERT_CAREFULLY: Final = """
    order by a.lane collate "C", a.key collate "C"
    on conflict (lane, key) do nothing"""

# A completion is what nearly every record is, and needs a third of the columns of the others.
_DONES: Final = """,
done as (
    update acklast.jobs j
    set state = 'done', reason = null, result = r.result::jsonb, effect_at = r.effect_at, recorded_at = me.now
    from me cross join {done}
    where {after} and j.lane = r.lane and j.key = r.key and j.fence = r.fence and j.state = 'claimed'
    returning r.ticket, j.lane, j.key, j.fence, j.claims, j.attempts, r.started_at, r.effect_at
),
done_later as (
    insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, started_at, ended_at, worker,
                                  version)
    select d.lane, d.key, d.fence, d.attempts, 'done', '', d.started_at, d.effect_at, me.worker, me.version
    from me cross join done d where d.claims > 1
    on conflict do nothing
)"""

_DONES_CAREFULLY: Final = """,
finished as materialized (
    select r.*, j.claims, j.attempts, j.fence as current, j.state = 'claimed' and j.fence = r.fence as hits
    from {done} join acklast.jobs j on j.lane = r.lane and j.key = r.key
    where {after}
    for no key update of j skip locked
),
done as (
    update acklast.jobs j
    set state = 'done', reason = null, result = f.result::jsonb, effect_at = f.effect_at, recorded_at = me.now
    from me cross join finished f
    where f.hits and j.lane = f.lane and j.key = f.key
),
done_later as (
    insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, started_at, ended_at, worker,
                                  version)
    select f.lane, f.key, f.fence, f.attempts, 'done', '', f.started_at, f.effect_at, me.worker, me.version
    from me cross join finished f where f.hits and f.claims > 1
    on conflict do nothing
)"""

_FREED: Final = """,
freed as (
    delete from acklast.custody c using {ended} e where {ends} and c.lane = e.lane and c.key = e.key
)"""

# Follow-up jobs are promised in the commit of the completion that asks for them.
_FOLLOWED: Final = """,
followed as (
    insert into {into}
    select {values}
    from {follow} join {ended} e on e.ticket = p.ticket and {ends} cross join lateral {record}
    order by p.ticket desc, p.number
)"""

# A row without a fence is a release: it gives back a claim that nobody knows of, by its ticket.
_TELLS: Final = """,
owned as materialized (
    select r.*, j.attempts, j.fence as current,
           j.state = 'claimed' and case when r.fence is null then j.session = $1 and j.ticket = r.ticket
                                        else j.fence = r.fence end as hits
    from {told} join acklast.jobs j on j.lane = r.lane and j.key = r.key
    where {after}
    for no key update of j skip locked
),
recorded as (
    update acklast.jobs j
    set state = o.new_state, available_at = o.available_at, attempts = j.attempts - o.unspent,
        claims = j.claims - (o.fence is null)::int, rate_limited = j.rate_limited + o.limited,
        ambiguous = j.ambiguous or o.ambiguous, reason = o.reason, result = null,
        effect_at = o.effect_at, recorded_at = case when o.fence is not null then me.now end
    from me cross join owned o
    where o.hits and j.lane = o.lane and j.key = o.key
),
tried as (
    insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, detail, started_at, ended_at,
                                  worker, version)
    select o.lane, o.key, o.fence, o.attempts, o.outcome, o.outcome_reason, o.detail, o.started_at,
           o.effect_at, me.worker, me.version
    from me cross join owned o where o.hits and o.fence is not null
    on conflict do nothing
),
buried as (
    insert into acklast.dead_letters (lane, key, fence, run, type, content_type, reason, detail, failure,
                                      exchange, routing_key, headers, properties, payload, trace_id, attempts,
                                      first_failure_at, last_failure_at, worker, version, held)
    select o.lane, o.key, o.fence, l.run, l.type, l.content_type, l.reason, l.detail, l.failure, l.exchange,
           l.routing_key, l.headers, l.properties, o.payload, l.trace_id, o.attempts,
           coalesce((select min(t.ended_at) from acklast.attempts t
                     where t.lane = o.lane and t.key = o.key
                       and t.outcome in ('transient', 'permanent', 'unknown', 'crashed')), me.now),
           me.now, me.worker, me.version, o.new_state = 'unresolved'
    from me cross join owned o cross join lateral jsonb_to_record(o.letter::jsonb) as l (
        run text, type text, content_type text, reason text, detail text, failure text, exchange text,
        routing_key text, headers jsonb, properties jsonb, trace_id text)
    where o.hits and o.letter is not null
)"""

_FREED_BY_TELLS: Final = """,
freed_too as (
    delete from acklast.custody c using owned o
    where o.hits and o.letter is not null and c.lane = o.lane and c.key = o.key
)"""

_NOTES: Final = """,
noted as (
    update acklast.jobs j set settled_at = me.now
    from me cross join {settled}
    where {after} and j.lane = s.lane and j.key = s.key and j.fence = s.fence and j.state <> 'claimed'
      and j.settled_at is null
)"""

_NOTES_CAREFULLY: Final = """,
settled as (
    select s.* from {settled} join acklast.jobs j on j.lane = s.lane and j.key = s.key
    where {after}
    for no key update of j skip locked
),
noted as (
    update acklast.jobs j set settled_at = me.now
    from me cross join settled s
    where j.lane = s.lane and j.key = s.key and j.fence = s.fence and j.state <> 'claimed'
      and j.settled_at is null
)"""

# By the tickets of one session's claims: one row for all of them. Twice is as good as once.
_ACKED: Final = """,
acked as (
    insert into acklast.settlements (session, at, tickets)
    select min(t.session), min(me.now), range_agg(int8range(t.low, t.high, '[]')) from me cross join {acked}
)"""

# The first row tells of the session, and of what went as it nearly always does: tickets alone, since the
# rest of those answers is known. The others have a row each.
_ANSWERS: Final = """
select 0::bigint as ticket, case when alive then 'alive' else 'ended' end as answer, null::text as state,
       now as at, 0::bigint as fence, 0 as attempts, 0 as rate_limited, false as ambiguous,
       {fresh} as fresh, {done} as done
from me"""
_NONE: Final = "null::bigint[]"
_FRESH: Final = "array(select ticket from inserted where state = 'claimed')"
_DONE_NOW: Final = "array(select ticket from done)"

_CLAIM_ANSWERS: Final = """
union all
select ticket, case state when 'waiting' then 'not_due' else 'decided' end, state, available_at, 0, 0, 0,
       false, null, null
from inserted where state <> 'claimed'
union all
select ticket, case when stopped then 'doubtful' else answer end, null, null, fence + 1, attempts + 1,
       rate_limited, ambiguous or answer = 'taken', null, null
from claimed
union all
select ticket, case when answer = 'mine' and stopped and ambiguous then 'doubtful' else answer end, state,
       case answer when 'held' then lease_until else due_at end, fence, attempts, rate_limited, ambiguous,
       null, null
from judged where answer not in ('fresh', 'taken')"""

_TELL_ANSWERS: Final = """
union all
select ticket, case when hits then 'recorded' when current = fence then 'already' else 'lost' end,
       null, null, 0, 0, 0, false, null, null
from {owned}"""

# Only asked where a record has had no answer: its row is locked, or gone.
_GONE: Final = """
union all
select r.ticket, 'lost', null, null, 0, 0, 0, false, null, null
from {told} where not exists (select from acklast.jobs j where j.lane = r.lane and j.key = r.key)"""


@cache
def statement(
    *,
    claims: bool,
    kept: bool,
    dones: bool,
    follow: bool,
    tells: bool,
    notes: bool,
    acked: bool,
    frees: bool,
    careful: bool,
) -> str:
    """The flush of a batch that has these. ``$1`` is the session; the rows' columns follow in this order.

    ``frees``: what ends here may be in the ledger's custody.
    """
    after = "(select count(*) from inserted) >= 0" if claims else "true"
    parts = [_HEAD.format(patience="" if careful else _PATIENCE)]
    fresh, done = _FRESH if claims else _NONE, _DONE_NOW if dones and not careful else _NONE
    answers, first = [_ANSWERS.format(fresh=fresh, done=done)], 2
    if claims:
        manner, hold = (_INSERT_CAREFULLY, _HOLD) if careful else (_INSERT, "")
        asked = ASKED.unnest(first)
        parts.append(_CLAIMS.format(asked=asked, tickets=f"${first}", manner=manner, hold=hold))
        answers.append(_CLAIM_ANSWERS)
        first += len(ASKED.columns)
    if kept:
        parts.append(_KEPT.format(kept=KEPT.unnest(first)))
        first += len(KEPT.columns)
    if dones:
        told = DONE.unnest(first)
        parts.append((_DONES_CAREFULLY if careful else _DONES).format(done=told, after=after))
        ended, ends = ("finished", "e.hits") if careful else ("done", "true")
        if frees:
            parts.append(_FREED.format(ended=ended, ends=ends))
        if careful:
            answers += _TELL_ANSWERS.format(owned="finished"), _GONE.format(told=told)
        first += len(DONE.columns)
        if follow:
            promised = {"into": INTO, "values": VALUES, "record": RECORD}
            parts.append(_FOLLOWED.format(follow=FOLLOW.unnest(first), ended=ended, ends=ends, **promised))
            first += len(FOLLOW.columns)
    if tells:
        told = TOLD.unnest(first)
        parts.append(_TELLS.format(told=told, after=after))
        if frees:
            parts.append(_FREED_BY_TELLS)
        answers.append(_TELL_ANSWERS.format(owned="owned"))
        if careful:
            answers.append(_GONE.format(told=told))
        first += len(TOLD.columns)
    if notes:
        noted = _NOTES_CAREFULLY if careful else _NOTES
        parts.append(noted.format(settled=SETTLED.unnest(first), after=after))
        first += len(SETTLED.columns)
    if acked:
        parts.append(_ACKED.format(acked=ACKED.unnest(first)))
    return "".join((*parts, *answers))


# Ends the sessions whose lease has run out. It skips a row that is being renewed at this very moment.
REAP: Final = """
update acklast.workers set ended_at = clock_timestamp()
where id in (select id from acklast.workers where ended_at is null and lease_until <= clock_timestamp()
             for no key update skip locked)
"""
