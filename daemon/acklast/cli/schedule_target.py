"""Which schedule a command means, and how a firing is told."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

import typer

from acklast.cli.servers import fit_ledger
from acklast.config import Config
from acklast.config.problems import meant
from acklast.config.rotation import Servers
from acklast.config.schedules import Schedule
from acklast.errors import ConfigError
from acklast.ledger.connect import Address, Link
from acklast.ledger.schedules import FiringView, Schedules

Named: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]


def chosen(config: Config, name: str | None) -> Mapping[str, Schedule]:
    """The schedules that a command is about: one, or all.

    Raises:
        ConfigError: there is none of that name.
    """
    if name is None:
        return config.schedules
    if name not in config.schedules:
        there = meant(name, config.schedules).capitalize() if config.schedules else "It has none"
        raise ConfigError(f"no schedule {name!r} in {config.path}", there)
    return {name: config.schedules[name]}


@asynccontextmanager
async def linked(config: Config) -> AsyncIterator[tuple[Link, Address]]:
    """One connection to the ledger, and the way to more.

    Raises:
        ConfigError, SchemaError: it must not be used like this.
        LedgerUnavailable: it does not answer.
    """
    address = await fit_ledger(config, Servers(config, os.environ))
    link = Link(address)
    try:
        yield link, address
    finally:
        await link.close()


@asynccontextmanager
async def opened(config: Config) -> AsyncIterator[Schedules]:
    """The schedules in the ledger; raises as ``linked`` does."""
    async with linked(config) as (link, _):
        yield Schedules(link)


def moment_of(name: str, schedule: Schedule, at: datetime) -> dict[str, Any]:
    """A firing to come, as JSON has it."""
    cron = schedule.when()
    local = cron.local(at).isoformat()
    return {"at": at, "local": local, "run": schedule.run_of(name, at), "remark": cron.remark(at)}


def said(one: FiringView) -> str:
    if one.state == "skipped":
        since = f" since {time_of(one.skipped_from)}" if one.skipped_from and one.skipped != 1 else ""
        return f"{one.skipped} skipped{since}"
    counts = f"{one.rows} rows, {one.promised} jobs"
    counts += "".join(
        f", {count} {word}"
        for count, word in ((one.known, "known before"), (one.conflicts, "conflicts"), (one.bad, "bad"))
        if count
    )
    by = f" by {one.actor}" if one.actor else ""
    error = f"; {one.error}" if one.error else ""
    again = f"; again at {time_of(one.next_try_at)}" if one.next_try_at else ""
    return f"{one.run} {one.state}{by}, {counts}{error}{again}"


def time_of(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def local_of(schedule: Schedule, at: datetime) -> str:
    return f"{schedule.when().local(at):%a %Y-%m-%d %H:%M %Z (%z)}"
