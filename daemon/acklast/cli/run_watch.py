"""``acklast runs watch``: a run's counts as they change, until it is finished."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Final

import typer
from rich.console import Group
from rich.progress_bar import ProgressBar

from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import plain, text_of
from acklast.cli.proof import ORDER
from acklast.cli.run_set import said, shown
from acklast.cli.run_target import RunName, no_such_run
from acklast.cli.run_view import forecast, status_line
from acklast.cli.servers import ledger_of
from acklast.cli.spans import parse_span
from acklast.cli.watching import Look, screen
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.api import Ledger, RunView, State
from acklast.ledger.run_status import ENDED, Status, status

_LOOK_S: Final = 1.0
_SHARE: Final = 20
"""A look that takes a second, as that at a run of a million jobs, is repeated after twenty."""


def watch(
    run: RunName,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="How long to watch at most: 90s, 30m, 2h, 1d.")
    ] = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show a run until nothing of it is open; the exit code tells how it ended.

    With --json a line for each change; so too where standard output is no terminal.
    """
    longest_s = parse_span(timeout).total_seconds() if timeout else float("inf")
    view = asyncio.run(_watch(configured(config), run, longest_s, as_json=as_json))
    return exit_of(view)


def exit_of(view: RunView) -> Exit:
    """What a run's end comes to; ``TIMED_OUT`` where it has not come."""
    match status(view):
        case Status.CANCELLED:
            return Exit.CANCELLED
        case Status.FINISHED | Status.FINISHED_LATE:
            failed = view.counts.get(State.DEAD, 0) + view.counts.get(State.UNRESOLVED, 0)
            return Exit.INCOMPLETE if failed or view.counts.get(State.CANCELLED, 0) else Exit.OK
        case _:
            return Exit.TIMED_OUT


async def _watch(config: Config, run: str, longest_s: float, *, as_json: bool) -> RunView:
    async with ledger_of(config) as ledger:
        with screen(_LOOK, as_json=as_json) as show:
            async for view in views(ledger, run, longest_s):
                show(view)
    return view


async def views(ledger: Ledger, run: str, longest_s: float) -> AsyncIterator[RunView]:
    """The run again and again, until it is finished or the time is up.

    At most a twentieth of the time is spent in looking.

    Raises:
        NoSuchRun: the ledger does not know it.
        LedgerUnavailable: the ledger does not answer.
    """
    until = time.monotonic() + longest_s
    while True:
        began = time.monotonic()
        view = await ledger.run(run)
        if view is None:
            raise no_such_run(run)
        yield view
        now = time.monotonic()
        if status(view) in ENDED or now >= until:
            return
        await asyncio.sleep(min(max(_LOOK_S, _SHARE * (now - began)), until - now))


# --- showing --------------------------------------------------------------------------------------------


def picture(view: RunView) -> Group:
    """A run as a terminal shows it: what is done of it, its counts, its pace, its deadline."""
    ended = view.total - view.open
    lines = [f"run {view.run}: {status_line(view)}", _counts(view)]
    if about := said(view.about):
        lines.append(about)
    bar = ProgressBar(total=max(view.total, 1), completed=ended, width=60)
    return Group(*map(text_of, lines[:1]), bar, *map(text_of, lines[1:]))


def _counts(view: RunView) -> str:
    counts = (f"{state} {view.counts[state]}" for state in ORDER if view.counts.get(state))
    return ", ".join(counts) or "no job yet"


def document(view: RunView) -> dict[str, object]:
    """A line of ``--json``."""
    return {
        "run": view.run,
        "at": plain(view.at),
        "manifest": view.manifest,
        "counts": {state.value: view.counts.get(state, 0) for state in ORDER},
        "open": view.open,
        **forecast(view),
        **shown(view.about),
        "cancelled": plain(view.cancelled),
    }


_LOOK: Final[Look[RunView]] = Look(
    changes=lambda view: (view.counts, view.manifest, status(view), view.about),
    lines=lambda view: [f"run {view.run}: {_counts(view)}; {status_line(view)}"],
    document=document,
    picture=picture,
)
