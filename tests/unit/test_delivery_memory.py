"""What a job leaves behind when it is over: nothing that only the garbage collector could free."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from acklast import App, Context, Permanent, RateLimited, Transient
from acklast.delivery import process
from harness.one_claim import OneClaim, delivery_of, lane_of

app = App()


@app.job("done", lane="rent")
async def done(payload: dict[str, Any], ctx: Context) -> None:
    ctx.note_pace({})


@app.job("plain", lane="rent")
def plain(payload: dict[str, Any]) -> None:
    """One that runs in a thread."""


@app.job("limited", lane="rent")
async def limited(payload: dict[str, Any]) -> None:
    raise RateLimited(1, "no")


@app.job("transient", lane="rent")
async def transient(payload: dict[str, Any]) -> None:
    raise Transient("not now")


@app.job("permanent", lane="rent")
async def permanent(payload: dict[str, Any]) -> None:
    raise Permanent("never")


@app.job("unknown", lane="rent")
async def unknown(payload: dict[str, Any]) -> None:
    raise KeyError("a defect")


@pytest.mark.parametrize("kind", ["done", "plain", "limited", "transient", "permanent", "unknown"])
async def test_a_job_leaves_nothing_to_the_garbage_collector(kind: str) -> None:
    """A thousand jobs are in flight: whatever is in a cycle has the collector walk over all of them."""
    lane = lane_of(world := OneClaim(), app)
    await process(lane, delivery_of(world, kind))  # what is made once is made
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            await process(lane, delivery_of(world, kind))
        left = gc.collect()
    finally:
        gc.enable()
    assert left == 0
