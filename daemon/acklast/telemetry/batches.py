"""A bounded queue and a thread that empties it: what is exported never makes a job wait.

The SDK's own processor says in the log what it drops and counts it for nobody else, so this is one of ours:
the same variables, the same batches, and every item that is lost is counted.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from acklast.telemetry.exports import FULL, SHUTDOWN, Exports
from acklast.telemetry.variables import Batching, Signal

T = TypeVar("T")

CLOSE_S: Final = 2.0
"""The longest that the end of the process waits for what is left to be sent."""


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
    ) -> None:
        """``send`` may take its time, and raises ``NotExported``. ``stop`` ends what it is at."""
        self._signal = signal
        self._send = send
        self._stop = stop
        self._exports = exports
        self._batching = batching
        self._queue: deque[T] = deque()
        self._sending = 0
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
        return len(self._queue) >= self._batching.queue

    def drop(self, count: int) -> None:
        """Count what was not even made, as there is no room."""
        self._exports.drop(self._signal, FULL, count)

    def put(self, items: Sequence[T]) -> None:
        """Take these in, or drop and count them. From any thread; never waits."""
        queue = self._queue
        if len(queue) + len(items) > self._batching.queue or self._closing:
            self.drop(len(items))
            return
        before = len(queue)
        queue.extend(items)
        if before < self._batching.batch <= len(queue):
            self._wake.set()

    async def close(self, within_s: float = CLOSE_S) -> None:
        """Send what is left, and count what is not sent within this time. Never raises."""
        self._closing = True
        self._wake.set()
        patience_s = self._exports.patience_s(self._signal, within_s)
        if not await asyncio.to_thread(self._ended.wait, patience_s):
            left, self._queue = self._queue, deque()
            self._exports.drop(self._signal, SHUTDOWN, len(left))
        self._stop()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._batching.delay_s)
            self._wake.clear()
            self._export()
            while len(self._queue) >= self._batching.batch and not self._closing:
                self._export()
        while self._queue:
            self._export()
        self._ended.set()

    def _export(self) -> None:
        queue = self._queue
        batch = [queue.popleft() for _ in range(min(len(queue), self._batching.batch))]
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
