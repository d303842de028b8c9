"""``acklast schedule``: what fires when, what has fired, and firing by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console

from acklast.cli.exits import epilog
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.schedule_fire import fire
from acklast.cli.schedule_pause import pause, resume
from acklast.cli.schedule_target import chosen, local_of, moment_of, opened, said, time_of
from acklast.config import Config
from acklast.config.schedules import Schedule, insist_on_runs
from acklast.errors import Exit
from acklast.ledger.schedules import FiringView, Known, Standing

app = typer.Typer(help="Schedules: what fires when, and what has fired.")
app.command(epilog=epilog(incomplete="schedule fire"))(fire)
app.command(epilog=epilog())(pause)
app.command(epilog=epilog())(resume)

MaybeNamed: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="One schedule; else all.")
]
_STYLES: Final = {"ok": "green", "paused": "yellow", "disabled": "yellow", "failing": "red", "failed": "red"}


@app.callback()
def _group() -> None:
    """Schedules: what fires when, and what has fired."""


# --- list -------------------------------------------------------------------------------------------------


@app.command("list", epilog=epilog())
def list_(config: ConfigPath = CONFIG, as_json: Json = False) -> Exit:
    """List the configured schedules: when each fires next, what it fired last, and whether it is paused."""
    settings = configured(config)
    insist_on_runs(settings.schedules)
    found = asyncio.run(_listed(settings))
    if as_json:
        say_json({"schedules": [entry_of(one) for one in found]})
    else:
        for one in found:
            _tell_listed(people(), one)
        if not found:
            people().print("no schedule is configured")
    return Exit.OK


@dataclass(frozen=True, slots=True)
class Listed:
    """One schedule: what it is, how it stands, when it fires next, and its latest firing."""

    name: str
    schedule: Schedule
    standing: Standing
    next: datetime | None
    latest: FiringView | None

    @property
    def state(self) -> str:
        """``ok``, ``paused``, ``disabled``, or how the latest firing is wrong: ``failing``, ``failed``."""
        if not self.schedule.enabled:
            return "disabled"
        if self.standing.paused is not None:
            return "paused"
        if self.latest is not None and self.latest.state == "failed":
            return "failed"
        return "failing" if self.latest is not None and self.latest.next_try_at is not None else "ok"


async def _listed(config: Config) -> list[Listed]:
    async with opened(config) as ledger:
        known = await ledger.look()
        latest = await ledger.latest(list(config.schedules))
    return [
        Listed(name, one, known.of(name), _next(one, known), latest.get(name))
        for name, one in config.schedules.items()
    ]


def _next(schedule: Schedule, known: Known) -> datetime | None:
    return next(schedule.when().after(known.now), None) if schedule.enabled else None


def entry_of(one: Listed) -> dict[str, Any]:
    """A schedule as ``list --json`` gives it."""
    return {
        "name": one.name,
        "state": one.state,
        "lane": one.schedule.lane,
        "cron": one.schedule.cron,
        "time_zone": one.schedule.time_zone,
        "enabled": one.schedule.enabled,
        "catch_up": one.schedule.catch_up,
        "paused": one.standing.paused,
        "next": moment_of(one.name, one.schedule, one.next) if one.next else None,
        "last": one.latest,
    }


def _tell_listed(console: Console, one: Listed) -> None:
    console.print(f"{one.name:<24} ", end="")
    console.print(f"{one.state:<9}", style=_STYLES[one.state], end="")
    console.print(f" {one.schedule.cron} {one.schedule.time_zone} -> {one.schedule.lane}")
    if one.standing.paused is not None:
        paused = one.standing.paused
        console.print(f"    paused since {time_of(paused.at)} by {paused.by}: {paused.reason}")
    elif one.next is not None:
        console.print(
            f"    next {local_of(one.schedule, one.next)} as {one.schedule.run_of(one.name, one.next)}"
        )
    if one.latest is not None:
        console.print(f"    last {local_of(one.schedule, one.latest.scheduled_at)}: {said(one.latest)}")


# --- next -------------------------------------------------------------------------------------------------


@app.command("next", epilog=epilog())
def next_(
    name: MaybeNamed = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=1000, help="How many of each.")] = 5,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show when schedules fire next, as what runs, and what the clocks do to it. Asks no server."""
    settings = configured(config)
    insist_on_runs(settings.schedules)
    now = datetime.now(UTC)
    found = {
        one: [moment_of(one, schedule, at) for at in islice(schedule.when().after(now), count)]
        for one, schedule in chosen(settings, name).items()
    }
    if as_json:
        say_json({"schedules": [{"name": one, "next": moments} for one, moments in found.items()]})
    else:
        _tell_next(settings, found)
    return Exit.OK


def _tell_next(config: Config, found: Mapping[str, list[dict[str, Any]]]) -> None:
    console = people()
    for name, moments in found.items():
        schedule = config.schedules[name]
        off = "" if schedule.enabled else " (disabled: none of these fires)"
        console.print(f"{name}: {schedule.cron} {schedule.time_zone}{off}", style="bold")
        for one in moments:
            remark = f"  {one['remark']}" if one["remark"] else ""
            console.print(f"    {local_of(schedule, one['at'])}  {one['run']}{remark}")


# --- history ----------------------------------------------------------------------------------------------


@app.command(epilog=epilog())
def history(
    name: MaybeNamed = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The latest so many.")] = 20,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show what fired, what was skipped and what failed and why, the latest first."""
    settings = configured(config)
    found = asyncio.run(_history(settings, name, limit))
    if as_json:
        say_json({"schedule": name, "history": found})
        return Exit.OK
    console = people()
    for one in found:
        console.print(f"{time_of(one.scheduled_at)}  {one.schedule}: {said(one)}")
        for bad in one.bad_rows:
            console.print(f"    {bad['row']}: {bad['problem']}")
    if not found:
        console.print(f"nothing of {name} has fired yet" if name else "nothing has fired yet")
    return Exit.OK


async def _history(config: Config, name: str | None, limit: int) -> list[FiringView]:
    async with opened(config) as ledger:
        return await ledger.history(name, limit)
