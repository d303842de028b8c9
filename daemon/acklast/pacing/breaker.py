"""A circuit breaker: when a downstream is down, wait and probe with one job instead of burning attempts.

    closed --- ``after`` failures in a row ---> open --- its time is up ---> probing --- success ---> closed
                                                 ^                              |
                                                 +---------- failure: longer ---+

Pure: the time comes in as an argument, in seconds of any monotonic clock. A failure here is a sign that the
downstream is down (a connection that cannot be made or breaks off, a 5xx), not a job that it refuses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from acklast.policy import BreakerRules

_MOST_DOUBLED: Final = 64


class State(StrEnum):
    CLOSED = "closed"
    """All is well: everybody may start."""
    OPEN = "open"
    """Nobody may start."""
    HALF_OPEN = "half_open"
    """One may start, to see."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """What a breaker knows. Every method gives the next one and leaves this one as it is."""

    rules: BreakerRules
    failures: int = 0
    """In a row, up to now."""
    opened: int = 0
    """How often it has opened without a success in between."""
    until_s: float = 0.0
    """When it may be probed, while it is open."""
    probing: bool = False
    """A probe is on its way."""

    def state(self, now_s: float) -> State:
        if not self.opened:
            return State.CLOSED
        return State.OPEN if now_s < self.until_s else State.HALF_OPEN

    def admits(self, now_s: float) -> bool:
        """Whether a job may start now; in half-open only one at a time."""
        match self.state(now_s):
            case State.CLOSED:
                return True
            case State.OPEN:
                return False
            case State.HALF_OPEN:
                return not self.probing

    def started(self, now_s: float) -> Breaker:
        """A job has started that was admitted."""
        return replace(self, probing=True) if self.state(now_s) is State.HALF_OPEN else self

    def succeeded(self) -> Breaker:
        """The downstream answered, whatever it said of the job."""
        return self if self == (closed := Breaker(self.rules)) else closed

    def failed(self, now_s: float, *, probe: bool) -> Breaker:
        """The downstream is down, as far as this job could see. ``probe``: it was the one that went to see.

        While it is open or being probed, the failures of jobs that had started before say nothing new.
        """
        if not self.rules.after:
            return self
        failures = self.failures + 1
        if not self.opened:
            opens = failures >= self.rules.after
            return self._opened(failures, now_s) if opens else replace(self, failures=failures)
        return self._opened(failures, now_s) if probe else replace(self, failures=failures)

    def gave_up(self) -> Breaker:
        """The probe ended without having met the downstream: another may go."""
        return replace(self, probing=False)

    def _opened(self, failures: int, now_s: float) -> Breaker:
        # The exponent is bounded because 2.0 ** 1024 overflows; the cap is reached long before.
        pause_s = min(self.rules.pause_cap_s, self.rules.pause_s * 2.0 ** min(self.opened, _MOST_DOUBLED))
        return Breaker(self.rules, failures, self.opened + 1, now_s + pause_s)
