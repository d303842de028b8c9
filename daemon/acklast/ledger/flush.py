"""One flush: the verdicts of the last jobs and the claims of the next, in one statement and one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg

from acklast.ledger.api import Conflict, Decided, Fresh, Held, Letter, NotDue, Recorded, State
from acklast.ledger.batch import Answer, Batch, Item
from acklast.ledger.changes import Change
from acklast.ledger.connect import Link
from acklast.ledger.evidence import REASON_LIMIT, clean, failure_fingerprint, storable_json, trace_id
from acklast.ledger.refusals import session_lost

SETTINGS: Final = {
    # The plan must not depend on how large the tables were when it was made: every row is found by its
    # primary key. Without these an empty ledger's plan (read the whole table) would live on as the table
    # grows.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
"""What the connection that flushes insists on."""

# Why it is shaped like this:
#
# - One statement has one snapshot, so no job may be in it twice; the batcher sees to that.
# - It never waits for a row. A row that another transaction holds (another daemon's flush, a person's psql)
#   is skipped and asked for again in the next flush: one locked row must not hold up 500 jobs, and who
#   never waits cannot deadlock.
# - The inserts come first, in key order, because ON CONFLICT does wait for a concurrent insert of the same
#   key. At that moment this statement holds nothing that others wait for, except inserted rows of its own,
#   taken in the same order. `found`, `owned` and `settled` read `inserted` to make sure that it comes
#   first.
# - A row that another daemon inserted after this snapshot is neither inserted nor found: no answer, asked
#   again.
# - An update that follows its own row lock sees the newest version of the row, as the lock did
#   (EvalPlanQual). So the answer is computed once, from the locked row.
# - A session is dead when its ended_at is set. One whose lease has run out and that nobody has ended yet is
#   'expired': _REAP ends it, and the claim is asked again. Ending and renewing lock the same row, so a
#   renewal that commits late and a takeover cannot both believe that they were in time.
# - A claim that is repeated (its flush was lost on the way back) finds its own ticket and is answered as
#   before.
_FLUSH: Final = """
with moment as materialized (
    select clock_timestamp() as now
),
me as materialized (
    select m.now, w.worker, w.version, w.ended_at is null and w.lease_until > m.now as alive
    from moment m left join acklast.workers w on w.id = $1
),
asked as materialized (
    select * from unnest($2::bigint[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::text[],
                         $8::timestamptz[], $9::timestamptz[], $10::timestamptz[])
        as a (ticket, lane, key, fingerprint, type, run, published_at, deadline, not_before)
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
    where (select count(*) from inserted) >= 0
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
),
told as materialized (
    select * from unnest($11::bigint[], $12::text[], $13::text[], $14::bigint[], $15::text[],
                         $16::timestamptz[], $17::int[], $18::int[], $19::boolean[], $20::text[], $21::text[],
                         $22::timestamptz[], $23::timestamptz[], $24::text[], $25::text[], $26::text[],
                         $27::text[], $28::bytea[])
        as r (ticket, lane, key, fence, new_state, available_at, unspent, limited, ambiguous, reason, result,
              started_at, effect_at, outcome, outcome_reason, detail, letter, payload)
),
owned as materialized (
    select r.*, j.claims, j.attempts, j.fence as current, me.now,
           coalesce(me.worker, '') as worker, coalesce(me.version, '') as version,
           j.state = 'claimed' and case when r.fence is null then j.session = $1 and j.ticket = r.ticket
                                        else j.fence = r.fence end as hits
    from me cross join told r join acklast.jobs j on j.lane = r.lane and j.key = r.key
    where (select count(*) from inserted) >= 0
    for no key update of j skip locked
),
recorded as (
    update acklast.jobs j
    set state = o.new_state, available_at = o.available_at, attempts = j.attempts - o.unspent,
        claims = j.claims - (o.fence is null)::int, rate_limited = j.rate_limited + o.limited,
        ambiguous = j.ambiguous or o.ambiguous, reason = o.reason, result = o.result::jsonb,
        effect_at = o.effect_at, recorded_at = case when o.fence is not null then o.now end
    from owned o
    where o.hits and j.lane = o.lane and j.key = o.key
),
tried as (
    insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, detail, started_at, ended_at,
                                  worker, version)
    select lane, key, fence, attempts, outcome, outcome_reason, detail, started_at, effect_at, worker, version
    from owned
    where hits and fence is not null and (new_state <> 'done' or claims > 1)
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
                       and t.outcome in ('transient', 'permanent', 'unknown', 'crashed')), o.now),
           o.now, o.worker, o.version
    from owned o cross join lateral jsonb_to_record(o.letter::jsonb) as l (
        run text, type text, content_type text, reason text, detail text, failure text, exchange text,
        routing_key text, headers jsonb, properties jsonb, trace_id text)
    where o.hits and o.letter is not null
),
settled as (
    select s.lane, s.key, s.fence, me.now
    from me cross join unnest($29::text[], $30::text[], $31::bigint[]) as s (lane, key, fence)
    join acklast.jobs j on j.lane = s.lane and j.key = s.key
    where (select count(*) from inserted) >= 0
    for no key update of j skip locked
),
noted as (
    update acklast.jobs j set settled_at = s.now
    from settled s
    where j.lane = s.lane and j.key = s.key and j.fence = s.fence and j.state <> 'claimed'
      and j.settled_at is null
)
select 0::bigint as ticket, case when alive then 'alive' else 'ended' end as answer, null::text as state,
       now as at, 0::bigint as fence, 0 as attempts, 0 as rate_limited, false as ambiguous
from me
union all
select ticket, case state when 'claimed' then 'fresh' else 'not_due' end, null, available_at, 1, 1, 0, false
from inserted
union all
select ticket, answer, state, case answer when 'held' then lease_until else due_at end,
       fence + (answer in ('fresh', 'taken'))::int, attempts + (answer in ('fresh', 'taken'))::int,
       rate_limited, ambiguous or answer = 'taken'
from judged
union all
select ticket, case when hits then 'recorded' when current = fence then 'already' else 'lost' end,
       null, null, 0, 0, 0, false
from owned
union all
select r.ticket, 'lost', null, null, 0, 0, 0, false
from told r
where $32 and not exists (select from acklast.jobs j where j.lane = r.lane and j.key = r.key)
"""

# Ends the sessions whose lease has run out. It skips a row that is being renewed at this very moment.
_REAP: Final = """
update acklast.workers set ended_at = clock_timestamp()
where id in (select id from acklast.workers where ended_at is null and lease_until <= clock_timestamp()
             for no key update skip locked)
"""


async def flush(link: Link, batch: Batch) -> Mapping[int, Answer]:
    """Do a batch; the answers by ticket, none for an item that must be asked again.

    Raises:
        LedgerUnavailable: it may or may not have been done.
        asyncpg.PostgresError, ValueError: it was refused as a whole; nothing was done.
    """
    rows = await link.fetch(_FLUSH, *arguments(batch))
    if any(row["answer"] == "expired" for row in rows):
        await link.fetch(_REAP)
    return answers(batch, rows)


def arguments(batch: Batch) -> list[Any]:
    """The statement's parameters: one array per column."""
    claims = [item for item in batch.items if item.claim is not None]
    tells = [item for item in batch.items if item.claim is None]
    session = batch.items[0].session if batch.items else 0
    return [
        session,
        *_columns([_claim_row(item) for item in claims], 9),
        *_columns([_tell_row(item) for item in tells], 18),
        *_columns([(lane, key, fence) for (lane, key), fence in batch.notes.items()], 3),
        any(item.asked for item in tells),
    ]


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _claim_row(item: Item) -> tuple[Any, ...]:
    claim = item.claim
    assert claim is not None
    return (
        item.ticket,
        claim.lane,
        claim.key,
        claim.fingerprint,
        claim.type,
        claim.run,
        claim.published_at,
        claim.deadline,
        claim.not_before,
    )


_RELEASE = Change(State.QUEUED, unspent=1)


def _tell_row(item: Item) -> tuple[Any, ...]:
    lane, key = item.place
    record, change = item.record, item.change or _RELEASE
    if (
        record is None
    ):  # gives a claim back that nobody knows of: guarded by the ticket, since its fence is unknown
        return (item.ticket, lane, key, None, change.state, None, 1, 0, False, *(None,) * 9)
    return (
        item.ticket,
        lane,
        key,
        record.fence,
        change.state.value,
        change.available_at,
        change.unspent,
        change.limited,
        change.ambiguous,
        change.reason,
        None if change.result is None else storable_json(change.result),
        record.started_at,
        record.effect_at,
        record.outcome,
        clean(record.reason, REASON_LIMIT),
        clean(record.detail),
        *_letter_columns(change.letter),
    )


def _letter_columns(letter: Letter | None) -> tuple[str | None, bytes | None]:
    if letter is None:
        return (None, None)
    return (storable_json(letter_fields(letter)), letter.payload)


def letter_fields(letter: Letter) -> dict[str, Any]:
    """A dead letter's columns but for its payload, ready for JSON."""
    return {
        "run": letter.run,
        "type": letter.type,
        "content_type": letter.content_type,
        "reason": clean(letter.reason, REASON_LIMIT),
        "detail": clean(letter.detail),
        "failure": failure_fingerprint(letter.reason, letter.detail),
        "exchange": letter.exchange,
        "routing_key": letter.routing_key,
        "headers": letter.headers,
        "properties": letter.properties,
        "trace_id": trace_id(letter.headers),
    }


def answers(batch: Batch, rows: Sequence[asyncpg.Record]) -> Mapping[int, Answer]:
    """The callers' answers from the statement's rows."""
    (_, alive, _, now, *_), *others = rows
    found: dict[int, Answer] = {}
    for ticket, answer, state, at, fence, attempt, rate_limited, ambiguous in others:
        match answer:
            case "fresh" | "taken" | "mine":
                found[ticket] = Fresh(fence, attempt, rate_limited, ambiguous, now)
            case "recorded" | "already":
                found[ticket] = Recorded.RECORDED
            case "lost":
                found[ticket] = Recorded.CLAIM_LOST
            case "decided":
                found[ticket] = Decided(State(state), now, fence)
            case "not_due":
                found[ticket] = NotDue(at, now)
            case "held":
                found[ticket] = Held(at, now)
            case "conflict":
                found[ticket] = Conflict(now)
    if alive != "alive":
        lost = [item.ticket for item in batch.items if item.claim is not None]
        found.update(dict.fromkeys(lost, session_lost()))
    return found
