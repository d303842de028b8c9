"""A defect after the claim never keeps a job from a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from acklast import App, judge
from acklast.delivery import process
from acklast.letterbox import _Dead
from acklast.outcome import Hold, Retry, Verdict
from harness.one_claim import OneClaim, delivery_of, lane_of

app = App()


@app.job("t", lane="rent")
async def work(payload: dict[str, Any]) -> None:
    """Its effect is not the matter here."""


async def verdict_of(world: OneClaim) -> Verdict:
    """Take one delivery through; the verdict that was recorded at last."""
    lane = lane_of(world, app)
    await process(lane, delivery_of(world, "t"))
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
    await _Dead(lane_of(world, app)).file(delivery_of(world, "t"))
    assert isinstance(world.records[-1].verdict, Hold)
    assert world.settled_by == ["ack"]
