"""acklast with lanes of different kinds, which ``bench.real_drains`` forecasts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from acklast import App, Context, Transient

PACED = "paced"
"""Held back by its quota; some of its jobs fail once."""
SLOTS = "slots"
"""Held back by its slots; the second half of its jobs takes longer."""
TYPES = {lane: f"{lane}.v1" for lane in (PACED, SLOTS)}

app = App()


@dataclass(slots=True)
class Work:
    seconds: float
    fails: bool = False


async def _work(payload: Work, context: Context) -> None:
    await asyncio.sleep(payload.seconds)
    if payload.fails and context.attempt == 1:
        raise Transient("once")


@app.job(TYPES[PACED], lane=PACED)
async def paced(payload: Work, context: Context) -> None:
    await _work(payload, context)


@app.job(TYPES[SLOTS], lane=SLOTS)
async def slots(payload: Work, context: Context) -> None:
    await _work(payload, context)
