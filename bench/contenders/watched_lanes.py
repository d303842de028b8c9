"""acklast with two lanes: one whose handler does nothing, and one that a drain has to wait for."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acklast import App, Context
from bench.meter import hit

FAST: Final = "fast"
SLOW: Final = "slow"
SLOTS: Final = 4
"""Of the slow lane, in one daemon."""
LEAVES: Final = "BENCH_LEAVES"
"""The variable that names a file, which is there once the daemon is asked to end."""
WORK_S: Final = 2.0
"""From then on a slow job takes so long: so does the drain, and a little more."""
_POLL_S: Final = 0.02

app = App()


@dataclass(slots=True)
class Payload:
    number: int


@app.job(f"{FAST}.v1", lane=FAST)
async def fast(payload: Payload, context: Context) -> None:
    hit()


@app.job(f"{SLOW}.v1", lane=SLOW, timeout_s=3600)
async def slow(payload: Payload, context: Context) -> None:
    leaves = Path(os.environ[LEAVES])
    while not leaves.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it, and it is a look at memory
        await asyncio.sleep(_POLL_S)
    await asyncio.sleep(WORK_S)
