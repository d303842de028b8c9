"""acklast with four lanes of different shapes, whose handlers note what they do outside of the daemon."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acklast import App, Context, RateLimited, Transient
from acklast_topology.publish import Job

FAST: Final = "fast"
SLOW: Final = "slow"
PACED: Final = "paced"
FLAKY: Final = "flaky"
LANES: Final = (FAST, SLOW, PACED, FLAKY)
PATTERN: Final = (FAST, PACED, FAST, FLAKY, FAST, PACED, FAST, FLAKY, FAST, SLOW) * 2
"""Which lanes the jobs go to, in turn."""
SLOW_S: Final = (0.3, 1.5)
"""How long a slow job takes: below the deadline, and longer than all else in a drain."""
NOTES: Final = "DRAIN_NOTES"
"""The variable that names the file of notes."""
CALL: Final = "call"
EFFECT: Final = "effect"
FAILED: Final = "failed"
LIMITED: Final = "limited"
_FAST_S: Final = 0.005
_PACED_S: Final = 0.02
_LIMITED_ONE_IN: Final = 300
_RETRY_AFTER_S: Final = 0.5

app = App()


@dataclass(slots=True)
class Payload:
    number: int


def job(run: str, number: int) -> Job:
    """The job of this number."""
    lane = PATTERN[number % len(PATTERN)]
    return Job.json(lane, f"{lane}-{number:06d}", {"number": number}, type=f"{lane}.v1", run=run)


@app.job("fast.v1", lane=FAST)
async def fast(payload: Payload, context: Context) -> None:
    """Many at once, each over in a moment."""
    _note(CALL, context)
    await asyncio.sleep(_FAST_S)
    _note(EFFECT, context)


@app.job("slow.v1", lane=SLOW)
async def slow(payload: Payload, context: Context) -> None:
    """Whatever is at work when the signal comes has a second or two to go."""
    _note(CALL, context)
    await asyncio.sleep(random.Random(payload.number).uniform(*SLOW_S))  # noqa: S311 - how long it takes
    _note(EFFECT, context)


@app.job("paced.v1", lane=PACED)
async def paced(payload: Payload, context: Context) -> None:
    """On a quota; now and then the downstream asks for quiet."""
    _note(CALL, context)
    await asyncio.sleep(_PACED_S)
    if payload.number % _LIMITED_ONE_IN == 1 and context.attempt == 1 and not _was(LIMITED, context.key):
        _note(LIMITED, context)
        raise RateLimited(_RETRY_AFTER_S)
    _note(EFFECT, context)


@app.job("flaky.v1", lane=FLAKY)
async def flaky(payload: Payload, context: Context) -> None:
    """Fails twice before it works, so that retries are in the air at every moment."""
    _note(CALL, context)
    await asyncio.sleep(_FAST_S)
    if context.attempt <= payload.number % 3:
        _note(FAILED, context)
        raise Transient("not_now")
    _note(EFFECT, context)


def _was(what: str, key: str) -> bool:
    return f"\n{what} {key} " in Path(os.environ[NOTES]).read_text()


def _note(what: str, context: Context) -> None:
    """One line in one write: a daemon that is killed cannot take it back."""
    line = (
        f"{what} {context.key} {context.attempt} {int(context.ambiguous)} {os.getpid()} {time.time():.6f}\n"
    )
    file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
