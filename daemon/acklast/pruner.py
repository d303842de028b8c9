"""Pruning beside running lanes: a small batch, a long pause; ended at once when the daemon drains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict
from typing import Final

from acklast.config.models import Lane
from acklast.errors import LedgerUnavailable
from acklast.ledger.api import Ledger
from acklast.ledger.retention import AlreadyPruning, Keep, Keeps, Pruned, Step
from acklast.telemetry.events import Emitter

SHARE: Final = 0.1
"""The part of its time that a pass keeps the ledger busy. Measured: see docs/decisions/0008."""
LONGEST_PAUSE_S: Final = 10.0


def keeps_of(lanes: Mapping[str, Lane]) -> Keeps:
    """What each lane's configuration says."""
    return {
        name: Keep(lane.keep_done_s, lane.keep_dead_s, lane.keep_payload_s) for name, lane in lanes.items()
    }


def pause_s(took_s: float, rows: int, rate_per_s: float | None = None) -> float:
    """How long to leave the ledger alone after a batch of ``rows`` that took ``took_s``.

    In proportion to what it took, so that a ledger that is busy or slow is asked less; or as long as
    ``rate_per_s`` rows a second leave.
    """
    if rate_per_s is not None:
        return max(0.0, rows / rate_per_s - took_s)
    return min(took_s * (1 / SHARE - 1), LONGEST_PAUSE_S)


async def pruning(
    ledger: Ledger, keeps: Keeps, *, rate_per_s: float | None = None
) -> AsyncGenerator[Step, None]:
    """A pass with a pause after each of its steps.

    Raises:
        AlreadyPruning, LedgerUnavailable: as ``Ledger.prune``.
    """
    async with aclosing(ledger.prune(keeps)) as steps:
        began = time.monotonic()
        async for step in steps:
            took_s = time.monotonic() - began
            yield step
            await asyncio.sleep(pause_s(took_s, step.pruned.rows, rate_per_s))
            began = time.monotonic()


class Pruner:
    """The daemon's own: a pass over its lanes about every ``every_s`` seconds; never where that is 0.

    ``chance`` gives random numbers in [0, 1). The first pass comes no earlier than the others: what was
    delivered again after a long outage finds its job first.
    """

    def __init__(
        self, ledger: Ledger, keeps: Keeps, emitter: Emitter, *, every_s: float, chance: Callable[[], float]
    ) -> None:
        self._ledger = ledger
        self._keeps = keeps
        self._emitter = emitter
        self._every_s = every_s
        self._chance = chance
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._every_s:
            self._task = asyncio.create_task(self._run(), name="prune")

    def stop(self) -> None:
        """Begin nothing more, at once: a batch is done as a whole or not at all."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stop, and wait until its connection is gone."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            # Half to one and a half times as long: daemons that start together do not prune together.
            await asyncio.sleep(self._every_s * (0.5 + self._chance()))
            try:
                await self._pass()
            except AlreadyPruning:
                self._emitter.notice("prune.left_to_another", "debug")
            except Exception as error:
                # Not only an outage: a defect here must not end the pruning for good, in silence.
                said = error.what if isinstance(error, LedgerUnavailable) else repr(error)
                self._emitter.notice("prune.failed", "warning", error=said)

    async def _pass(self) -> None:
        began, total = time.monotonic(), Pruned()
        async with aclosing(pruning(self._ledger, self._keeps)) as steps:
            async for step in steps:
                total += step.pruned
        level = "info" if total.rows else "debug"
        seconds = round(time.monotonic() - began, 3)
        self._emitter.notice("prune.done", level, **asdict(total), seconds=seconds)
