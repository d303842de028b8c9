"""``acklast schedule fire``: a firing by hand, now or one that was missed; once, however often asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any, Final

import typer

from acklast.cli.lane_target import As, operator_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import line, people, say_json
from acklast.cli.schedule_target import Named, chosen, linked, said
from acklast.cli.spans import parse_moment
from acklast.config import Config
from acklast.config.schedules import Schedule, insist_on_runs
from acklast.errors import Exit
from acklast.ledger.connect import Address, Link
from acklast.ledger.firings import Claimed, Firings
from acklast.ledger.operate import Operator
from acklast.ledger.schedules import Cause, FiringView, NewFiring, Schedules
from acklast.pacing.controls import Refused
from acklast.schedule.firing import Maker, Worker, maker_of
from acklast.schedule.rows import NoRow, Row
from acklast.telemetry.events import Emitter
from acklast.template import BadField

SHOWN: Final = 5
"""How many rows a dry run shows."""
_YEAR: Final = timedelta(days=366)


def fire(
    name: Named,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="A firing that was missed, by its time (RFC 3339)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the run and its first rows; change nothing.")
    ] = False,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Fire a schedule now, also a paused one. What has fired as the same run does not fire again."""
    settings = configured(config)
    schedule = chosen(settings, name)[name]
    insist_on_runs({name: schedule})
    given = parse_moment(at) if at is not None else None
    if dry_run:
        return _tell_dry(asyncio.run(_dry(settings, name, given)), as_json=as_json)
    new, view = asyncio.run(_fire(settings, name, given, operator_of(as_)))
    if as_json:
        say_json({"schedule": name, "run": view.run, "new": new, "firing": view})
    else:
        people().print(said(view) if new else f"fired before: {said(view)}")
    fine = view.state == "done" and not (view.bad or view.conflicts)
    return Exit.OK if fine else Exit.INCOMPLETE


def moment_to_fire(schedule: Schedule, given: datetime | None, now: datetime) -> datetime:
    """The time that the firing is for.

    Raises:
        Refused: the schedule does not fire then, or that time has not come yet.
    """
    if given is None:
        return now.replace(microsecond=0)
    cron = schedule.when()
    if not cron.is_at(given):
        before = list(cron.between(given - timedelta(days=40), given)) or list(
            cron.between(given - _YEAR, given)
        )
        near = [*before[-1:], *islice(cron.after(given), 1)]
        shown = " and ".join(cron.local(one).isoformat() for one in near)
        raise Refused(f"it does not fire at {given.isoformat()}", f"Near that it fires at {shown}")
    if given > now:
        raise Refused(f"{given.isoformat()} has not come yet", "Leave --at out to fire now")
    return given


async def _fire(
    config: Config, name: str, given: datetime | None, operator: Operator
) -> tuple[bool, FiringView]:
    schedule = config.schedules[name]
    async with linked(config) as (link, address):
        ledger = Schedules(link)
        at = moment_to_fire(schedule, given, (await ledger.look()).now)
        run = schedule.run_of(name, at)
        whose, new = await ledger.fire(name, NewFiring(at, run, Cause.OPERATOR), operator)
        if whose != name:
            raise Refused(
                f"run {run!r} is one of schedule {whose!r}", f"Give schedules.{name}.run another form"
            )
        firings, worker = _worker(config, link, address)
        if (claimed := await firings.claim_run(run)) is not None:
            await worker.work(claimed)
        view = await ledger.of_run(run)
        assert view is not None, "it was made above"
        return new, view


def _worker(config: Config, link: Link, address: Address) -> tuple[Firings, Worker]:
    lease_s = config.ledger.lease_s
    firings = Firings(link, f"command of {config.instance}", lease_s)
    return firings, Worker(config, address, firings, Emitter(), lease_s=lease_s)


# --- a dry run --------------------------------------------------------------------------------------------


async def _dry(config: Config, name: str, given: datetime | None) -> dict[str, Any]:
    schedule = config.schedules[name]
    async with linked(config) as (link, address):
        ledger = Schedules(link)
        now = (await ledger.look()).now
        at = moment_to_fire(schedule, given, now)
        run = schedule.run_of(name, at)
        there = await ledger.of_run(run)
        _, worker = _worker(config, link, address)
        claimed = Claimed(name, at, run, 0, 0, None, 0, now)
        async with worker.reading(claimed, SHOWN) as pages:
            read = await anext(pages)
    maker = maker_of(config, claimed)
    return {
        "schedule": name,
        "run": run,
        "at": at,
        "fired_before": there is not None,
        "rows": [_shown(row, maker) for row in read.rows],
        "more": not read.last,
    }


def _shown(row: Row | NoRow, maker: Maker) -> dict[str, Any]:
    """A row as a dry run has it: its key, or why it has none, and its fields."""
    if isinstance(row, NoRow):
        return {"key": None, "problem": f"{row.where}: {row.problem}", "row": None}
    try:
        return {"key": maker.key(row), "problem": None, "row": row.fields}
    except BadField as error:
        return {"key": None, "problem": f"{row.where}: {error}", "row": row.fields}


def _tell_dry(found: Mapping[str, Any], *, as_json: bool) -> Exit:
    if as_json:
        say_json(found)
        return Exit.OK
    console = people()
    before = ", which has fired already: nothing would happen" if found["fired_before"] else ""
    console.print(f"run {found['run']}{before}")
    for row in found["rows"]:
        console.print(f"    {row['key'] or row['problem']}  {line(row['row'])}")
    console.print("    and more" if found["more"] else f"    {len(found['rows'])} rows in all")
    return Exit.OK
