"""Pieces of a source, bounded by number and by bytes, read while the piece before is at work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, assert_never

from acklast_topology.items import Enqueued, Entry, Given, Item, NoJob, item_of
from acklast_topology.job import Job

CHUNK_JOBS: Final = 5000
CHUNK_BYTES: Final = 16 * 1024 * 1024
LINGER_S: Final = 0.5
"""So long a chunk waits to be full: a source that brings little is not held up by it."""
_TURN: Final = 64


@dataclass(frozen=True, slots=True)
class Chunking:
    """How much is promised at once: it bounds the memory in use."""

    jobs: int = CHUNK_JOBS
    size: int = CHUNK_BYTES
    linger_s: float = LINGER_S
    ends_at_malformed: bool = False
    """So that who stops there has done what came before it, and nothing after it."""


class Chunks:
    """Takes from a source while the last chunk is promised, and no more than one chunk ahead."""

    def __init__(self, given: Iterable[Given] | AsyncIterable[Given], run: str, chunking: Chunking) -> None:
        self._given = given
        self._run = run
        self._chunking = chunking
        self._items: list[Item] = []
        self._size = 0
        self._full = False
        self._some, self._whole, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def taken(self) -> AsyncGenerator[list[Item], None]:
        """Pieces that bound the memory in use. What the source raises comes after what it gave."""
        reader = asyncio.create_task(self._read())
        reader.add_done_callback(lambda _: self._whole.set())
        reader.add_done_callback(lambda _: self._some.set())
        try:
            while True:
                await self._some.wait()
                if not reader.done():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._chunking.linger_s):
                            await self._whole.wait()
                if chunk := self._take(ended=reader.done()):
                    yield chunk
                elif reader.done():
                    await reader  # raises what the source raised
                    return
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await reader

    def _take(self, *, ended: bool) -> list[Item]:
        chunk, self._items, self._size, self._full = self._items, [], 0, False
        if not ended:
            self._some.clear()
            self._whole.clear()
        self._room.set()
        return chunk

    async def _read(self) -> None:
        number = 0
        async for one in _each(self._given):
            number += 1
            while self._full:
                self._room.clear()
                await self._room.wait()
            self._add(item_of(number, one, self._run), _size(one))
            if number % _TURN == 0:
                await asyncio.sleep(0)

    def _add(self, item: Item, size: int) -> None:
        self._items.append(item)
        self._size += size
        bad = self._chunking.ends_at_malformed and isinstance(item, Enqueued)
        self._full = bad or len(self._items) >= self._chunking.jobs or self._size >= self._chunking.size
        self._some.set()
        if self._full:
            self._whole.set()


def _size(given: Given) -> int:
    match given:
        case NoJob(size=size):
            return size
        case Entry(job):
            return len(job.payload)
        case Job():
            return len(given.payload)
        case _:
            assert_never(given)


async def _each(given: Iterable[Given] | AsyncIterable[Given]) -> AsyncIterator[Given]:
    if isinstance(given, AsyncIterable):
        async for one in given:
            yield one
    else:
        for one in given:
            yield one
