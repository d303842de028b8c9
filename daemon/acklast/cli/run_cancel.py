"""``acklast runs cancel``: nothing more of a run starts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from acklast.cli.bar import bar
from acklast.cli.lane_target import As, operations_of, operator_of, reason_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json
from acklast.cli.run_target import RunName, no_such_run
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.run_cancel import Left, Marked, cancel_idle, left_of, mark_cancelled, note_end

_LOCKED_S: Final = 10.0
"""How long to come back to jobs that somebody else holds locked."""
_AGAIN_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What one command came to. ``jobs``: how many it has cancelled itself."""

    marked: Marked
    jobs: int
    left: Left


def cancel(
    run: RunName,
    reason: Annotated[str, typer.Option("--why", "--reason", "-r", help="Why; everybody sees it.")] = "",
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Start nothing more of a run, for good. What runs ends by itself; messages that come are acknowledged.

    Safe to interrupt and to repeat: what one call leaves, the next one cancels.
    """
    why = reason_of(reason) if reason else ""
    done = asyncio.run(_cancel(configured(config), run, why, operator_of(as_)))
    if as_json:
        say_json(document(run, done))
    else:
        _tell(run, done)
    return Exit.INCOMPLETE if done.left.idle else Exit.OK


async def _cancel(config: Config, run: str, reason: str, operator: Operator) -> Cancelled:
    async with operations_of(config, patient=True) as operations:
        marked = await mark_cancelled(operations, run, reason, operator)
        if marked is None:
            raise no_such_run(run)
        jobs = 0
        until = time.monotonic() + _LOCKED_S
        while True:
            jobs += await _pass(operations, run)
            left = await left_of(operations, run)
            if not left.idle or time.monotonic() >= until:
                break
            await asyncio.sleep(_AGAIN_S)
        await note_end(operations, run, jobs, operator)
    return Cancelled(marked, jobs, left)


async def _pass(operations: Operations, run: str) -> int:
    idle, jobs = (await left_of(operations, run)).idle, 0
    if idle:
        with bar(idle, f"cancel {run}") as progress:
            async for count in cancel_idle(operations, run):
                jobs += count
                progress.at(jobs, f"{jobs} jobs")
    return jobs


def document(run: str, done: Cancelled) -> dict[str, object]:
    """What came of it, as JSON has it."""
    return {
        "run": run,
        "changed": done.marked.new,
        "cancelled": plain(done.marked.cancellation),
        "jobs": done.jobs,
        "in_flight": done.left.in_flight,
        "uncertain": done.left.uncertain,
        "idle": done.left.idle,
    }


def _tell(run: str, done: Cancelled) -> None:
    console, left, end = people(), done.left, done.marked.cancellation
    if not done.marked.new:
        console.print(
            f"run {run} was cancelled by {end.actor} at {plain(end.at)}: {end.reason or 'no reason'}"
        )
    console.print(f"run {run} is cancelled: {done.jobs} jobs that had not started never will", style="green")
    if left.in_flight:
        console.print(f"  {left.in_flight} run, and end by themselves")
    if left.uncertain:
        console.print(f"  {left.uncertain} may have had their effect: each is found out, or unresolved")
    if left.idle:
        console.print(f"  {left.idle} are locked; none will start. Run this again", style="red")
