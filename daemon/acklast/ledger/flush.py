"""One flush: a batch becomes the parameters of one statement, and its rows the callers' answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import asyncpg

from acklast.fingerprint import fingerprint
from acklast.ledger.api import Conflict, Decided, Fresh, Held, Letter, NotDue, Recorded, State
from acklast.ledger.batch import Answer, Batch, Item
from acklast.ledger.columns import ACKED, ASKED, DONE, FOLLOW, KEPT, SETTLED, TOLD
from acklast.ledger.connect import Busy, Link, Rows
from acklast.ledger.evidence import REASON_LIMIT, clean, storable_json
from acklast.ledger.notes import ranges
from acklast.ledger.promises import job_fields
from acklast.ledger.refusals import session_lost
from acklast.ledger.statement import REAP, statement
from acklast.ledger.stopping import STOP
from acklast.telemetry.traceparent import trace_id

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


async def flush(link: Link, batch: Batch) -> Mapping[int, Answer]:
    """Do a batch; the answers by ticket, none for an item that must be asked again.

    Raises:
        LedgerUnavailable: it may or may not have been done.
        asyncpg.PostgresError, ValueError: it was refused as a whole; nothing was done.
    """
    careful = must_be_careful(batch)
    try:
        rows = await _send(link, batch, careful=careful)
    except (Busy, asyncpg.UniqueViolationError):
        # Somebody was at the same jobs at the same time. Nothing was done.
        if careful:
            raise
        rows = await _send(link, batch, careful=True)
    if any(row["answer"] == "expired" for row in rows):
        await link.fetch(REAP)
    if stopped := {row["ticket"] for row in rows if row["answer"] == "stopped"}:
        claims = [item.claim for item in batch.items if item.claim is not None and item.ticket in stopped]
        await link.fetch(
            STOP, *map(list, zip(*((one.lane, one.key, one.run) for one in claims), strict=True))
        )
    return answers(batch, rows)


async def _send(link: Link, batch: Batch, *, careful: bool) -> Rows:
    sql, arguments = prepared(batch, careful=careful)
    return await link.fetch(sql, *arguments)


def must_be_careful(batch: Batch) -> bool:
    """Whether an earlier flush has left one of these without an answer, most likely to somebody's lock."""
    return any(item.asked for item in batch.items)


def prepared(batch: Batch, *, careful: bool = False) -> tuple[str, list[Any]]:
    """The statement that does this batch, and its parameters: one array per column."""
    claims, kept, dones, tells = [], [], [], []
    follow: list[tuple[Any, ...]] = []
    frees = False
    for item in batch.items:
        frees = frees or (item.record is not None and item.record.frees)
        if item.claim is not None:
            claims.append(_claim_row(item))
            if item.claim.kept is not None:
                kept.append((item.ticket, *item.place, item.claim.kept.header, item.claim.kept.body))
        elif item.change is not None and item.change.state is State.DONE:
            dones.append(_done_row(item))
            follow += _follow_rows(item)
        else:
            tells.append(_tell_row(item))
    notes = [(lane, key, fence) for (lane, key), fence in batch.notes.fences.items()]
    acked = [(batch.notes.session, low, high) for low, high in ranges(batch.notes.tickets)]
    parts = (
        (ASKED, claims),
        (KEPT, kept),
        (DONE, dones),
        (FOLLOW, follow),
        (TOLD, tells),
        (SETTLED, notes),
        (ACKED, acked),
    )
    names = ("claims", "kept", "dones", "follow", "tells", "notes", "acked")
    has = dict(zip(names, (bool(rows) for _, rows in parts), strict=True))
    columns = [column for rows, values in parts for column in rows.parameters(values)]
    return statement(**has, frees=frees, careful=careful), [
        batch.items[0].session if batch.items else 0,
        *columns,
    ]


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
        claim.priority,
    )


def _done_row(item: Item) -> tuple[Any, ...]:
    record, change = item.record, item.change
    assert record is not None
    assert change is not None
    return (
        item.ticket,
        record.lane,
        record.key,
        record.fence,
        None if change.result is None else storable_json(change.result),
        record.started_at,
        record.effect_at,
    )


def _follow_rows(item: Item) -> Iterator[tuple[Any, ...]]:
    assert item.record is not None
    for number, job in enumerate(item.record.follow_ups):
        yield (item.ticket, number, storable_json(job_fields(job)), job.payload)


def _tell_row(item: Item) -> tuple[Any, ...]:
    record, change = item.record, item.change
    if record is None or change is None:
        # A release: without a fence, and so without an attempt to tell of.
        return (item.ticket, *item.place, None, State.QUEUED.value, None, 1, 0, False, *(None,) * 8)
    return (
        item.ticket,
        record.lane,
        record.key,
        record.fence,
        change.state.value,
        change.available_at,
        change.unspent,
        change.limited,
        change.ambiguous,
        change.reason,
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


def failure_of(letter: Letter) -> str:
    """The fingerprint of what went wrong, whoever made the letter."""
    return letter.failure or fingerprint(letter.reason, letter.detail, letter.key)


def letter_fields(letter: Letter) -> dict[str, Any]:
    """A dead letter's columns but for its payload, ready for JSON."""
    return {
        "run": letter.run,
        "type": letter.type,
        "content_type": letter.content_type,
        "reason": clean(letter.reason, REASON_LIMIT),
        "detail": clean(letter.detail),
        "failure": failure_of(letter),
        "exchange": letter.exchange,
        "routing_key": letter.routing_key,
        "headers": letter.headers,
        "properties": letter.properties,
        "trace_id": trace_id(letter.headers),
    }


def answers(batch: Batch, rows: Sequence[asyncpg.Record]) -> Mapping[int, Answer]:
    """The callers' answers from the statement's rows."""
    (_, alive, _, now, *_, fresh, done), *others = rows
    found: dict[int, Answer] = dict.fromkeys(fresh or (), Fresh(1, 1, 0, ambiguous=False, now=now))
    found.update(dict.fromkeys(done or (), Recorded.RECORDED))
    for ticket, answer, state, at, fence, attempt, rate_limited, ambiguous, *_ in others:
        match answer:
            case "recorded" | "already":
                found[ticket] = Recorded.RECORDED
            case "fresh" | "taken" | "mine":
                found[ticket] = Fresh(fence, attempt, rate_limited, ambiguous, now)
            case "doubtful":
                found[ticket] = Fresh(fence, attempt, rate_limited, ambiguous, now, stopped=True)
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
