"""``acklast dead``: what came to an end without its effect, by kind and one by one."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from acklast.cli import dead_changes, dead_export
from acklast.cli.dead_select import (
    Fingerprint,
    Id,
    LaneOption,
    ReasonOption,
    RunOption,
    Since,
    Until,
    cursor_of,
    no_such_letter,
    token,
    wanted_of,
)
from acklast.cli.dead_show import document, redaction_of, tell
from acklast.cli.exits import epilog
from acklast.cli.lane_target import operations_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, safe, say_json, second
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger import dead
from acklast.ledger.dead import Cursor, Entry, Group, Note, Wanted, Whole
from acklast.ledger.operate import Operations
from acklast.ledger.redrives import of_letter
from acklast.ledger.trials import Trial

app = typer.Typer(help="Dead letters: what came to an end without its effect.")


@app.callback()
def _group() -> None:
    """Dead letters: what came to an end without its effect."""


@app.command(epilog=epilog())
def groups(
    lane: LaneOption = None,
    run: RunOption = None,
    reason: ReasonOption = None,
    fingerprint: Fingerprint = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The largest so many.")] = 50,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show the kinds of failures: how many letters of each, since when, from which versions, the trend."""
    wanted = wanted_of(lane, run, reason, fingerprint)
    found = asyncio.run(_groups(configured(config), wanted, limit + 1))
    shown = found[:limit]
    if as_json:
        told = [{**plain(group), "trend": group.trend} for group in shown]
        say_json({"groups": told, "more": len(found) > limit})
    else:
        _tell_groups(shown, more=len(found) > limit)
    return Exit.OK


async def _groups(config: Config, wanted: Wanted, limit: int) -> list[Group]:
    async with operations_of(config) as operations:
        return await dead.groups(operations, wanted, limit)


def _tell_groups(found: list[Group], *, more: bool) -> None:
    console = people()
    for group in found:
        of = f", run {safe(group.run)}" if group.run else ""
        console.print(f"{group.letters:>9,}  {group.lane or '-'}{of}: {safe(group.reason)}  {group.failure}")
        seen = f"{second(group.first_at)} to {second(group.last_at)}"
        versions = ", ".join(map(safe, group.versions))
        console.print(
            f"{'':>11}{seen}, by {versions}; {group.trend}: {group.last_hour:,} within the last hour"
        )
    if more:
        console.print("and more: narrow it, or give a larger --limit")
    if not found:
        console.print("no dead letters")


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
    """List dead letters without their messages, those that failed last first."""
    wanted = wanted_of(lane, run, reason, fingerprint, since, until)
    found = asyncio.run(_page(configured(config), wanted, limit, cursor_of(after)))
    following = token(found[-1].cursor) if len(found) == limit else None
    if as_json:
        say_json({"letters": found, "next": following})
    else:
        _tell_list(found, following)
    return Exit.OK


async def _page(config: Config, wanted: Wanted, limit: int, after: Cursor | None) -> list[Entry]:
    async with operations_of(config) as operations:
        return await dead.page(operations, wanted, limit, after)


def _tell_list(found: list[Entry], following: str | None) -> None:
    console = people()
    for entry in found:
        at = second(entry.last_failure_at)
        key = "no key" if entry.key is None else safe(entry.key)
        console.print(
            f"{entry.id:>9}  {at}  {entry.lane or '-'}  {key}: {safe(entry.reason)}  {entry.failure}"
        )
    if following:
        console.print(f"next: --after {following}")
    if not found:
        console.print("no dead letters")


@app.command(epilog=epilog(Exit.NOT_FOUND))
def show(
    letter: Id,
    payload: Annotated[bool, typer.Option("--payload", help="Its message too, redacted.")] = False,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show a dead letter and what was said of it; its message only with --payload."""
    settings = configured(config)
    found, notes, tried = asyncio.run(_one(settings, letter, message=payload))
    if found is None:
        return _gone(letter, notes, as_json=as_json)
    redaction = redaction_of(settings, found.entry.lane) if payload else None
    if as_json:
        say_json({**document(found, redaction), "notes": notes, "redrives": tried})
    else:
        tell(people(), found, notes, tried, redaction)
    return Exit.OK


async def _one(config: Config, letter: int, *, message: bool) -> tuple[Whole | None, list[Note], list[Trial]]:
    async with operations_of(config) as operations:
        found = await dead.one(operations, letter, message=message)
        return found, await dead.notes(operations, letter), await _tried(operations, found)


async def _tried(operations: Operations, found: Whole | None) -> list[Trial]:
    if found is None or found.entry.key is None:
        return []
    return await of_letter(operations, found.entry.id, found.entry.lane, found.entry.key)


def _gone(letter: int, notes: list[Note], *, as_json: bool) -> Exit:
    """What is left of a letter that is not there: who removed it, and what was said of it before."""
    if not notes:
        raise no_such_letter(letter)
    if as_json:
        say_json({"id": letter, "notes": notes})
    for note in [] if as_json else notes:
        did = "dropped it" if note.action == "dead.drop" else "said"
        people().print(f"{second(note.at)} {note.actor} ({note.login}) {did}: {safe(note.text)}")
    return Exit.NOT_FOUND


app.command(epilog=epilog())(dead_export.export)
app.command(epilog=epilog(incomplete="dead drop"))(dead_changes.drop)
app.command(epilog=epilog(Exit.NOT_FOUND))(dead_changes.note)
