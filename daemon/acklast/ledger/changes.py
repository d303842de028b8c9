"""What a verdict changes in a job: one place, which both stores read."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, assert_never

from acklast.ledger.api import Letter, Record, State
from acklast.ledger.evidence import REASON_LIMIT, clean
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry
from acklast_topology.value import value

FAILURES = frozenset({"transient", "permanent", "unknown", "crashed"})
"""Outcomes that count as a failure of the job: a refusal for a quota or a drain does not."""


@value
class Change:
    """A job's new values. ``unspent`` and ``limited`` are 0 or 1; ``ambiguous`` adds to what the job has."""

    state: State
    reason: str | None = None
    result: Any = None
    available_at: datetime | None = None
    unspent: int = 0
    limited: int = 0
    ambiguous: bool = False
    letter: Letter | None = None


_DONE: Final = Change(State.DONE)


def change_for(record: Record) -> Change:
    """What ``record`` changes.

    Raises:
        ValueError: a Bury or Hold without its letter: the payload would be lost.
    """
    verdict = record.verdict
    if isinstance(verdict, Complete):  # nearly every one
        return _DONE if verdict.result is None else Change(State.DONE, result=verdict.result)
    limited = int(record.outcome == "rate_limited")
    match verdict:
        case Retry(at, reason, spends, ambiguous):
            return Change(
                State.WAITING,
                clean(reason, REASON_LIMIT),
                available_at=at,
                unspent=int(not spends),
                limited=limited,
                ambiguous=ambiguous,
            )
        case Bury(reason):
            return Change(State.DEAD, clean(reason, REASON_LIMIT), limited=limited, letter=_letter_of(record))
        case Hold(reason):
            # Held because the effect may have happened: whoever starts it again must know.
            return Change(
                State.UNRESOLVED,
                clean(reason, REASON_LIMIT),
                limited=limited,
                ambiguous=True,
                letter=_letter_of(record),
            )
        case GiveBack(reason, ambiguous):
            return Change(State.QUEUED, clean(reason, REASON_LIMIT), unspent=1, ambiguous=ambiguous)
        case never:
            assert_never(never)


def _letter_of(record: Record) -> Letter:
    if record.letter is None:
        raise ValueError(f"{record.lane}/{record.key}: {record.verdict} needs its letter")
    return record.letter
