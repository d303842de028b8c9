"""How a lane answers outcomes: the numbers and the choice that ``decide`` works with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OnUnknown(StrEnum):
    """What to do when an effect may have happened."""

    RETRY = "retry"
    """Try again under the same key: right where the downstream removes duplicates by key."""
    RECONCILE = "reconcile"
    """Ask the job type's ``reconcile`` whether it happened before trying again."""
    HOLD = "hold"
    """Stop in ``unresolved`` for a person."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Retry rules of one lane. Every number is a bound: nothing retries for ever."""

    max_attempts: int = 8
    """Attempts that count, the first included."""
    max_rate_limited: int = 1000
    """How often one job may be refused for a quota; such refusals spend no attempt."""
    backoff_base_s: float = 2.0
    backoff_cap_s: float = 3600.0
    retry_after_cap_s: float = 3600.0
    """A longer Retry-After is cut to this."""
    on_unknown: OnUnknown = OnUnknown.RETRY
    timeout_s: float = 60.0
    """How long one attempt may run where the job type does not say."""


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When a budget's circuit breaker opens, and for how long."""

    after: int = 10
    """Failures in a row that open it; 0: it never opens."""
    pause_s: float = 5.0
    """How long it is open at first; each failed probe doubles it."""
    pause_cap_s: float = 300.0
