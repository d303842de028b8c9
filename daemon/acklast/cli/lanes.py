"""``acklast lanes``: how every lane stands in the whole fleet, and what operators did to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from acklast.cli import lane_controls
from acklast.cli.exits import epilog
from acklast.cli.lane_target import operations_of, require
from acklast.cli.lane_view import LaneView, document, lanes_of, views
from acklast.cli.lane_why import State, explain
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json
from acklast.cli.queues import look
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.controls import Target
from acklast.ledger.operate import Audited
from acklast.ledger.standing import read_standing

app = typer.Typer(
    help="Lanes: how they stand, and what operators ask of them.",
    epilog=epilog(),
    invoke_without_command=True,
)
app.command("pause", epilog=epilog(incomplete="lanes"))(lane_controls.pause)
app.command("resume", epilog=epilog(incomplete="lanes"))(lane_controls.resume)
app.command("set", epilog=epilog(incomplete="lanes"))(lane_controls.set_)

_STYLES = {
    State.RUNNING: "green",
    State.IDLE: "green",
    State.PAUSED: "yellow",
    State.WAITING: "yellow",
    State.STOPPED: "red",
}
_HEADER = ("LANE", "STATE", "BUDGET", "QUOTA", "NOW", "USED", "IN FLIGHT", "WAITING", "DAEMONS", "PERMITS")
_NUMBERS = ("NOW", "USED", "IN FLIGHT", "WAITING", "DAEMONS")


@app.callback()
def show(context: typer.Context, config: ConfigPath = CONFIG, as_json: Json = False) -> Exit:
    """Show every lane: its quota, what of it is in force and used, what waits, and why it does not run."""
    if context.invoked_subcommand is None:
        found, blind = asyncio.run(_look(configured(config)))
        explained = [(view, *explain(view)) for view in found]
        if as_json:
            lanes = [document(view, state, why) for view, state, why in explained]
            say_json({"lanes": lanes, "broker": blind})
        else:
            _tell(people(), explained, blind)
    elif as_json:
        raise typer.TyperException("--json belongs behind the command.")
    return Exit.OK


async def _look(config: Config) -> tuple[list[LaneView], str | None]:
    async with operations_of(config) as operations:
        standing = await read_standing(operations)
    queues, blind = await look(config, lanes_of(config, standing))
    return views(config, standing, queues), blind


def _tell(console: Console, explained: Sequence[tuple[LaneView, State, str]], blind: str | None) -> None:
    rows = [_HEADER, *(cells(view, state) for view, state, _ in explained)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    console.print(_line(_HEADER, widths), style="bold")
    for (_, state, why), row in zip(explained, rows[1:], strict=True):
        console.print(_line(row, widths))
        console.print(f"    {why}", style=_STYLES[state])
    if blind is not None:
        console.print(f"what waits on the broker could not be seen: {blind}", style="red")


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Numbers stand to the right, names to the left."""
    cells = (
        cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
        for name, cell, width in zip(_HEADER, row, widths, strict=True)
    )
    return "  ".join(cells).rstrip()


def cells(view: LaneView, state: State) -> tuple[str, ...]:
    """One lane's row."""
    period_s = view.configured.period_s if view.configured else 1.0
    effective = view.effective_per_s
    return (
        view.lane,
        state.value,
        view.budget or "-",
        str(view.configured) if view.configured else "-",
        "-" if effective is None else _pace(effective, period_s),
        _pace(view.used_per_s, period_s),
        str(view.in_flight),
        "?" if view.waiting is None else f"{view.waiting:,}",
        str(len(view.daemons)),
        ("+".join(str(daemon.permits or 0) for daemon in view.daemons) or "0") if view.budget else "-",
    )


def _pace(per_s: float, period_s: float) -> str:
    """A rate as the quota counts it."""
    count = per_s * period_s
    number = f"{count:,.0f}" if count >= 10 or count == round(count) else f"{count:.2g}"
    return f"{number}/{'' if period_s == 1 else f'{period_s:g} '}s"


# --- what was done --------------------------------------------------------------------------------------


@app.command(epilog=epilog())
def history(
    lane: Annotated[str | None, typer.Argument(help="The lane, its budget included; otherwise all.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The latest so many.")] = 50,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show what operators did to lanes and budgets: who, when, why, what was before and what after."""
    entries = asyncio.run(_history(configured(config), lane, limit))
    if as_json:
        say_json({"lane": lane, "history": entries})
    else:
        for entry in entries:
            _tell_entry(people(), entry)
        if not entries:
            people().print("nothing was ever asked of " + (f"lane {lane}" if lane else "any lane"))
    return Exit.OK


async def _history(config: Config, lane: str | None, limit: int) -> list[Audited]:
    async with operations_of(config) as operations:
        if lane is not None:
            await require(config, operations, Target.LANE, lane)
        settings = config.lanes.get(lane) if lane else None
        return await operations.history(lane, settings.budget if settings else None, limit)


def _tell_entry(console: Console, entry: Audited) -> None:
    at = str(plain(entry.at)).replace("T", " ").split(".")[0].split("+")[0]
    who = entry.actor if entry.login.startswith(f"{entry.actor}@") else f"{entry.actor} ({entry.login})"
    why = f": {entry.reason}" if entry.reason else ""
    console.print(f"{at}Z  {entry.action:<6} {entry.target} {entry.name} by {who}{why}")
    console.print(f"    before {_state(entry.before)}; after {_state(entry.after)}")


def _state(controls: Sequence[dict[str, Any]]) -> str:
    return ", ".join(_shown(one) for one in controls) or "as configured"


def _shown(control: dict[str, Any]) -> str:
    until = f" until {control['until']}" if "until" in control else ""
    match control["control"]:
        case "quota":
            what = f"quota {control['amount']} per {control['period_s']:g} s"
        case "concurrency":
            what = f"concurrency {control['amount']}"
        case _:
            what = "paused"
    return f"{what}{until}"
