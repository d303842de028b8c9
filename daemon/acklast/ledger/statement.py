"""The statement of a flush: the claims of the next jobs and the verdicts of the last, in one commit.

It is put together of the parts that a batch needs: a part that has nothing to do would still cost its start.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final


@dataclass(frozen=True, slots=True)
class Rows:
    """Parameters that arrive as one array per column, and are rows again in the statement."""

    alias: str
    columns: tuple[tuple[str, str], ...]

    def unnest(self, first: int) -> str:
        """The rows, with parameters from ``$first`` on."""
        names = ", ".join(name for name, _ in self.columns)
        arrays = (f"${n}::{kind}[]" for n, (_, kind) in enumerate(self.columns, first))
        return f"unnest({', '.join(arrays)}) as {self.alias} ({names})"


_JOB: Final = (("lane", "text"), ("key", "text"))
ASKED: Final = Rows(
    "a",
    (
        ("ticket", "bigint"),
        *_JOB,
        ("fingerprint", "bytea"),
        ("type", "text"),
        ("run", "text"),
        ("published_at", "timestamptz"),
        ("deadline", "timestamptz"),
        ("not_before", "timestamptz"),
    ),
)
DONE: Final = Rows(
    "r",
    (
        ("ticket", "bigint"),
        *_JOB,
        ("fence", "bigint"),
        ("result", "text"),
        ("started_at", "timestamptz"),
        ("effect_at", "timestamptz"),
    ),
)
TOLD: Final = Rows(
    "r",
    (
        ("ticket", "bigint"),
        *_JOB,
        ("fence", "bigint"),
        ("new_state", "text"),
        ("available_at", "timestamptz"),
        ("unspent", "int"),
        ("limited", "int"),
        ("ambiguous", "boolean"),
        ("reason", "text"),
        ("started_at", "timestamptz"),
        ("effect_at", "timestamptz"),
        ("outcome", "text"),
        ("outcome_reason", "text"),
        ("detail", "text"),
        ("letter", "text"),
        ("payload", "bytea"),
    ),
)
SETTLED: Final = Rows("s", (*_JOB, ("fence", "bigint")))

# Why the parts are shaped like this:
#
# - One statement has one snapshot, so no job may be in it twice; the batcher sees to that.
# - It never waits for a row. A row that another transaction holds (another daemon's flush, a person's psql)
#   is skipped and asked for again in the next flush: one locked row must not hold up 500 jobs, and who
#   never waits cannot deadlock.
# - The inserts come first, in key order, because ON CONFLICT does wait for a concurrent insert of the same
#   key. At that moment this statement holds nothing that others wait for, except inserted rows of its own,
#   taken in the same order. The other parts read `inserted` ({after}) to make sure that it comes first.
# - A row that another daemon inserted after this snapshot is neither inserted nor found: no answer, asked
#   again.
# - An update that follows its own row lock sees the newest version of the row, as the lock did
#   (EvalPlanQual). So the answer is computed once, from the locked row.
# - A session is dead when its ended_at is set. One whose lease has run out and that nobody has ended yet is
#   'expired': REAP ends it, and the claim is asked again. Ending and renewing lock the same row, so a
#   renewal that commits late and a takeover cannot both believe that they were in time.
# - A claim that is repeated (its flush was lost on the way back) finds its own ticket and is answered as
#   before.
_HEAD: Final = """
with moment as materialized (
    select clock_timestamp() as now
),
me as materialized (
    select m.now, coalesce(w.worker, '') as worker, coalesce(w.version, '') as version,
           w.ended_at is null and w.lease_until > m.now as alive
    from moment m left join acklast.workers w on w.id = $1
)"""

# Nearly every claim is an insert: the others are looked for only where some row was there already.
_CLAIMS: Final = """,
asked as materialized (
    select * from {asked}
),
inserted as (
    insert into acklast.jobs as j (lane, key, state, fence, attempts, claims, session, ticket, claimed_at,
                                   available_at, enqueued_at, published_at, deadline, fingerprint, type, run)
    select a.lane, a.key, case when d.due then 'claimed' else 'waiting' end, d.due::int, d.due::int,
           d.due::int, case when d.due then $1 end, a.ticket, case when d.due then me.now end,
           case when not d.due then a.not_before end,
           me.now, a.published_at, a.deadline, a.fingerprint, a.type, a.run
    from me cross join asked a cross join lateral (select coalesce(a.not_before <= me.now, true)) as d (due)
    where me.alive
    order by a.lane collate "C", a.key collate "C"
    on conflict (lane, key) do nothing
    returning j.ticket, j.state, j.available_at
),
found as materialized (
    select a.*, j.state, j.fence, j.attempts, j.rate_limited, j.ambiguous, j.session, j.ticket as holder,
           j.claimed_at, j.fingerprint as stored,
           case j.state when 'waiting' then j.available_at else a.not_before end as due_at
    from asked a join acklast.jobs j on j.lane = a.lane and j.key = a.key
    where (select count(*) from inserted) < (select count(*) from asked)
    for no key update of j skip locked
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
                when f.due_at > me.now then 'not_due'
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
        run = coalesce(j.run, f.run)
    from judged f
    where f.answer in ('fresh', 'taken') and j.lane = f.lane and j.key = f.key
),
crashed as (
    insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, started_at, ended_at, worker,
                                  version)
    select lane, key, fence, attempts, 'crashed', 'session_ended', claimed_at, coalesce(ended_at, now),
           coalesce(worker, ''), coalesce(version, '')
    from judged where answer = 'taken'
    on conflict do nothing
)"""

# A completion is what nearly every record is, and needs a third of the columns of the others.
_DONES: Final = """,
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
                                      first_failure_at, last_failure_at, worker, version)
    select o.lane, o.key, o.fence, l.run, l.type, l.content_type, l.reason, l.detail, l.failure, l.exchange,
           l.routing_key, l.headers, l.properties, o.payload, l.trace_id, o.attempts,
           coalesce((select min(t.ended_at) from acklast.attempts t
                     where t.lane = o.lane and t.key = o.key
                       and t.outcome in ('transient', 'permanent', 'unknown', 'crashed')), me.now),
           me.now, me.worker, me.version
    from me cross join owned o cross join lateral jsonb_to_record(o.letter::jsonb) as l (
        run text, type text, content_type text, reason text, detail text, failure text, exchange text,
        routing_key text, headers jsonb, properties jsonb, trace_id text)
    where o.hits and o.letter is not null
)"""

_NOTES: Final = """,
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

_ANSWERS: Final = """
select 0::bigint as ticket, case when alive then 'alive' else 'ended' end as answer, null::text as state,
       now as at, 0::bigint as fence, 0 as attempts, 0 as rate_limited, false as ambiguous
from me"""

_CLAIM_ANSWERS: Final = """
union all
select ticket, case state when 'claimed' then 'fresh' else 'not_due' end, null, available_at, 1, 1, 0, false
from inserted
union all
select ticket, answer, state, case answer when 'held' then lease_until else due_at end,
       fence + (answer in ('fresh', 'taken'))::int, attempts + (answer in ('fresh', 'taken'))::int,
       rate_limited, ambiguous or answer = 'taken'
from judged"""

_TELL_ANSWERS: Final = """
union all
select ticket, case when hits then 'recorded' when current = fence then 'already' else 'lost' end,
       null, null, 0, 0, 0, false
from {owned}"""

# Only asked where a record has had no answer: its row is locked, or gone.
_GONE: Final = """
union all
select r.ticket, 'lost', null, null, 0, 0, 0, false
from {told} where not exists (select from acklast.jobs j where j.lane = r.lane and j.key = r.key)"""


@cache
def statement(*, claims: bool, dones: bool, tells: bool, notes: bool, again: bool) -> str:
    """The flush of a batch that has these. ``$1`` is the session; the rows' columns follow in this order."""
    after = "(select count(*) from inserted) >= 0" if claims else "true"
    parts, answers, first = [_HEAD], [_ANSWERS], 2
    if claims:
        parts.append(_CLAIMS.format(asked=ASKED.unnest(first)))
        answers.append(_CLAIM_ANSWERS)
        first += len(ASKED.columns)
    for present, rows, part, owned in ((dones, DONE, _DONES, "finished"), (tells, TOLD, _TELLS, "owned")):
        if present:
            told = rows.unnest(first)
            parts.append(part.format(done=told, told=told, after=after))
            answers.append(_TELL_ANSWERS.format(owned=owned))
            if again:
                answers.append(_GONE.format(told=told))
            first += len(rows.columns)
    if notes:
        parts.append(_NOTES.format(settled=SETTLED.unnest(first), after=after))
    return "".join((*parts, *answers))


# Ends the sessions whose lease has run out. It skips a row that is being renewed at this very moment.
REAP: Final = """
update acklast.workers set ended_at = clock_timestamp()
where id in (select id from acklast.workers where ended_at is null and lease_until <= clock_timestamp()
             for no key update skip locked)
"""
