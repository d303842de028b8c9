"""A source that blocks is read in a thread: what is there comes at once, and nobody waits for what is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from acklast.cli.bar import Rate
from acklast.cli.threaded import Threaded


async def test_every_item_comes_in_order() -> None:
    assert [item async for item in Threaded(range(10_000), most=7)] == list(range(10_000))


async def test_what_is_there_does_not_wait_for_what_is_not() -> None:
    more = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        yield 2
        more.wait(30)
        yield 3

    items = aiter(Threaded(source()))
    async with asyncio.timeout(10):
        assert [await anext(items), await anext(items)] == [1, 2]
        more.set()
        assert await anext(items) == 3


async def test_an_error_of_the_source_comes_after_what_it_gave() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("row 2")

    items = aiter(Threaded(source()))
    assert await anext(items) == 1
    with pytest.raises(KeyError, match="row 2"):
        await anext(items)


async def test_no_more_is_read_than_may_wait() -> None:
    read: list[int] = []
    full = threading.Event()

    def source() -> Iterator[int]:
        for number in range(1000):
            read.append(number)
            if number == 10:
                full.set()
            yield number

    items = aiter(Threaded(source(), most=10))
    await anext(items)
    assert await asyncio.to_thread(full.wait, 10)
    assert len(read) <= 22  # those in hand, those that wait, and one that has no room
    await items.aclose()  # type: ignore[attr-defined]


async def test_a_thread_whose_reader_has_left_reads_no_more() -> None:
    ended = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            ended.set()

    items = aiter(Threaded(source(), most=3))
    await anext(items)
    await items.aclose()  # type: ignore[attr-defined]
    assert await asyncio.to_thread(ended.wait, 10)


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate(window_s=10, every_s=1)
    assert rate.at(0, 100.0) is None, "nothing to tell it by"
    assert rate.at(50, 101.0) == 50
    assert rate.at(100, 105.0) == 20
    for second in range(6, 40):
        last = rate.at(100 + 7 * (second - 5), 100.0 + second)
    assert last == 7, "what was before the window counts no more"
