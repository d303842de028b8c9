"""A job that is promised in the outbox and not published: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from acklast.cli.spans import moment, span
from acklast.cli.why_reason import Code, Need, Reason
from acklast.ledger.whereabouts import Promise

_RELAYED_S: Final = 30.0
"""A relay looks several times a second: where a row is due for so long, none runs, or none gets on."""


def unpublished(promises: Sequence[Promise], now: datetime, oldest_due: datetime | None) -> Iterator[Reason]:
    """Why what was promised is not published. ``oldest_due`` is of all the outbox."""
    first = promises[0]
    age = span((now - first.created_at).total_seconds())
    says = f"it is promised in the outbox since {moment(first.created_at, now)} ({age}), and not published"
    stale_s = (now - oldest_due).total_seconds() if oldest_due else 0.0
    need = Need.WAIT
    if first.tries:
        need = Need.ACT
        says += f": {first.tries} tries were not confirmed, the last: {first.error or 'no answer'}"
        says += f"; again at {moment(first.due_at, now)}" if first.due_at > now else ""
    elif stale_s > _RELAYED_S:
        need = Need.ACT
        says += f": no relay takes what is due (the oldest row since {span(stale_s)}): is one running?"
    else:
        says += ": a relay takes what is due within a second or so"
    if len(promises) > 1:
        says += f"; {len(promises) - 1} more of its key wait behind it"
    evidence = {
        "row": first.id,
        "created_at": first.created_at,
        "due_at": first.due_at,
        "tries": first.tries,
        "error": first.error,
        "rows_of_key": len(promises),
        "oldest_due_for_s": round(max(0.0, stale_s), 1),
    }
    helps = "acklast relay" if need is Need.ACT and not first.tries else "acklast check"
    yield Reason(Code.UNPUBLISHED, need, says, evidence, helps)
