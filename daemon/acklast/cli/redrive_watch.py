"""``acklast redrive status --watch``: a redrive as it goes on, until it ends or somebody must decide."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

from rich.console import Group
from rich.progress_bar import ProgressBar

from acklast.cli.lane_target import operations_of
from acklast.cli.output import text_of
from acklast.cli.redrive_view import document, facts, headline
from acklast.cli.watching import Look, screen
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.operate import Operations
from acklast.ledger.redrives import Redrive, RedriveStatus, one

_LOOK_S: Final = 1.0


def exit_of(redrive: Redrive) -> Exit:
    """What a redrive that was watched has come to."""
    match redrive.status:
        case RedriveStatus.FINISHED:
            return Exit.OK if redrive.done == redrive.letters else Exit.INCOMPLETE
        case RedriveStatus.CANCELLED:
            return Exit.CANCELLED
        case RedriveStatus.ASKING | RedriveStatus.STOPPED:
            return Exit.UNFIT
        case RedriveStatus.PLANNED | RedriveStatus.RUNNING | RedriveStatus.PAUSED:
            return Exit.TIMED_OUT


async def watch(config: Config, redrive: int, longest_s: float, *, as_json: bool) -> Redrive:
    """Show it until it has ended, asks for a verdict, or the time is up.

    Raises:
        NoSuchRedrive: there is none.
        LedgerUnavailable: the ledger does not answer.
    """
    async with operations_of(config) as operations:
        with screen(_LOOK, as_json=as_json) as show:
            async for found in _looks(operations, redrive, longest_s):
                show(found)
    return found


async def _looks(operations: Operations, redrive: int, longest_s: float) -> AsyncIterator[Redrive]:
    until = time.monotonic() + longest_s
    while True:
        found = await one(operations, redrive)
        yield found
        now = time.monotonic()
        # What waits for a verdict may still have jobs at work: they come to their end first.
        if ((found.status.ended or found.status.waits) and not found.out) or now >= until:
            return
        await asyncio.sleep(min(_LOOK_S, until - now))


def picture(redrive: Redrive) -> Group:
    """A redrive as a terminal shows it."""
    settled = redrive.letters - redrive.left - redrive.out
    bar = ProgressBar(total=max(redrive.letters, 1), completed=settled, width=60)
    lines = (f"  {name:<9} {value}" for name, value in facts(redrive))
    return Group(text_of(headline(redrive)), bar, *map(text_of, lines))


_LOOK: Final[Look[Redrive]] = Look(
    changes=lambda found: (found.status, found.step, found.released, found.refused, found.out),
    lines=lambda redrive: [headline(redrive)],
    document=document,
    picture=picture,
)
