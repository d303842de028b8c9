"""Many at once, in constant memory, begun in batches, each result as it comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_TURN: Final = 64
"""So many items are taken before whatever else is to be done has its turn."""


class Flow(Generic[T, R]):
    """Items on their way: taken from a source, begun in batches, done in any order.

    ``begin`` is called with what is ready, one call at a time. It, or what it sets going, calls ``done`` or
    ``again`` once for each item.
    """

    def __init__(self, begin: Begin[T, R], limit: int) -> None:
        self._begin = begin
        self._free = limit
        self._under_way = 0
        self._ready: list[T] = []
        self._results: deque[R] = deque()
        self._room, self._wake, self._told = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._later: set[asyncio.TimerHandle] = set()

    def done(self, result: R) -> None:
        """One item has its result."""
        self._under_way -= 1
        self._results.append(result)
        self._told.set()

    def again(self, item: T, after_s: float) -> None:
        """Begin an item once more, in a while."""

        def ready() -> None:
            self._later.discard(timer)
            self._ready.append(item)
            self._wake.set()

        timer = asyncio.get_running_loop().call_later(after_s, ready)
        self._later.add(timer)

    async def results(self, items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[R]:
        """Every item's result, in the order of their ends.

        At most ``limit`` items are taken whose result was not yet taken from here, so a slow reader slows
        the source down. An exception of the source is raised after the results of what was taken before it.
        """
        feeder = asyncio.create_task(self._feed(items))
        starter = asyncio.create_task(self._start())
        feeder.add_done_callback(lambda _: self._told.set())
        starter.add_done_callback(lambda _: self._told.set())
        try:
            while self._under_way or self._results or not feeder.done():
                if starter.done():
                    starter.result()  # raises: it goes on for ever
                if not self._results:
                    await self._told.wait()
                    self._told.clear()
                while self._results:
                    self._free += 1
                    self._room.set()
                    yield self._results.popleft()
            await feeder  # raises what the source raised
        finally:
            for timer in self._later:
                timer.cancel()
            await _end(feeder, starter)

    async def _feed(self, items: Iterable[T] | AsyncIterable[T]) -> None:
        source = aiter(items if isinstance(items, AsyncIterable) else _async(items))
        taken = 0
        while True:
            while self._free < 1:  # before the next item is taken: what is taken is under way
                self._room.clear()
                await self._room.wait()
            try:
                item = await anext(source)
            except StopAsyncIteration:
                return
            self._free -= 1
            self._under_way += 1
            self._ready.append(item)
            self._wake.set()
            taken += 1
            if taken % _TURN == 0:
                await asyncio.sleep(0)

    async def _start(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._ready = self._ready, []
            await self._begin(batch, self)


Begin: TypeAlias = Callable[[Sequence[T], Flow[T, R]], Awaitable[None]]


async def _async(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
