"""Controls as the ledger would give them, and a daemon's ear for those that it gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from acklast.ledger.connect import Address
from acklast.ledger.controls import Control, Kind, PostgresWire, Target

AT: Final = datetime(2026, 1, 1, 2, 0, tzinfo=UTC)


def control(
    target: Target,
    name: str,
    kind: Kind,
    *,
    amount: int | None = None,
    period_s: float | None = None,
    left_s: float | None = None,
) -> Control:
    """Asked for by duty at ``AT``, which is when it was read too."""
    until = None if left_s is None else AT + timedelta(seconds=left_s)
    return Control(target, name, kind, "duty", "why", AT, amount, period_s, until, left_s)


def pause(target: Target, name: str, left_s: float | None = None) -> Control:
    return control(target, name, Kind.PAUSE, left_s=left_s)


class Ear:
    """A daemon's wire, and how often it was told to read."""

    def __init__(self, dsn: str) -> None:
        self.told = 0
        self.wire = PostgresWire(Address.of(dsn), self._hear)

    def _hear(self) -> None:
        self.told += 1
