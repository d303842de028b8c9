"""acklast with two lanes: one whose handler does nothing, and one that a drain has to wait for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from acklast import App, Context
from bench.meter import hit

FAST: Final = "fast"
SLOW: Final = "slow"
SLOTS: Final = 80
"""Of the slow lane, in one daemon."""
WORK_S: Final = 2.0

app = App()


@dataclass(slots=True)
class Payload:
    number: int


@app.job(f"{FAST}.v1", lane=FAST)
async def fast(payload: Payload, context: Context) -> None:
    hit()


@app.job(f"{SLOW}.v1", lane=SLOW)
async def slow(payload: Payload, context: Context) -> None:
    # The first ones end one after the other, and so do all that follow in their slots: whenever a drain
    # begins, one has just begun, and the drain takes as long as that.
    part = (payload.number + 1) / SLOTS if payload.number < SLOTS else 1.0
    await asyncio.sleep(WORK_S * part)
