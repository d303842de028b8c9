"""The errors by which every store refuses, in the same words."""

from __future__ import annotations

from acklast.errors import ClaimLost, LedgerUnavailable, SessionLost
from acklast.ledger.api import Record


def session_lost() -> SessionLost:
    return SessionLost("this worker session's lease has ended", "Start nothing more, and open a new session")


def claim_lost(record: Record) -> ClaimLost:
    return ClaimLost(
        f"job {record.lane}/{record.key} is no longer claimed with fence {record.fence}",
        "Its effect was rolled back; whoever owns the job now runs it",
    )


def ledger_closed() -> LedgerUnavailable:
    return LedgerUnavailable("the ledger is closed", "Leave the delivery unacknowledged")


class Locked(LedgerUnavailable):
    """One job is locked by another transaction. The ledger itself answers."""

    def __init__(self, lane: str, key: str) -> None:
        super().__init__(
            f"another transaction keeps job {lane}/{key} locked", "Find it in pg_stat_activity and end it"
        )
        self.key = key
