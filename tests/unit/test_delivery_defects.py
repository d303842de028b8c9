"""A defect after the claim never keeps a job from a verdict."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from acklast import App, judge
from acklast.delivery import process
from acklast.lane import Drain, Lane
from acklast.ledger.api import Claim, Fresh, Record, Recorded, Session
from acklast.ledger.watch import LedgerWatch
from acklast.letterbox import _Dead
from acklast.outcome import Hold, Retry, Verdict
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Slots
from acklast.policy import Policy
from acklast.settle import Delivery
from acklast.telemetry.events import Emitter
from acklast_topology.contract import RawMessage

app = App()


@app.job("t", lane="rent")
async def work(payload: dict[str, Any]) -> None:
    """Its effect is not the matter here."""


class OneClaim:
    """A ledger, a lease, a settler and a channel in one: grants every claim, refuses records as told."""

    def __init__(self, refusals: int) -> None:
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


def lane_of(world: OneClaim) -> Lane:
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


def delivery_of(world: OneClaim) -> Delivery:
    raw = RawMessage(b"{}", headers={"job-key": "k"}, type="t")
    return Delivery(raw, 1, cast("Any", world))


async def verdict_of(world: OneClaim) -> Verdict:
    """Take one delivery through; the verdict that was recorded at last."""
    lane = lane_of(world)
    await process(lane, delivery_of(world))
    assert lane.active == {}
    assert lane.pacing.slots.held == 0
    return world.records[-1].verdict


async def test_a_defect_of_the_attempt_is_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(judge, "attempt", broken)
    world = OneClaim(refusals=0)
    verdict = await verdict_of(world)
    assert isinstance(verdict, Retry)
    assert (verdict.reason, verdict.ambiguous) == ("defect", True)
    assert world.settled_by == ["wait"]


async def test_a_refused_record_becomes_a_plain_hold() -> None:
    world = OneClaim(refusals=1)
    verdict = await verdict_of(world)
    assert isinstance(verdict, Hold)
    assert verdict.reason == "unrecordable"
    assert world.records[-1].letter is not None
    assert world.settled_by == ["ack"]


async def test_a_refused_record_of_a_dead_letter_leaves_no_claim() -> None:
    world = OneClaim(refusals=1)
    await _Dead(lane_of(world)).file(delivery_of(world))
    assert isinstance(world.records[-1].verdict, Hold)
    assert world.settled_by == ["ack"]
