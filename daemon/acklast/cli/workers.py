"""``acklast workers``: which daemons run what, and how to have one drain from afar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.console import Console

from acklast.cli.dead_changes import Why
from acklast.cli.exits import epilog
from acklast.cli.lane_target import As, operations_of, operator_of, reason_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json, second
from acklast.config import Config
from acklast.errors import AcklastError, Exit
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.workers import State, WorkerView, ask_to_drain, named, read_workers
from acklast.pacing.controls import Refused

app = typer.Typer(
    help="Daemons: which runs what, and having one drain.", epilog=epilog(), invoke_without_command=True
)

_BEGIN_S: Final = 10.0
"""A daemon hears at once, and looks every few seconds where a notice was lost."""
_LOOK_S: Final = 0.1
_HEADER: Final = (
    "WORKER",
    "VERSION",
    "ACKLAST",
    "STATE",
    "LANES",
    "IN FLIGHT",
    "HELD",
    "STARTED",
    "HEARTBEAT",
    "LEASE",
)
_STYLES: Final = {State.DRAINING: "yellow", State.SILENT: "red", State.ENDED: "dim"}


class NoSuchWorker(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """No daemon has this name."""

    exit = Exit.NOT_FOUND


@app.callback()
def show(
    context: typer.Context,
    ended: Annotated[bool, typer.Option("--all", help="Also those that ended within a day.")] = False,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show every daemon on the ledger: its versions, lanes, jobs in flight, and whether it drains."""
    if context.invoked_subcommand is not None:
        if as_json or ended:
            raise typer.TyperException("--json and --all belong behind the command.")
        return Exit.OK
    found = asyncio.run(_look(configured(config), ended=ended))
    if as_json:
        say_json({"workers": found})
    else:
        _tell(people(), found)
    return Exit.OK


async def _look(config: Config, *, ended: bool) -> list[WorkerView]:
    async with operations_of(config) as operations:
        return await read_workers(operations, ended=ended)


def _tell(console: Console, found: Sequence[WorkerView]) -> None:
    if not found:
        console.print("no daemon runs on this ledger")
        return
    rows = [_HEADER, *(cells(view) for view in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    console.print(lines[0], style="bold")
    for view, text in zip(found, lines[1:], strict=True):
        console.print(text, style=_STYLES.get(view.state))
        if view.drain_asked_at is not None:
            console.print(
                f"    asked to drain by {view.drain_by} at {second(view.drain_asked_at)}: {view.drain_reason}"
            )


def cells(view: WorkerView) -> tuple[str, ...]:
    """One daemon's row."""
    return (
        view.worker,
        view.version,
        view.release or "?",
        view.state.value,
        ",".join(view.lanes) or "-",
        "-" if view.in_flight is None else str(view.in_flight),
        "-" if view.held is None else str(view.held),
        second(view.started_at),
        second(view.heartbeat_at),
        "-" if view.state in (State.SILENT, State.ENDED) else f"{view.lease_left_s:.0f} s",
    )


# --- draining -------------------------------------------------------------------------------------------


@app.command(epilog=epilog(Exit.NOT_FOUND, incomplete="workers drain"))
def drain(
    name: Annotated[
        str, typer.Argument(help="The daemon: its instance, its worker, HOST:PID, or its session's number.")
    ],
    why: Why,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Have one daemon drain and exit, as SIGTERM has. Whoever manages it is not asked to start it again."""
    view = asyncio.run(_drain(configured(config), name, operator_of(as_), reason_of(why)))
    begun = view.state in (State.DRAINING, State.ENDED)
    if as_json:
        say_json(view)
    else:
        late = f"it has not begun within {_BEGIN_S:g} s, and is still asked to"
        people().print(f"{view.worker}: {view.state.value if begun else late}")
    return Exit.OK if begun else Exit.INCOMPLETE


async def _drain(config: Config, name: str, operator: Operator, why: str) -> WorkerView:
    async with operations_of(config) as operations:
        view = meant(await read_workers(operations, ended=True), name)
        await ask_to_drain(operations, view, operator, why)
        return await _begun(operations, view)


async def _begun(operations: Operations, view: WorkerView) -> WorkerView:
    """Wait until it says that it drains, or has ended; how it is then, or at the end of our patience."""
    ends = time.monotonic() + _BEGIN_S
    while view.state is State.LIVE and time.monotonic() < ends:
        await asyncio.sleep(_LOOK_S)
        found = await read_workers(operations, ended=True)
        view = next((one for one in found if one.session == view.session), view)
    return view


def meant(views: Sequence[WorkerView], name: str) -> WorkerView:
    """The one living daemon that a name means.

    Raises:
        NoSuchWorker: none ever had it, within a day.
        Refused: several have it, or it has ended, or hears nothing.
    """
    found = named(views, name)
    living = [view for view in found if view.state in (State.LIVE, State.DRAINING)]
    if len(living) > 1:
        all_of_them = ", ".join(f"{view.worker} (session {view.session})" for view in living)
        raise Refused(
            f"{name!r} means {len(living)} daemons: {all_of_them}",
            "Give the whole worker, or the session's number",
        )
    if living:
        return living[0]
    others = ", ".join(view.worker for view in views if view.state is State.LIVE) or "none"
    if not found:
        raise NoSuchWorker(f"the ledger knows no daemon {name!r}", f"Those that run are: {others}")
    last = found[-1]
    if last.ended_at is not None:
        raise Refused(f"{last.worker} ended at {second(last.ended_at)}", f"Those that run are: {others}")
    raise Refused(
        f"{last.worker} has not been heard of since {second(last.heartbeat_at)}: it would not hear this",
        "Where it runs still, end it there; or ask again once it reaches the ledger",
    )
