"""Smoothing: starts come in small bursts instead of all that the permits allow at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiolimiter import AsyncLimiter

from acklast.apart import apart


class Smooth:
    """Feeds a budget with leave to start, in chunks of an aiolimiter.

    In chunks, because one token at a time is no faster than the event loop's timers, about 800 a second. A
    chunk is half a burst: a limiter that was idle gives one at once, and what is left of the last may be
    there too.
    """

    def __init__(self, burst: int, wake: Callable[[], None]) -> None:
        """``wake`` is called when leave has come."""
        self._chunk = (burst + 1) // 2
        self._wake = wake
        self._tokens = 0
        self._rate = 0.0
        self._limiter: AsyncLimiter | None = None
        self._task: asyncio.Task[None] | None = None

    def set_rate(self, rate_per_s: float) -> None:
        """What the permits that are held allow."""
        if rate_per_s != self._rate:
            self._rate = rate_per_s
            self._limiter = AsyncLimiter(self._chunk, self._chunk / rate_per_s) if rate_per_s > 0 else None

    def take(self) -> bool:
        """Take leave for one start; where there is none, it is sent for."""
        if self._tokens:
            self._tokens -= 1
            return True
        if self._task is None and self._limiter is not None:
            self._task = apart(self._fetch(self._limiter))
        return False

    def close(self) -> None:
        if self._task:
            self._task.cancel()

    async def _fetch(self, limiter: AsyncLimiter) -> None:
        try:
            await limiter.acquire(self._chunk)
            self._tokens += self._chunk
        finally:
            self._task = None
        self._wake()
