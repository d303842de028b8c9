"""A lane that has nothing behind it: what happens to one delivery, without servers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from acklast import App
from acklast.lane import Drain, Lane
from acklast.ledger.api import Claim, Fresh, Record, Recorded, Session
from acklast.ledger.watch import LedgerWatch
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Slots
from acklast.policy import Policy
from acklast.settle import Delivery
from acklast.telemetry.events import Emitter
from acklast_topology.contract import RawMessage


class OneClaim:
    """A ledger, a lease, a settler and a channel in one: grants every claim, refuses records as told."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.alive = True
        self.records: list[Record] = []
        self.settled_by: list[str] = []

    async def current(self) -> Session:
        return Session(1, "i", 15)

    def holds(self, session: Session) -> bool:
        return True

    async def claim(self, session: Session, claim: Claim) -> Fresh:
        return Fresh(1, 1, 0, ambiguous=False, now=datetime.now(UTC))

    async def record(self, session: Session, record: Record) -> Recorded:
        self.records.append(record)
        if len(self.records) <= self.refusals:
            raise ValueError("the store has no place for it")
        return Recorded.RECORDED

    async def settled(self, lane: str, key: str, fence: int) -> None:
        return

    async def ack(self, delivery: Delivery) -> bool:
        self.settled_by.append("ack")
        return True

    async def wait(self, delivery: Delivery, key: str, wait_s: float) -> bool:
        self.settled_by.append("wait")
        return True


def lane_of(world: OneClaim, app: App) -> Lane:
    """A lane ``rent`` of these handlers, with one slot, that has nothing else behind it."""
    every: Any = world
    return Lane(
        name="rent",
        app=app,
        policy=Policy(),
        ledger=every,
        lease=every,
        pacing=LanePacing(Slots(1)),
        settler=every,
        emitter=Emitter(),
        drain=Drain(),
        worker="w",
        version="1",
        chance=lambda: 0.5,
        watch=LedgerWatch(Emitter()),
    )


def delivery_of(world: OneClaim, type_: str) -> Delivery:
    """A message of this type, come from there."""
    raw = RawMessage(b"{}", headers={"job-key": "k"}, type=type_)
    return Delivery(raw, 1, cast("Any", world))
