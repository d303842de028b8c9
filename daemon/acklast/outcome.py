"""What an attempt came to (outcomes) and what follows from it (verdicts): frozen, matched exhaustively.

A handler speaks in exceptions (``acklast.errors``); from ``decide.classify`` on, only these values travel.
``raised`` is what the exception told of a failure: it decides nothing, and goes into its fingerprint.
"""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import Any, TypeAlias

from acklast.fingerprint import NOTHING, Raised
from acklast_topology.value import value


@value
class Done:
    """The effect happened. ``result`` is small and becomes JSON in the ledger."""

    result: Any = None


@value
class RateLimited:
    """The downstream's quota refused. ``retry_after_s`` is None where it did not say how long."""

    retry_after_s: float | None = None
    reason: str = "rate_limited"


@value
class Transient:
    """It did not happen, and may later. ``retry_after_s`` is the downstream's own wish, if any."""

    reason: str
    detail: str = ""
    retry_after_s: float | None = None
    raised: Raised = field(default=NOTHING, compare=False)


@value
class Permanent:
    """It will never happen."""

    reason: str
    detail: str = ""
    raised: Raised = field(default=NOTHING, compare=False)


@value
class Unknown:
    """It may have happened. ``cut`` is true where a drain had to stop the handler: no attempt is spent."""

    reason: str
    detail: str = ""
    cut: bool = False
    raised: Raised = field(default=NOTHING, compare=False)


@value
class Interrupted:
    """A drain came before any effect. Spends no attempt."""

    reason: str = "drain"


Outcome: TypeAlias = Done | RateLimited | Transient | Permanent | Unknown | Interrupted


@value
class Complete:
    """The job is done."""

    result: Any = None


@value
class Retry:
    """Start again, no earlier than ``at`` (database clock, aware).

    ``spends`` is false where the attempt does not count; ``ambiguous``: an effect may have happened.
    """

    at: datetime
    reason: str
    spends: bool = True
    ambiguous: bool = False


@value
class Bury:
    """The job is dead; its payload goes to the dead letters with this reason."""

    reason: str
    detail: str = ""


@value
class Hold:
    """Stop in ``unresolved``, with the payload kept, until a person or the reconciler decides."""

    reason: str
    detail: str = ""


@value
class GiveBack:
    """Release the claim and requeue the delivery; the attempt is not spent."""

    reason: str
    ambiguous: bool = False


Verdict: TypeAlias = Complete | Retry | Bury | Hold | GiveBack
