"""Enqueueing: each item has one fate, memory is bounded by the chunk, and a stop leaves nothing half done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence

import pytest

from acklast_topology.chunks import Chunking, Chunks
from acklast_topology.dispatch import Parcel, dispatched
from acklast_topology.enqueue import enqueued
from acklast_topology.items import Enqueued, Entry, Fate, Given, Item, Manifested, NoJob
from acklast_topology.job import Job
from acklast_topology.publish import Publisher
from acklast_topology.sender import Sent, Status


def job(key: str, payload: bytes = b"{}", run: str | None = "r1") -> Job:
    return Job("cleanup", key, payload, run=run)


class Promises:
    """Stands for the ledger: answers by key, keeps what it was promised."""

    def __init__(self, **answers: Manifested) -> None:
        self.answers = answers
        self.calls: list[list[str]] = []
        self.second = asyncio.Event()

    async def promise(self, run: str, jobs: Sequence[Job]) -> Sequence[Manifested]:
        assert {job.run for job in jobs} == {run} == {"r1"}
        self.calls.append([job.key for job in jobs])
        if len(self.calls) == 2:
            self.second.set()
        return [self.answers.get(job.key, Manifested.NEW) for job in jobs]


class Wire:
    """Stands for the publisher: answers by key, keeps what it sent."""

    def __init__(self, **answers: Status) -> None:
        self.answers = answers
        self.sent: list[str] = []

    async def __call__(self, parcels: Iterable[Parcel] | AsyncIterable[Parcel]) -> AsyncIterator[Parcel]:
        async for parcel in _async(parcels):
            if parcel.job is not None:
                self.sent.append(parcel.job.key)
                status = self.answers.get(parcel.job.key, Status.CONFIRMED)
                parcel.sent = Sent(status, "as told")
            yield parcel


async def _async(parcels: Iterable[Parcel] | AsyncIterable[Parcel]) -> AsyncIterator[Parcel]:
    if isinstance(parcels, AsyncIterable):
        async for parcel in parcels:
            yield parcel
    else:
        for parcel in parcels:
            yield parcel


async def told(
    promises: Promises,
    wire: Wire,
    given: Iterable[Given] | AsyncIterable[Given],
    *,
    jobs: int = 100,
    stop: bool = False,
) -> list[Enqueued]:
    chunking = Chunking(jobs=jobs, ends_at_malformed=stop)
    return [item async for item in enqueued(wire, given, "r1", promises, chunking, stop=stop)]


def fates(items: Iterable[Enqueued]) -> dict[str | None, Fate]:
    return {item.job.key if item.job else None: item.fate for item in items}


# --- fates ----------------------------------------------------------------------------------------------


async def test_every_item_has_one_fate() -> None:
    promises = Promises(open=Manifested.OPEN, dup=Manifested.DUPLICATE, con=Manifested.CONFLICT)
    wire = Wire(ret=Status.RETURNED, ref=Status.REFUSED, unk=Status.UNKNOWN)
    keys = ["new", "open", "dup", "con", "ret", "ref", "unk"]
    items = await told(promises, wire, [NoJob("why", "here"), *map(job, keys)])
    assert [(item.number, item.fate) for item in items] == [
        (1, Fate.MALFORMED),
        (2, Fate.ACCEPTED),
        (3, Fate.AGAIN),
        (4, Fate.DUPLICATE),
        (5, Fate.CONFLICT),
        (6, Fate.RETURNED),
        (7, Fate.REFUSED),
        (8, Fate.UNKNOWN),
    ]
    assert (items[0].detail, items[0].source) == ("why", "here")
    assert wire.sent == ["new", "open", "ret", "ref", "unk"]


async def test_items_of_one_key_are_told_apart_and_promised_once() -> None:
    promises = Promises()
    entries = [Entry(job("a", b"1"), "line 2"), Entry(job("a", b"1"), "line 3"), Entry(job("a", b"2"))]
    items = await told(promises, Wire(), entries)
    assert [(item.fate, item.detail, item.source) for item in items] == [
        (Fate.ACCEPTED, "as told", "line 2"),
        (Fate.DUPLICATE, "repeats line 2", "line 3"),
        (Fate.CONFLICT, "line 2 has this key with other content", None),
    ]
    assert promises.calls == [["a"]]


async def test_a_job_without_a_run_gets_the_run_and_one_of_another_is_refused() -> None:
    items = await told(Promises(), Wire(), [job("a", run=None), job("b", run="r2")])
    assert fates(items) == {"a": Fate.ACCEPTED, "b": Fate.MALFORMED}
    assert items[0].job == job("a")
    assert "'r2'" in items[1].detail


async def test_a_job_is_promised_before_it_is_published() -> None:
    wire = Wire()

    class Down(Promises):
        async def promise(self, run: str, jobs: Sequence[Job]) -> Sequence[Manifested]:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await told(Down(), wire, [job("a")])
    assert wire.sent == []


async def test_a_chunk_of_malformed_items_asks_nobody() -> None:
    promises = Promises()
    assert fates(await told(promises, Wire(), [NoJob("a")])) == {None: Fate.MALFORMED}
    assert promises.calls == []


async def test_an_error_of_the_source_comes_after_the_fates_of_what_was_before_it() -> None:
    def source() -> Iterator[Job]:
        yield job("a")
        raise KeyError("row 2")

    items = enqueued(Wire(), source(), "r1", Promises(), Chunking(), stop=False)
    assert fates([await anext(items)]) == {"a": Fate.ACCEPTED}
    with pytest.raises(KeyError, match="row 2"):
        await anext(items)


async def test_the_next_chunk_is_promised_while_one_is_published() -> None:
    promises, published = Promises(), asyncio.Event()

    class Slow(Wire):
        async def __call__(self, parcels: Iterable[Parcel] | AsyncIterable[Parcel]) -> AsyncIterator[Parcel]:
            async for parcel in super().__call__(parcels):
                await published.wait()
                yield parcel

    items = enqueued(Slow(), map(job, "abcdef"), "r1", promises, Chunking(jobs=2), stop=False)
    first = asyncio.ensure_future(anext(items))
    async with asyncio.timeout(30):
        await promises.second.wait()
    assert not first.done()
    published.set()
    assert [await first, *[item async for item in items]]
    assert promises.calls == [["a", "b"], ["c", "d"], ["e", "f"]]


async def test_a_reader_that_leaves_leaves_nothing_running() -> None:
    more = asyncio.Event()

    async def source() -> AsyncIterator[Job]:
        for n in range(10):
            yield job(str(n))
        await more.wait()

    items = enqueued(Wire(), source(), "r1", Promises(), Chunking(jobs=5), stop=False)
    await anext(items)
    before = asyncio.all_tasks()
    assert len(before) > 1
    await items.aclose()  # type: ignore[attr-defined]
    assert {task for task in before if not task.done()} == {asyncio.current_task()}


# --- stopping -------------------------------------------------------------------------------------------


async def test_a_stop_is_heeded_after_the_chunk_in_hand() -> None:
    promises, wire = Promises(b=Manifested.CONFLICT), Wire()
    items = await told(promises, wire, map(job, "abcde"), jobs=2, stop=True)
    assert fates(items) == {"a": Fate.ACCEPTED, "b": Fate.CONFLICT}
    assert promises.calls == [["a", "b"]], "nothing is promised that would stay unpublished"


async def test_a_stop_ends_right_behind_a_malformed_item() -> None:
    promises = Promises()
    items = await told(promises, Wire(), [job("a"), NoJob("bad"), job("c")], stop=True)
    assert fates(items) == {"a": Fate.ACCEPTED, None: Fate.MALFORMED}
    assert promises.calls == [["a"]]


async def test_without_anything_bad_a_stop_is_never_reached() -> None:
    items = await told(Promises(b=Manifested.DUPLICATE), Wire(), map(job, "abcde"), jobs=2, stop=True)
    assert len(items) == 5


def test_a_run_is_checked_before_anything_is_done() -> None:
    publisher = Publisher.connect("amqp://localhost/")
    with pytest.raises(ValueError, match="run ''"):
        publisher.enqueue_many([], run="", manifest=Promises())


# --- chunks ---------------------------------------------------------------------------------------------


async def chunked(given: Iterable[Given] | AsyncIterable[Given], chunking: Chunking) -> list[Sequence[Item]]:
    return [chunk async for chunk in Chunks(given, "r1", chunking).taken()]


async def test_chunks_are_bounded_by_number_and_by_bytes() -> None:
    jobs = [job(str(n), b"x" * 40) for n in range(7)]
    assert [len(chunk) for chunk in await chunked(jobs, Chunking(jobs=3))] == [3, 3, 1]
    assert [len(chunk) for chunk in await chunked(jobs, Chunking(size=100))] == [3, 3, 1]
    large = [NoJob("bad", "row", 60) for _ in range(4)]
    assert [len(chunk) for chunk in await chunked(large, Chunking(size=100))] == [2, 2]


async def test_a_chunk_ends_at_a_malformed_item_where_that_stops() -> None:
    given: list[Given] = [job("a"), NoJob("bad"), job("c")]
    assert [len(c) for c in await chunked(given, Chunking(ends_at_malformed=True))] == [2, 1]
    assert [len(c) for c in await chunked(given, Chunking())] == [3]


async def test_no_more_is_taken_than_the_chunk_in_hand_and_the_next() -> None:
    taken: list[int] = []

    def source() -> Iterator[Job]:
        for n in range(1000):
            taken.append(n)
            yield job(str(n))

    chunks = Chunks(source(), "r1", Chunking(jobs=10)).taken()
    await anext(chunks)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert len(taken) == 21  # one waits for its place
    await chunks.aclose()


async def test_a_source_that_brings_little_is_not_held_up_by_its_chunk() -> None:
    more = asyncio.Event()

    async def source() -> AsyncIterator[Job]:
        yield job("a")
        await more.wait()

    chunks = Chunks(source(), "r1", Chunking(linger_s=0.01)).taken()
    async with asyncio.timeout(30):
        assert len(await anext(chunks)) == 1
    more.set()
    assert [chunk async for chunk in chunks] == []


# --- memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1000, 10_000])
async def test_however_many_there_are_few_are_in_hand(count: int) -> None:
    taken = told_ = most = 0

    def source() -> Iterator[Job]:
        nonlocal taken
        for number in range(count):
            taken += 1
            yield job(str(number))

    async def send_all(parcels: Sequence[Parcel], settle: Callable[[Parcel, Sent], None]) -> None:
        for parcel in parcels:
            asyncio.get_running_loop().call_soon(settle, parcel, Sent(Status.CONFIRMED))

    def dispatch(parcels: Iterable[Parcel] | AsyncIterable[Parcel]) -> AsyncIterator[Parcel]:
        return dispatched(send_all, parcels, 50, 0)

    async for _ in enqueued(dispatch, source(), "r1", Promises(), Chunking(jobs=100), stop=False):
        told_ += 1
        most = max(most, taken - told_)
    assert told_ == count
    # A chunk to be read, one that is promised, one that is published, and those in flight.
    assert most <= 3 * 100 + 50 + 2
