"""``acklast schedule pause|resume``: whether a schedule fires by itself, for every scheduler."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from acklast.cli.lane_target import As, Why, operator_of, reason_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.schedule_target import Named, chosen, opened
from acklast.config.schedules import Schedule
from acklast.errors import Exit
from acklast.ledger.operate import Operator
from acklast.ledger.schedules import Schedules
from acklast.schedule.due import Rules, due
from acklast.schedule.scheduler import firings_of, kind_of


def pause(
    name: Named, reason: Why, as_: As = None, config: ConfigPath = CONFIG, as_json: Json = False
) -> Exit:
    """Have a schedule fire no more by itself, in every scheduler. What has begun to fire goes on."""
    settings, operator, why = configured(config), operator_of(as_), reason_of(reason)
    kind = kind_of(name, chosen(settings, name)[name])

    async def make() -> bool:
        async with opened(settings) as ledger:
            return await ledger.pause(kind, operator, why)

    changed = asyncio.run(make())
    if as_json:
        say_json({"schedule": name, "action": "pause", "changed": changed, "actor": operator.name})
    else:
        people().print(f"{name} is paused" if changed else f"{name} was paused already")
    return Exit.OK


def resume(
    name: Named,
    backfill: Annotated[
        bool, typer.Option("--backfill", help="Catch up what did not fire meanwhile, as catch_up says.")
    ] = False,
    reason: Annotated[str, typer.Option("--why", "--reason", "-r", help="Why, for the history.")] = "",
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Have a schedule fire again. What did not fire meanwhile stays undone, unless you ask for it."""
    settings, operator, why = configured(config), operator_of(as_), " ".join(reason.split())[:500]
    schedule = chosen(settings, name)[name]

    async def make() -> list[str] | None:
        async with opened(settings) as ledger:
            return await _resumed(ledger, name, schedule, operator, why, backfill=backfill)

    runs = asyncio.run(make())
    changed = runs is not None
    if as_json:
        told = {"schedule": name, "action": "resume", "changed": changed, "actor": operator.name}
        say_json({**told, "fired": runs or []})
    elif not changed:
        people().print(f"{name} was not paused")
    else:
        people().print(f"{name} fires again" + (f", and {', '.join(runs)} now" if runs else ""))
    return Exit.OK


async def _resumed(
    ledger: Schedules, name: str, schedule: Schedule, operator: Operator, why: str, *, backfill: bool
) -> list[str] | None:
    """The runs that are caught up; None where it was not paused."""
    known = await ledger.look()
    paused = known.of(name).paused
    since = paused.at if paused is not None and backfill else known.now
    if not await ledger.resume(name, operator, why, since):
        return None
    if paused is None or not backfill:
        return []
    found = due(known.now, paused.at, schedule.when(), Rules.of(schedule))
    firings = firings_of(name, schedule, found, known.now)
    return await ledger.decide(name, known.now, firings, found.skipped)
