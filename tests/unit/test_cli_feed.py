"""Enqueueing: each row has one fate, memory is bounded by the chunk, and a stop leaves no row half done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from acklast.cli.feed import Fate, Item, Order, Pending, Work, chunks, feed, told_apart, work_of
from acklast.cli.rows import BadRow, Row
from acklast.ledger.api import Ledger, Manifested, ManifestRow
from acklast.template import KeyTemplate
from acklast_topology import Job, Publisher, Result, Status

DEADLINE = datetime(2040, 1, 1, tzinfo=UTC)
ORDER = Order("cleanup", "r1", KeyTemplate.parse("{run}:{id}"), "cleanup.v1", DEADLINE)


def row(line: int, id_: object, payload: bytes = b"{}") -> Row:
    return Row(line, {"id": id_}, payload)


def pending(line: int, key: str, payload: bytes = b"{}") -> Pending:
    return Pending(line, Job("cleanup", key, payload, run="r1"))


class Manifest:
    """Stands for the ledger: answers by key, keeps what it was promised."""

    def __init__(self, **answers: Manifested) -> None:
        self.answers = answers
        self.promised: list[ManifestRow] = []

    async def manifest(self, run: str, rows: Sequence[ManifestRow]) -> Sequence[Manifested]:
        assert run == "r1"
        self.promised += rows
        return [self.answers.get(row.key, Manifested.NEW) for row in rows]


class Wire:
    """Stands for the publisher: answers by key, keeps what it sent."""

    def __init__(self, **answers: Status) -> None:
        self.answers = answers
        self.sent: list[str] = []

    async def publish_many(self, jobs: Iterable[Job]) -> AsyncIterator[Result]:
        for job in jobs:
            self.sent.append(job.key)
            yield Result(job, self.answers.get(job.key, Status.CONFIRMED), "as told")


async def fed(
    ledger: Manifest, wire: Wire, pieces: Iterable[list[Work]], stop_after: int = 10**9
) -> list[Item]:
    items: list[Item] = []
    source = feed(
        cast("Ledger", ledger), cast("Publisher", wire), "r1", pieces, lambda: len(items) >= stop_after
    )
    async for item in source:
        items.append(item)  # noqa: PERF401 - the stop is asked while the list grows
    return items


# --- from rows to jobs -------------------------------------------------------------------------------


def test_a_row_becomes_a_job_of_the_order() -> None:
    work = work_of(row(2, 7, b'{"id":7}'), ORDER)
    assert isinstance(work, Pending)
    assert work.job == Job("cleanup", "r1:7", b'{"id":7}', type="cleanup.v1", run="r1", deadline=DEADLINE)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (BadRow(3, "is not UTF-8"), "is not UTF-8"),
        (row(3, ""), "field 'id' of the key is empty"),
        (Row(3, {}, b"{}"), "field 'id' of the key is missing"),
        (row(3, "x" * 300), "at most 255 bytes"),
        (row(3, "a\nb"), "printable"),
        (row(3, "\ud800"), "UTF-8"),
    ],
)
def test_a_row_that_is_no_job_is_malformed(entry: Row | BadRow, told: str) -> None:
    work = work_of(entry, ORDER)
    assert isinstance(work, Item)
    assert (work.line, work.fate) == (3, Fate.MALFORMED)
    assert told in work.detail


# --- chunks ------------------------------------------------------------------------------------------


def test_chunks_are_bounded_by_number_and_by_bytes() -> None:
    work: list[Work] = [pending(n, str(n), b"x" * 40) for n in range(1, 8)]
    assert [len(chunk) for chunk in chunks(work, jobs=3)] == [3, 3, 1]
    assert [len(chunk) for chunk in chunks(work, size=100)] == [3, 3, 1]


def test_a_chunk_ends_at_a_malformed_row_where_that_stops() -> None:
    bad = Item(2, None, Fate.MALFORMED)
    work: list[Work] = [pending(1, "a"), bad, pending(3, "c")]
    assert [len(chunk) for chunk in chunks(work, end_at_bad=True)] == [2, 1]
    assert [len(chunk) for chunk in chunks(work)] == [3]


def test_chunks_take_no_more_rows_than_were_asked_for() -> None:
    taken = []

    def source() -> Iterable[Work]:
        for n in range(100):
            taken.append(n)
            yield pending(n, str(n))

    next(chunks(source(), jobs=10))
    assert len(taken) == 10


def test_rows_of_one_chunk_with_one_key_are_told_apart() -> None:
    first, items = told_apart([pending(2, "a", b"1"), pending(3, "a", b"1"), pending(4, "a", b"2")])
    assert [piece.line for piece in first.values()] == [2]
    assert items == [
        Item(3, "a", Fate.DUPLICATE, "repeats line 2"),
        Item(4, "a", Fate.CONFLICT, "line 2 has this key with other content"),
    ]


# --- feeding -----------------------------------------------------------------------------------------


async def test_every_row_has_one_fate() -> None:
    ledger = Manifest(open=Manifested.OPEN, dup=Manifested.DUPLICATE, con=Manifested.CONFLICT)
    wire = Wire(ret=Status.RETURNED, ref=Status.REFUSED, unk=Status.UNKNOWN)
    keys = ["new", "open", "dup", "con", "ret", "ref", "unk"]
    bad = Item(1, None, Fate.MALFORMED, "why")
    items = await fed(ledger, wire, [[bad, *(pending(n, key) for n, key in enumerate(keys, 2))]])
    assert {(item.line, item.key): item.fate for item in items} == {
        (1, None): Fate.MALFORMED,
        (2, "new"): Fate.ACCEPTED,
        (3, "open"): Fate.AGAIN,
        (4, "dup"): Fate.DUPLICATE,
        (5, "con"): Fate.CONFLICT,
        (6, "ret"): Fate.RETURNED,
        (7, "ref"): Fate.REFUSED,
        (8, "unk"): Fate.UNKNOWN,
    }
    assert wire.sent == ["new", "open", "ret", "ref", "unk"]


async def test_a_job_is_promised_before_it_is_published() -> None:
    wire = Wire()

    class Down(Manifest):
        async def manifest(self, run: str, rows: Sequence[ManifestRow]) -> Sequence[Manifested]:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await fed(Down(), wire, [[pending(1, "a")]])
    assert wire.sent == []


async def test_the_promise_is_what_the_daemon_will_compare_with() -> None:
    ledger = Manifest()
    work = work_of(row(2, 7), ORDER)
    await fed(ledger, Wire(), [[work]])
    assert isinstance(work, Pending)
    assert ledger.promised == [ManifestRow("cleanup", "r1:7", work.job.fingerprint, "cleanup.v1", DEADLINE)]


async def test_a_stop_is_heeded_after_the_chunk_in_hand() -> None:
    wire = Wire()
    pieces: list[list[Work]] = [[pending(1, "a"), pending(2, "b")], [pending(3, "c")]]
    items = await fed(Manifest(), wire, pieces, stop_after=1)
    assert [item.key for item in items] == ["a", "b"]
    assert wire.sent == ["a", "b"]


async def test_a_chunk_of_malformed_rows_asks_nobody() -> None:
    nobody: Any = None
    pieces: list[list[Work]] = [[Item(1, None, Fate.MALFORMED)]]
    assert [item.line async for item in feed(nobody, nobody, "r1", pieces, bool)] == [1]
