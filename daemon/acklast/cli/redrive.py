"""``acklast redrive``: dead letters tried again, a few at first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

import typer

from acklast.cli import redrive_changes, redrive_verdict
from acklast.cli.bar import bar
from acklast.cli.dead_select import Fingerprint, LaneOption, ReasonOption, RunOption, Since, Until, wanted_of
from acklast.cli.exits import epilog
from acklast.cli.lane_target import As, operations_of, operator_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.redrive_given import LARGEST, RedriveId
from acklast.cli.redrive_view import (
    document,
    expires_of,
    headline,
    plan_document,
    tell,
    tell_plan,
    tell_trial,
)
from acklast.cli.redrive_watch import exit_of, watch
from acklast.cli.spans import parse_span
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger import redrives
from acklast.ledger.operate import Operator
from acklast.ledger.redrive_plan import Meant, Preview, preview
from acklast.ledger.redrive_plan import plan as freeze
from acklast.ledger.redrives import Redrive, RedriveStatus
from acklast.ledger.trials import Trial
from acklast.pacing.controls import Refused

app = typer.Typer(help="Dead letters tried again, a few at first.")


@app.callback()
def _group() -> None:
    """Dead letters tried again, a few at first."""


@app.command(epilog=epilog(Exit.NOT_FOUND))
def plan(
    letters: Annotated[
        list[int] | None, typer.Argument(metavar="[ID]...", help="Letters by id.", max=LARGEST)
    ] = None,
    lane: LaneOption = None,
    run: RunOption = None,
    reason: ReasonOption = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Freeze the exact set of letters that is to be tried again, and show it. Nothing starts yet."""
    wanted = wanted_of(lane, run, reason, fingerprint, since, until)
    if bool(letters) == (not wanted.all):
        raise Refused(
            "it is not said which letters",
            "Give ids, or options that narrow it such as --lane or --fingerprint; not both",
        )
    settings = configured(config)
    meant = Meant(wanted, tuple(letters or ()))
    made, found = asyncio.run(_plan(settings, meant, operator_of(as_)))
    lane_of = settings.lanes.get(made.lane)
    expires = expires_of(found, lane_of.keep_payload_s if lane_of else None)
    missing = max(0, len(set(meant.letters)) - made.letters - sum(made.excluded.values()))
    if as_json:
        say_json(plan_document(made, found, expires, missing))
    else:
        tell_plan(people(), made, found, expires, missing)
    return Exit.OK


async def _plan(config: Config, meant: Meant, operator: Operator) -> tuple[Redrive, Preview]:
    async with operations_of(config, patient=True) as operations:
        with bar(None, "freeze"):
            made = await freeze(operations, meant, config.dead.max_redrives, operator)
            return made, await preview(operations, made, config.version)


@app.command("list", epilog=epilog())
def list_(
    lane: LaneOption = None,
    open_: Annotated[bool, typer.Option("--open", help="Those that are not at their end.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")] = 20,
    before: Annotated[
        int | None, typer.Option(metavar="ID", help="Those before this one.", max=LARGEST)
    ] = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """List redrives, the latest first."""
    found = asyncio.run(_list(configured(config), lane, limit, before, open_=open_))
    if as_json:
        say_json({"redrives": [document(one) for one in found]})
        return Exit.OK
    for one in found:
        people().print(headline(one))
    if not found:
        people().print("no redrives")
    return Exit.OK


async def _list(
    config: Config, lane: str | None, limit: int, before: int | None, *, open_: bool
) -> list[Redrive]:
    statuses = [status for status in RedriveStatus if not status.ended] if open_ else None
    async with operations_of(config) as operations:
        return await redrives.redrives(operations, limit, lane=lane, statuses=statuses, before=before)


@app.command(
    epilog=epilog(
        Exit.NOT_FOUND, Exit.UNFIT, Exit.CANCELLED, Exit.TIMED_OUT, incomplete="redrive status --watch"
    )
)
def status(
    redrive: RedriveId,
    letters: Annotated[bool, typer.Option("--letters", help="Its letters, one by one, instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Letters at most.")] = 50,
    after: Annotated[
        int, typer.Option(min=0, max=LARGEST, metavar="POSITION", help="Letters behind this one.")
    ] = 0,
    watching: Annotated[bool, typer.Option("--watch", help="Until it ends, or asks for a verdict.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="How long to watch at most: 90s, 30m, 2h, 1d.")
    ] = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show how far a redrive is, or the letters of its set in the order in which they are tried.

    With --watch the exit code tells how it ended.
    """
    settings = configured(config)
    if watching:
        longest_s = parse_span(timeout).total_seconds() if timeout else float("inf")
        return exit_of(asyncio.run(watch(settings, redrive, longest_s, as_json=as_json)))
    found, page, refused = asyncio.run(_status(settings, redrive, limit if letters else 0, after))
    following = page[-1].position if len(page) == limit and page[-1].position < found.letters else None
    if as_json:
        listed = {"letters_listed": page, "next": following} if letters else {}
        say_json({**document(found), "refusals": refused, **listed})
    elif letters:
        _tell_letters(page, following)
    else:
        tell(people(), found, refused)
    return Exit.OK


async def _status(
    config: Config, redrive: int, limit: int, after: int
) -> tuple[Redrive, list[Trial], Mapping[str, int]]:
    async with operations_of(config) as operations:
        found = await redrives.one(operations, redrive)
        page = await redrives.trials(operations, redrive, limit, after) if limit else []
        return found, page, await redrives.refusals(operations, found)


def _tell_letters(page: list[Trial], following: int | None) -> None:
    for one in page:
        tell_trial(people(), one)
    if following:
        people().print(f"next: --after {following}")


app.command(epilog=epilog(Exit.NOT_FOUND))(redrive_changes.start)
app.command(epilog=epilog(Exit.NOT_FOUND))(redrive_changes.pause)
app.command(epilog=epilog(Exit.NOT_FOUND))(redrive_changes.resume)
app.command(epilog=epilog(Exit.NOT_FOUND))(redrive_changes.cancel)
app.command(epilog=epilog(Exit.NOT_FOUND))(redrive_verdict.verdict)
