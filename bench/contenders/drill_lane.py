"""acklast with one lane, whose handler writes its effects down outside of the daemon: what the drill runs."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Final

from acklast import App, Context, Transient
from acklast_topology.publish import Job

LANE: Final = "drill"
TYPE: Final = "drill.v1"
EFFECTS: Final = "DRILL_EFFECTS"
"""The variable that names the file of effects."""
WORK_S: Final = 0.02
RETRIED: Final = 10
"""One job in so many is tried again once: it goes out by the publishing connection, and comes back."""

app = App()


def job(run: str, number: int) -> Job:
    """The job of this number."""
    return Job.json(LANE, f"{run}:{number:06d}", {"number": number}, type=TYPE, run=run)


@dataclass(slots=True)
class Payload:
    number: int


@app.job(TYPE, lane=LANE)
async def handle(payload: Payload, context: Context) -> None:
    if payload.number % RETRIED == 0 and context.attempt == 1 and not context.ambiguous:
        raise Transient("not_now")
    await asyncio.sleep(WORK_S)
    _note(f"{context.key} {int(context.ambiguous)} {os.getpid()} {time.time():.6f}\n")


def _note(line: str) -> None:
    """One line in one write: a daemon that is killed cannot take it back."""
    file = os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
