"""Enqueueing: rows become jobs, the ledger is promised them in chunks, the broker confirms each.

The promise comes first, so that a job which was published is always one that its run counts. What an earlier
try left half done is found again by the ledger's answer: repeating the whole is safe.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

from acklast.cli.rows import BadRow, Entry, Row
from acklast.custody import kept_raw
from acklast.ledger.api import Ledger, Manifested, ManifestRow
from acklast.template import BadField, KeyTemplate
from acklast_topology.publish import Job, Publisher, Status

CHUNK_JOBS: Final = 5000
CHUNK_BYTES: Final = 16 * 1024 * 1024


class Fate(StrEnum):
    """What became of one row."""

    ACCEPTED = "accepted"
    """Promised now, and confirmed by the broker."""
    AGAIN = "again"
    """Promised before and never started: published again, and confirmed."""
    DUPLICATE = "duplicate"
    """Known already, with the same content: nothing to do."""
    CONFLICT = "conflict"
    """The key is taken by another content; that job is untouched."""
    MALFORMED = "malformed"
    """The row is no job."""
    RETURNED = "returned"
    """The broker has no queue for it."""
    REFUSED = "refused"
    """The broker did not take it; a full queue does that."""
    UNKNOWN = "unknown"
    """No answer, even after repeats: it may be there or not. Repeating is safe."""


FINE: Final = frozenset({Fate.ACCEPTED, Fate.AGAIN, Fate.DUPLICATE})


@dataclass(frozen=True, slots=True)
class Item:
    """One row's fate. ``line`` counts from 1."""

    line: int
    key: str | None
    fate: Fate
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """What all jobs of one enqueue have in common."""

    lane: str
    run: str
    key: KeyTemplate
    type: str | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """A row that is a job, on its way."""

    line: int
    job: Job


Work: TypeAlias = Pending | Item


def work_of(entry: Entry, order: Order) -> Work:
    """A row's job, or why it is none."""
    match entry:
        case BadRow(line, problem):
            return Item(line, None, Fate.MALFORMED, problem)
        case Row(line, fields, payload):
            try:
                key = order.key.render(order.run, fields)
            except BadField as error:
                return Item(line, None, Fate.MALFORMED, str(error))
            return _pending(line, key, payload, order)
        case _:
            assert_never(entry)


def _pending(line: int, key: str, payload: bytes, order: Order) -> Work:
    try:
        job = Job(order.lane, key, payload, type=order.type, run=order.run, deadline=order.deadline)
    except ValueError as error:
        return Item(line, None, Fate.MALFORMED, str(error))
    return Pending(line, job)


def chunks(
    work: Iterable[Work], *, end_at_bad: bool = False, jobs: int = CHUNK_JOBS, size: int = CHUNK_BYTES
) -> Iterator[list[Work]]:
    """Pieces that bound the memory in use, by number and by bytes.

    ``end_at_bad`` ends a piece at each malformed row, so that whoever stops there has done what came before.
    """
    chunk: list[Work] = []
    held = 0
    for piece in work:
        chunk.append(piece)
        held += len(piece.job.payload) if isinstance(piece, Pending) else 0
        bad = end_at_bad and isinstance(piece, Item)
        if bad or len(chunk) >= jobs or held >= size:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


def told_apart(chunk: Sequence[Work]) -> tuple[dict[str, Pending], list[Item]]:
    """The first row of each key, and the fate of every other row of the chunk."""
    first: dict[str, Pending] = {}
    items: list[Item] = []
    for piece in chunk:
        if isinstance(piece, Item):
            items.append(piece)
            continue
        earlier = first.setdefault(piece.job.key, piece)
        if earlier is piece:
            continue
        if earlier.job.fingerprint == piece.job.fingerprint:
            detail = f"repeats line {earlier.line}"
            items.append(Item(piece.line, piece.job.key, Fate.DUPLICATE, detail))
        else:
            detail = f"line {earlier.line} has this key with other content"
            items.append(Item(piece.line, piece.job.key, Fate.CONFLICT, detail))
    return first, items


async def feed(
    ledger: Ledger,
    publisher: Publisher,
    run: str,
    pieces: Iterable[list[Work]],
    stop: Callable[[], bool],
    *,
    keep: bool = False,
) -> AsyncIterator[Item]:
    """Promise and publish chunk by chunk; yields every row's fate. ``stop`` is asked after each chunk.

    ``keep``: the ledger is to keep the messages, as the lane's custody says.
    """
    for chunk in pieces:
        async for item in _feed_chunk(ledger, publisher, run, chunk, keep):
            yield item
        if stop():
            return


async def _feed_chunk(
    ledger: Ledger, publisher: Publisher, run: str, chunk: Sequence[Work], keep: bool
) -> AsyncIterator[Item]:
    pending, items = told_apart(chunk)
    for item in items:
        yield item
    if not pending:
        return
    answers = await ledger.manifest(run, [_promise(piece.job, keep) for piece in pending.values()])
    known = dict(zip(pending, answers, strict=True))
    for key, answer in known.items():
        if (fate := _settled_already(answer)) is not None:
            detail = "its key is taken by a job with other content" if fate is Fate.CONFLICT else ""
            yield Item(pending[key].line, key, fate, detail)
    to_send = [pending[key].job for key, answer in known.items() if _settled_already(answer) is None]
    async for result in publisher.publish_many(to_send):
        key = result.job.key
        yield Item(pending[key].line, key, fate_of(result.status, known[key]), result.detail)


def _promise(job: Job, keep: bool) -> ManifestRow:
    kept = kept_raw(job.raw(), job.key) if keep else None
    return ManifestRow(job.lane, job.key, job.fingerprint, job.type, job.deadline, kept)


def _settled_already(answer: Manifested) -> Fate | None:
    match answer:
        case Manifested.NEW | Manifested.OPEN:
            return None
        case Manifested.DUPLICATE:
            return Fate.DUPLICATE
        case Manifested.CONFLICT:
            return Fate.CONFLICT
        case _:
            assert_never(answer)


def fate_of(status: Status, answer: Manifested) -> Fate:
    """The fate of a row whose job was published."""
    match status:
        case Status.CONFIRMED:
            return Fate.AGAIN if answer is Manifested.OPEN else Fate.ACCEPTED
        case Status.RETURNED:
            return Fate.RETURNED
        case Status.REFUSED:
            return Fate.REFUSED
        case Status.UNKNOWN:
            return Fate.UNKNOWN
        case _:
            assert_never(status)
