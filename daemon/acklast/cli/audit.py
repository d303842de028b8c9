"""``acklast audit``: who changed what, when and why, and what came of it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from acklast.cli.dead_select import moment_or_ago
from acklast.cli.lane_target import operations_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import line, people, safe, say_json, second
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.audit import Asked, Entry, entries


def audit(
    lane: Annotated[str | None, typer.Option("--lane", "-l", help="Of this lane.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Of jobs with this key.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Of this run.")] = None,
    operator: Annotated[str | None, typer.Option("--operator", help="By this operator.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="Such as dead.drop, or dead.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Since then: RFC 3339 with an offset, or 2h, 1d ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Before then; as --since.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    before: Annotated[int | None, typer.Option(metavar="ID", help="Only those before this entry.")] = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show what people changed: who, when, why and to what effect, the latest first."""
    asked = Asked(lane, key, run, operator, action, moment_or_ago(since), moment_or_ago(until))
    found = asyncio.run(_entries(configured(config), asked, limit, before))
    following = found[-1].id if len(found) == limit else None
    if as_json:
        say_json({"entries": found, "next": following})
        return Exit.OK
    for entry in found:
        _tell(entry)
    if following:
        people().print(f"next: --before {following}")
    if not found:
        people().print("nothing was put down")
    return Exit.OK


async def _entries(config: Config, asked: Asked, limit: int, before: int | None) -> list[Entry]:
    async with operations_of(config) as operations:
        return await entries(operations, asked, limit, before)


def _tell(entry: Entry) -> None:
    console = people()
    whom = [("lane", entry.lane), ("key", entry.key), ("run", entry.run)]
    what = "".join(f", {name} {safe(value)}" for name, value in whom if value)
    by = safe(entry.operator) + (f" ({safe(entry.login)})" if entry.login else "")
    console.print(f"{entry.id:>7}  {second(entry.at)}  {entry.action}{what}  by {by}")
    if entry.reason:
        console.print(f"{'':9}why: {safe(entry.reason)}")
    if effect := _worth_telling(entry.effect):
        console.print(f"{'':9}{safe(effect)}")


def _worth_telling(effect: Any) -> str:
    shown = {name: value for name, value in effect.items() if value not in (None, [], {}, "")}
    return line(shown) if shown else ""
