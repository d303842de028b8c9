"""What holds a budget's starts back beside its permits: a pause, the way back from it, a hint to go slower.

Pure: whoever asks brings the time, a monotonic one. Nothing here ever lets more start than the permits do.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

RAMP_MIN_S: Final = 1.0
RAMP_MAX_S: Final = 10.0
_TOLERANCE_S: Final = 0.01
"""How early a slowed start may be: timers are no finer, and a hint need not be exact to the millisecond."""


def ramp_s(period_s: float) -> float:
    """How long the rate takes to come back after a pause."""
    return min(RAMP_MAX_S, max(RAMP_MIN_S, period_s))


class Pace:
    """``idle`` while nothing holds back: the common case, and the only question on the hot path."""

    __slots__ = (
        "_next_at",
        "_ramp_s",
        "_slow_rate",
        "_slow_until",
        "_started",
        "_usual_ramp_s",
        "idle",
        "paused_until",
    )

    def __init__(self, period_s: float) -> None:
        self.idle = True
        self.paused_until = 0.0
        self._usual_ramp_s = self._ramp_s = ramp_s(period_s)
        self._started = 0
        self._slow_rate = 0.0
        self._slow_until = 0.0
        self._next_at = 0.0

    def pause(self, now: float, seconds: float, *, ramps: bool = True) -> bool:
        """Start nothing for ``seconds``; whether that is longer than what was known.

        ``ramps``: the rate then comes back slowly.
        """
        until = now + seconds
        if until <= self.paused_until:
            return False
        self.paused_until = until
        self._started = 0
        self._ramp_s = self._usual_ramp_s if ramps else 0.0
        self.idle = False
        return True

    def slow(self, now: float, rate_per_s: float, seconds: float) -> None:
        """Start at most ``rate_per_s`` for ``seconds``; the latest word counts."""
        self._slow_rate = rate_per_s
        self._slow_until = now + seconds
        self.idle = False

    def started(self, now: float) -> None:
        """Something started."""
        self._started += 1
        if now < self._slow_until and self._slow_rate > 0:
            self._next_at = max(self._next_at, now) + 1 / self._slow_rate

    def wait_s(self, now: float, rate_per_s: float) -> float:
        """Seconds until the next start may be, 0 for now. ``rate_per_s``: what the permits allow."""
        if now < self.paused_until:
            return self.paused_until - now
        ramped_s = max(0.0, self._ramped_at(rate_per_s) - now)
        slowed_s = self._slowed_s(now)
        if now >= self.paused_until + self._ramp_s and now >= self._slow_until:
            self.idle = True
        return max(ramped_s, slowed_s)

    def rate(self, now: float, rate_per_s: float) -> float:
        """Starts per second as things are now, of the ``rate_per_s`` that the permits allow."""
        if now < self.paused_until:
            return 0.0
        after_s = now - self.paused_until
        if self.paused_until and after_s < self._ramp_s:
            rate_per_s *= after_s / self._ramp_s
        return min(rate_per_s, self._slow_rate) if now < self._slow_until else rate_per_s

    def _ramped_at(self, rate_per_s: float) -> float:
        """When the next start is due on the way back: the first at once, and the rate grows from nothing.

        After t of a ramp of T seconds to the rate r, 1 + r t^2 / 2T have started.
        """
        if rate_per_s <= 0:
            return self.paused_until
        after_s = sqrt(2 * self._ramp_s * self._started / rate_per_s)
        return self.paused_until + min(after_s, self._ramp_s)

    def _slowed_s(self, now: float) -> float:
        if now >= self._slow_until:
            return 0.0
        left_s = self._slow_until - now
        if self._slow_rate <= 0:
            return left_s
        wait_s = self._next_at - now
        return min(wait_s, left_s) if wait_s > _TOLERANCE_S else 0.0
