"""acklast with one lane, whose dead jobs are mended by a file: what ``bench.redriving`` runs."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acklast import App, Context, Permanent

LANE: Final = "redriven"
TYPE: Final = "redriven.v1"
DIRECTORY: Final = "REDRIVE_DIRECTORY"
"""The variable that names where effects are noted, and where ``MENDED`` lies once all is mended."""
MENDED: Final = "mended"
EFFECTS: Final = "effects"
LIVE: Final = "live"
_WORK_S: Final = 0.005

app = App()


@dataclass(slots=True)
class Payload:
    live: bool


@app.job(TYPE, lane=LANE)
async def handle(payload: Payload, context: Context) -> None:
    directory = Path(os.environ[DIRECTORY])
    if not payload.live and not (directory / MENDED).exists():
        raise Permanent("broken")
    await asyncio.sleep(_WORK_S)
    with (directory / EFFECTS).open("a") as file:
        file.write(f"{LIVE if payload.live else 'again'} {time.time():.6f}\n")
