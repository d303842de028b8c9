"""Pruning beside running lanes: a small batch, a long pause; ended at once when the daemon drains."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict
from typing import Final

from acklast.chores import Pass
from acklast.config.models import Lane
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


class Pruner(Pass):
    """The daemon's own: a pass over its lanes.

    Its first one comes no earlier than the others: what was delivered again after a long outage finds its job
    first. A batch is done as a whole or not at all.
    """

    name = "prune"
    taken = AlreadyPruning

    def __init__(
        self, ledger: Ledger, keeps: Keeps, emitter: Emitter, *, every_s: float, chance: Callable[[], float]
    ) -> None:
        super().__init__(emitter, every_s, chance)
        self._ledger = ledger
        self.keeps = keeps
        """From the next pass on."""

    async def once(self) -> None:
        began, total = time.monotonic(), Pruned()
        async with aclosing(pruning(self._ledger, self.keeps)) as steps:
            async for step in steps:
                total += step.pruned
        level = "info" if total.rows else "debug"
        seconds = round(time.monotonic() - began, 3)
        self._emitter.notice("prune.done", level, **asdict(total), seconds=seconds)
