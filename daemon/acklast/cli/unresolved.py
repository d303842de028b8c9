"""``acklast unresolved``: jobs whose effect may have happened, for a person to decide on."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from acklast.cli import unresolved_ask, unresolved_changes
from acklast.cli.dead_select import (
    Fingerprint,
    LaneOption,
    ReasonOption,
    RunOption,
    Since,
    Until,
    cursor_of,
    token,
    wanted_of,
)
from acklast.cli.dead_show import redaction_of
from acklast.cli.exits import epilog
from acklast.cli.lane_target import operations_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, safe, say_json, second
from acklast.cli.unresolved_show import Account, can_reconcile, document, read, tell
from acklast.cli.unresolved_target import By, ByOption, one_of
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.dead import Cursor, Wanted
from acklast.ledger.unresolved import Held, page

app = typer.Typer(help="Unresolved jobs: their effect may have happened, and a person decides.")


@app.callback()
def _group() -> None:
    """Unresolved jobs: their effect may have happened, and a person decides."""


@app.command("list", epilog=epilog())
def list_(
    lane: LaneOption = None,
    run: RunOption = None,
    reason: ReasonOption = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="NEXT", help="The page after another one.")] = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """List unresolved jobs without their messages, those that came last first."""
    wanted = wanted_of(lane, run, reason, fingerprint, since, until)
    found = asyncio.run(_page(configured(config), wanted, limit, cursor_of(after)))
    following = token(found[-1].entry.cursor) if len(found) == limit else None
    if as_json:
        say_json({"unresolved": [listed(held) for held in found], "next": following})
    else:
        _tell_list(found, following)
    return Exit.OK


def listed(held: Held) -> dict[str, Any]:
    """A job of the list, for JSON."""
    told = plain(held)
    entry: dict[str, Any] = told.pop("entry")
    for closed in ("held", "closed_at", "closed_as", "seen"):  # the same for all of them
        del entry[closed]
    return {**entry, **told}


async def _page(config: Config, wanted: Wanted, limit: int, after: Cursor | None) -> list[Held]:
    async with operations_of(config) as operations:
        return await page(operations, wanted, limit, after)


def _tell_list(found: list[Held], following: str | None) -> None:
    console = people()
    for held in found:
        entry = held.entry
        console.print(
            f"{entry.id:>9}  {second(entry.last_failure_at)}  {entry.lane}  {safe(entry.key or '')}:"
            f" {safe(entry.reason)}  {entry.failure}{_standing(held)}"
        )
    if following:
        console.print(f"next: --after {following}")
    if not found:
        console.print("no unresolved jobs")


def _standing(held: Held) -> str:
    """What is being done about it, or was found."""
    if held.retried:
        return "  (to run again)"
    if held.asked:
        return "  (being asked)"
    return f"  (asked: {safe(held.code or held.found)})" if held.found else ""


@app.command(epilog=epilog(Exit.NOT_FOUND))
def show(
    name: Annotated[str, typer.Argument(metavar="KEY|ID", help="The job's key, or its letter's id.")],
    lane: LaneOption = None,
    by: ByOption = None,
    payload: Annotated[bool, typer.Option("--payload", help="Its message too, redacted.")] = False,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show an unresolved job: its attempts, what was asked and found, what was said, what can be done.

    By its letter's id it is shown also after somebody has decided.
    """
    settings = configured(config)
    account = asyncio.run(_account(settings, name, by, lane, message=payload))
    redaction = redaction_of(settings, account.job.lane) if payload else None
    reconciles = can_reconcile(settings, account.job.lane, account.job.type)
    if as_json:
        say_json(document(account, reconciles, redaction))
    else:
        tell(people(), account, reconciles, redaction)
    return Exit.OK


async def _account(config: Config, name: str, by: By | None, lane: str | None, *, message: bool) -> Account:
    async with operations_of(config) as operations:
        named = await one_of(operations, name, by, lane)
        return await read(operations, named, message=message)


app.command(epilog=epilog(incomplete="unresolved resolve"))(unresolved_changes.resolve)
app.command(epilog=epilog(incomplete="unresolved resolve"))(unresolved_ask.reconcile)
