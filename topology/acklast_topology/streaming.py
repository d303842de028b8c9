"""Many at once, in constant memory, each result as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def as_they_come(
    work: Callable[[T], Awaitable[R]], items: Iterable[T] | AsyncIterable[T], limit: int
) -> AsyncIterator[R]:
    """Do ``work`` on each item, at most ``limit`` at once; yield results in the order of their ends.

    An item counts against ``limit`` until its result was taken, so a slow reader slows the source down.
    """
    slots = asyncio.Semaphore(limit)
    done: asyncio.Queue[asyncio.Task[R] | None] = asyncio.Queue()
    under_way: set[asyncio.Task[R]] = set()
    feeder = asyncio.create_task(_feed(work, items, slots, done, under_way))
    # The end mark comes when the source has ended and, by _feed's last wait, everything under way too.
    feeder.add_done_callback(lambda _: done.put_nowait(None))
    try:
        while (task := await done.get()) is not None:
            slots.release()
            yield task.result()
        await feeder  # raises what the source raised
    finally:
        await _end(feeder, *under_way)


async def _feed(
    work: Callable[[T], Awaitable[R]],
    items: Iterable[T] | AsyncIterable[T],
    slots: asyncio.Semaphore,
    done: asyncio.Queue[asyncio.Task[R] | None],
    under_way: set[asyncio.Task[R]],
) -> None:
    def ended(task: asyncio.Task[R]) -> None:
        under_way.discard(task)
        done.put_nowait(task)

    try:
        source = aiter(_async(items))
        while True:
            await slots.acquire()  # before the next item is taken: what is taken is under way
            try:
                item = await anext(source)
            except StopAsyncIteration:
                return
            task = asyncio.ensure_future(work(item))
            under_way.add(task)
            task.add_done_callback(ended)
    finally:
        await asyncio.gather(*under_way, return_exceptions=True)


async def _async(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def _end(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
