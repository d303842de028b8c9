"""What is said of a lane that the broker stops serving: once, and once more when it is back. Pure.

A lane that comes and goes would else fill the log with lines that say nothing new.
"""

from __future__ import annotations

from math import inf
from typing import Final

STEADY_S: Final = 10.0
"""A lane that was consumed for so long is well: what ends that is another outage."""
_GAP_S: Final = 5.0
_GAP_CAP_S: Final = 600.0
"""In one outage a lane that is back and gone again says so after this gap, then after twice as long."""


class Outage:
    """Follows one lane's queue. Times are in seconds, on the monotonic clock."""

    def __init__(self) -> None:
        self.failures = 0
        """How often it was interrupted since it was last well."""
        self._reason = ""
        self._back_at = inf
        self._said_back = False
        self._said_at = -inf
        self._gap_s = _GAP_S

    def interrupted(self, now: float, reason: str, *, exact: bool = False) -> bool:
        """It is not consumed; whether to say so. An ``exact`` reason is said whenever it is another one."""
        if now - self._back_at >= STEADY_S:
            self.failures, self._gap_s = 0, _GAP_S
        self._back_at = inf
        first, self.failures = self.failures == 0, self.failures + 1
        again = self._said_back and now - self._said_at >= self._gap_s
        if not (first or again or (exact and reason != self._reason)):
            return False
        if not first:
            self._gap_s = min(2 * self._gap_s, _GAP_CAP_S)
        self._reason, self._said_at, self._said_back = reason, now, False
        return True

    def stands_by(self, now: float) -> None:
        """It could be consumed, and is not meant to be: of that another says what is to be said."""
        self._back_at = min(self._back_at, now)

    def back(self, now: float) -> bool:
        """It is consumed; whether to say so."""
        self.stands_by(now)
        said, self._said_back = self._said_back, True
        return not said
