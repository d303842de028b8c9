"""Many at once: results as they come, in constant memory, errors after what was done before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

import pytest

from acklast_topology.streaming import Flow


def as_they_come(
    work: Callable[[int], Awaitable[int]], items: Iterable[int] | AsyncIterable[int], limit: int
) -> AsyncIterator[int]:
    """A flow in which each item is a task of its own."""
    tasks = set[asyncio.Task[None]]()

    async def begin(batch: Sequence[int], flow: Flow[int, int]) -> None:
        async def one(item: int) -> None:
            flow.done(await work(item))

        for item in batch:
            tasks.add(task := asyncio.create_task(one(item)))
            task.add_done_callback(tasks.discard)

    return Flow(begin, limit).results(items)


class Gate:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.open: dict[int, asyncio.Event] = {}

    async def __call__(self, item: int) -> int:
        self.started.append(item)
        await self.open.setdefault(item, asyncio.Event()).wait()
        return item

    def let(self, *items: int) -> None:
        for item in items:
            self.open.setdefault(item, asyncio.Event()).set()


async def double(item: int) -> int:
    return item * 2


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_every_item_has_its_result() -> None:
    assert sorted([result async for result in as_they_come(double, range(1000), 7)]) == list(
        range(0, 2000, 2)
    )


async def test_an_async_source() -> None:
    async def source() -> AsyncIterator[int]:
        for item in range(10):
            await asyncio.sleep(0)
            yield item

    assert sorted([result async for result in as_they_come(double, source(), 3)]) == list(range(0, 20, 2))


async def test_nothing_to_do() -> None:
    assert [result async for result in as_they_come(double, [], 3)] == []


async def test_results_come_in_the_order_of_their_ends() -> None:
    gate = Gate()
    results = as_they_come(gate, range(3), 3)
    gate.let(2)
    assert await anext(results) == 2
    gate.let(0)
    assert await anext(results) == 0
    gate.let(1)
    assert await anext(results) == 1


async def test_a_result_does_not_wait_for_the_next_item() -> None:
    stalled = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        yield 1
        await stalled.wait()

    results = as_they_come(double, source(), 3)
    async with asyncio.timeout(30):
        assert await anext(results) == 2
    stalled.set()
    assert [result async for result in results] == []


async def test_no_more_is_taken_than_the_limit() -> None:
    gate = Gate()
    taken: list[int] = []

    def source() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = as_they_come(gate, source(), 4)
    gate.let(*range(100))
    assert await anext(results) in range(4)
    await settle()
    # Four results wait to be taken and one was: nothing more is taken from the source until they are.
    assert len(taken) == 5
    assert len([result async for result in results]) == 99


async def test_an_error_of_the_source_comes_after_what_was_taken_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("row 3")

    results = as_they_come(double, source(), 8)
    assert {await anext(results), await anext(results)} == {2, 4}
    with pytest.raises(KeyError, match="row 3"):
        await anext(results)


async def test_a_reader_that_leaves_ends_the_flow() -> None:
    async def begin(batch: Sequence[int], flow: Flow[int, int]) -> None:
        flow.done(batch[0])

    results = Flow(begin, 4).results(range(100))
    await anext(results)
    before = asyncio.all_tasks()
    assert len(before) == 3
    await results.aclose()  # type: ignore[attr-defined]
    assert {task for task in before if not task.done()} == {asyncio.current_task()}


async def test_what_is_ready_begins_together() -> None:
    batches: list[Sequence[int]] = []

    async def begin(batch: Sequence[int], flow: Flow[int, int]) -> None:
        batches.append(batch)
        for item in batch:
            flow.done(item)

    assert [result async for result in Flow(begin, 25).results(range(60))] == list(range(60))
    assert [len(batch) for batch in batches] == [25, 25, 10]


async def test_an_item_that_is_begun_again_counts_until_it_is_done() -> None:
    seen: list[int] = []

    async def begin(batch: Sequence[int], flow: Flow[int, int]) -> None:
        for item in batch:
            seen.append(item)
            if seen.count(item) < 3:
                flow.again(item, 0)
            else:
                flow.done(item)

    assert sorted([result async for result in Flow(begin, 2).results(range(3))]) == [0, 1, 2]
    assert len(seen) == 9


async def test_a_defect_where_items_begin_is_raised_and_hangs_nobody() -> None:
    async def begin(_: Sequence[int], __: Flow[int, int]) -> None:
        raise KeyError("defect")

    with pytest.raises(KeyError, match="defect"):
        async for _ in Flow(begin, 2).results(range(3)):
            pass
