"""A bounded queue and a thread that empties it: what is exported never makes a job wait.

The SDK's own processor says in the log what it drops and counts it for nobody else, so this is one of ours:
the same variables, the same batches, and every item that is lost is counted.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from acklast.telemetry.exports import FULL, SHUTDOWN, Exports
from acklast.telemetry.variables import Batching, Signal

T = TypeVar("T")

CLOSE_S: Final = 2.0
"""The longest that the end of the process waits for what is left to be sent."""
_LOOK_S: Final = 0.01
REQUEST_BYTES: Final = 3 * 2**20
"""Of a request, unless one item alone is larger: a collector takes four megabytes unless it is told to take
more, and refuses the whole request."""
_LARGE: Final = 16 * 2**10
"""Bytes of an item above which it counts as a large one. No span is: they come by the thousand, and counting
their bytes costs more than putting them in."""
_LARGE_BYTES: Final = 16 * 2**20
"""Of large ones that wait. Who logs a document for every job would have as many in memory as may wait, once
the collector is down."""


async def ended_within(ended: threading.Event, patience_s: float) -> bool:
    """Wait for a thread's end, so long at most.

    It is looked for: the event loop's own threads may all be at work on what a handler has left there.
    """
    until = time.monotonic() + patience_s
    while not ended.is_set() and time.monotonic() < until:  # noqa: ASYNC110 - no event of asyncio's: a thread's
        await asyncio.sleep(_LOOK_S)
    return ended.is_set()


class NotExported(Exception):  # noqa: N818 - named for what is true
    """A batch has not arrived. ``why`` is a short code."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Batches(Generic[T]):
    """Gathers items and hands them on in batches, in a thread of its own."""

    def __init__(
        self,
        signal: Signal,
        send: Callable[[Sequence[T]], None],
        exports: Exports,
        batching: Batching,
        stop: Callable[[], None] = lambda: None,
        size: Callable[[T], int] = lambda _: 0,
    ) -> None:
        """``send`` may take its time, and raises ``NotExported``. ``stop`` ends what it is at. ``size`` is of
        an item, in bytes."""
        self._signal = signal
        self._send = send
        self._stop = stop
        self._size = size
        self._exports = exports
        self._batching = batching
        self._queue: deque[T] = deque()
        self._lock = threading.RLock()
        """Of the count of bytes: handlers' threads log too. What the garbage collector ends may log as well,
        in the midst of this, in this very thread."""
        self._large = 0
        """Bytes of the large ones that wait."""
        self._sending = 0
        self._cut = False
        """The last request had no room for all that waited."""
        self._wake = threading.Event()
        self._closing = False
        self._ended = threading.Event()
        exports.waiting[signal] = self.__len__
        threading.Thread(target=self._run, name=f"acklast-{signal}", daemon=True).start()

    def __len__(self) -> int:
        """Items that wait or are on their way."""
        return len(self._queue) + self._sending

    def full(self) -> bool:
        """Whether there is no room: what comes now is dropped, and need not be made."""
        return self._closing or len(self._queue) >= self._batching.queue or self._large >= _LARGE_BYTES

    def drop(self, count: int) -> None:
        """Count what was not even made, as there is no room, or no time left."""
        self._exports.drop(self._signal, SHUTDOWN if self._closing else FULL, count)

    def put(self, items: Sequence[T]) -> None:
        """Take these in, or drop and count them. From any thread; never waits."""
        if not items:
            return  # of spans that are not sampled there are none
        queue, size = self._queue, self._size
        before = len(queue)
        if before + len(items) > self._batching.queue or self._closing or self._large >= _LARGE_BYTES:
            self.drop(len(items))
            return
        for item in items:
            if size(item) > _LARGE:
                self._weigh(size(item))
        queue.extend(items)
        if before < self._batching.batch <= len(queue) or self._large >= REQUEST_BYTES:
            self._wake.set()

    def _weigh(self, size: int) -> None:
        with self._lock:
            self._large += size

    async def close(self, within_s: float = CLOSE_S) -> None:
        """Send what is left, and count what is not sent within this time. Never raises."""
        self._closing = True
        self._wake.set()
        patience_s = self._exports.patience_s(self._signal, within_s)
        await ended_within(self._ended, patience_s)
        left, self._queue = self._queue, deque()
        if left:
            self._exports.drop(self._signal, SHUTDOWN, len(left))
        with suppress(Exception):
            self._stop()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._batching.delay_s)
            self._wake.clear()
            self._export()
            while (self._cut or len(self._queue) >= self._batching.batch) and not self._closing:
                self._export()
        while self._queue:
            self._export()
        self._ended.set()

    def _next(self) -> list[T]:
        """The oldest, as many as go into one request."""
        queue, batch, size = self._queue, list[T](), 0
        self._cut = False
        while queue and len(batch) < self._batching.batch:
            more = self._size(queue[0])
            if batch and size + more > REQUEST_BYTES:
                self._cut = True
                break
            batch.append(queue.popleft())
            size += more
            if more > _LARGE:
                self._weigh(-more)
        return batch

    def _export(self) -> None:
        batch = self._next()
        if not batch:
            return
        self._sending = len(batch)
        try:
            self._send(batch)
        except NotExported as error:
            self._exports.failed(self._signal, len(batch), error.why)
        except Exception as defect:
            self._exports.failed(self._signal, len(batch), f"defect:{type(defect).__name__}")
        else:
            self._exports.sent(self._signal)
        finally:
            self._sending = 0
