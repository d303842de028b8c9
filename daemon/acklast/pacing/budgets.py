"""Budgets: permits that come back one period after the provider must have counted the call.

A budget of 100 per 60 s has 100 permits. A start takes one, and it comes back 60 s after the call's response,
on our monotonic clock. The provider counted the call no later than it answered, so no window of 60 s
at its meter can hold more than 100 calls, whatever the jitter.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from acklast.config.quota import Quota
from acklast.pacing.slots import Draining, Queue


class Budget:
    """The permits of one downstream quota that this process may use."""

    def __init__(self, name: str, quota: Quota, *, clock: Callable[[], float] | None = None) -> None:
        self.name = name
        self.quota = quota
        self._clock = clock
        self._free = quota.count
        self._cooling: deque[float] = deque()
        self._paused_until = 0.0
        self._queue = Queue()
        self._timer: asyncio.TimerHandle | None = None

    def _now(self) -> float:
        return self._clock() if self._clock else asyncio.get_running_loop().time()

    @property
    def free(self) -> int:
        """Permits that could be taken now, were the budget not paused."""
        self._cool()
        return self._free

    @property
    def paused_s(self) -> float:
        """Seconds until the pause ends; 0 where it is not paused."""
        return max(0.0, self._paused_until - self._now())

    async def take(self) -> None:
        """Wait for a permit.

        Raises:
            Draining: the budget is closed.
        """
        if self._queue.closed:
            raise Draining
        self._cool()
        if self._free > 0 and not self._queue and not self.paused_s:
            self._free -= 1
            return
        waiter = self._queue.join()
        self._pump()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.unspent()
            raise

    def unspent(self) -> None:
        """Return a permit with which nothing was called."""
        self._free += 1
        self._pump()

    def spent(self) -> None:
        """Return a permit whose call has been answered (or given up): it is free again in one period."""
        self._cooling.append(self._now() + self.quota.period_s)
        self._pump()

    def pause(self, seconds: float) -> None:
        """Start nothing for ``seconds`` from now; a shorter pause never shortens a longer one."""
        self._paused_until = max(self._paused_until, self._now() + seconds)
        self._pump()

    def close(self) -> None:
        self._queue.close()
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _cool(self) -> None:
        now = self._now()
        while self._cooling and self._cooling[0] <= now:
            self._cooling.popleft()
            self._free += 1

    def _pump(self) -> None:
        """Let in whom the permits allow, and come back when the next one is due."""
        self._cool()
        while self._free > 0 and not self.paused_s and self._queue.admit():
            self._free -= 1
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._queue and (self._free or self._cooling):
            # Where every permit is with a call, its return pumps: a timer could only look in vain.
            self._timer = asyncio.get_running_loop().call_later(self._next_s(), self._pump)

    def _next_s(self) -> float:
        cooled_s = 0.0 if self._free else self._cooling[0] - self._now()
        # Never 0: a loop that fires early by its clock's resolution would otherwise spin.
        return max(self.paused_s, cooled_s, 0.001)
