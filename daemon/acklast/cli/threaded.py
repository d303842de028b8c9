"""A source that blocks, read in a thread: the event loop goes on while nothing comes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST: Final = 2000
"""So many items wait at most."""


class Threaded(Generic[T]):
    """The items of a blocking source, for ``async for``, once.

    The thread is left behind where nobody reads on: one that waits for its input cannot be ended.
    """

    def __init__(self, items: Iterable[T], most: int = MOST) -> None:
        self._items = items
        self._most = most
        self._waiting: list[T] = []
        self._change = threading.Condition()
        self._ended = self._left = False
        self._error: BaseException | None = None

    async def __aiter__(self) -> AsyncIterator[T]:
        self._loop, self._some = asyncio.get_running_loop(), asyncio.Event()
        threading.Thread(target=self._read, name="input", daemon=True).start()
        try:
            while True:
                await self._some.wait()
                with self._change:
                    self._some.clear()
                    items, self._waiting = self._waiting, []
                    ended = self._ended
                    self._change.notify()
                for item in items:
                    yield item
                if ended:
                    break
            if self._error is not None:
                raise self._error
        finally:
            with self._change:
                self._left = True
                self._change.notify()

    def _read(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    return
        except BaseException as error:  # raised again where the items are read
            self._error = error
        with self._change:
            self._ended = True
            self._wake()

    def _put(self, item: T) -> bool:
        with self._change:
            while len(self._waiting) >= self._most and not self._left:
                self._change.wait()
            self._waiting.append(item)
            if len(self._waiting) == 1:
                self._wake()
            return not self._left

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody reads on
            self._loop.call_soon_threadsafe(self._some.set)
