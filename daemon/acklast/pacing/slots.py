"""Slots: the semaphore of a lane. First come, first served; closing it sends the waiting ones home."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Draining(Exception):  # noqa: N818 - not an error: nothing more is to be started
    """Nothing more starts here; the delivery goes back to the broker."""


class Queue:
    """Waiters in order of arrival. A waiter that is cancelled leaves without being counted."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.closed = False

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        while self._waiters and self._waiters[0].done():
            self._waiters.popleft()
        return bool(self._waiters)

    def join(self) -> asyncio.Future[None]:
        """Stand in line; the future ends when it is this waiter's turn.

        Raises:
            Draining: the queue is closed.
        """
        if self.closed:
            raise Draining
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def admit(self) -> bool:
        """Let the first one in; False where nobody waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False

    def close(self) -> None:
        """Send everybody home, now and from now on."""
        self.closed = True
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(Draining())


class Slots:
    """At most ``count`` holders at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.held = 0
        self.started = 0
        """Calls of the downstream so far, for whoever measures the pace."""
        self.on_free: Callable[[], None] = _nobody_waits
        """Called when a slot came free that nobody in line wants, and when the lane is closed."""
        self._queue = Queue()

    @property
    def closed(self) -> bool:
        return self._queue.closed

    @property
    def free(self) -> bool:
        """Whether ``take`` would not wait: a slot is free, or the lane is closed."""
        return self.held < self.count or self._queue.closed

    async def take(self) -> None:
        """Wait for a slot.

        Raises:
            Draining: the lane is closed.
        """
        if self._queue.closed:
            raise Draining
        if self.held < self.count:
            self.held += 1
            return
        waiter = self._queue.join()
        try:
            await waiter
        except asyncio.CancelledError:
            # Admitted and cancelled in the same turn: the slot was already counted as ours.
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give()
            raise

    def give(self) -> None:
        """Return a slot: it passes to the next waiter, if any, and if there are not fewer slots by now."""
        if self.held > self.count or not self._queue.admit():
            self.held -= 1
            self.on_free()

    def resize(self, count: int) -> None:
        """From now on ``count`` at most; who is in above that stays until it leaves by itself."""
        self.count = count
        while self.held < self.count and self._queue.admit():
            self.held += 1
        self.on_free()

    def close(self) -> None:
        self._queue.close()
        self.on_free()


def _nobody_waits() -> None:
    """For slots without an intake."""
