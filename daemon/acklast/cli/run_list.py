"""``acklast runs list``: the newest runs, and how each stands."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from acklast.cli.lane_target import operations_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json, second
from acklast.cli.proof import ORDER
from acklast.cli.run_set import said, shown
from acklast.cli.run_target import NoSuchRun, labels_of
from acklast.cli.run_view import forecast, oldest_line, status_line
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.runs import COUNTED, Listed, Wanted, created_at, list_by_header, list_runs
from acklast.pacing.controls import Refused


def list_(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many to list at most.")] = 20,
    before: Annotated[str | None, typer.Option(help="Only runs older than this one: the next page.")] = None,
    by_header: Annotated[
        bool, typer.Option("--by-header", help="Those that only their jobs' headers name, by name.")
    ] = False,
    owner: Annotated[str | None, typer.Option(help="Only this owner's.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only those with this label; with each, where repeated."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Only those that are not finished.")] = False,
    late: Annotated[bool, typer.Option("--late", help="Only those that are late and not finished.")] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help=f"Count runs of more than {COUNTED:,} jobs, too.")
    ] = False,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """List runs with their counts, the newest first."""
    if by_header and (owner or label):
        raise Refused("a run of headers alone has no owner and no label", "Leave --by-header away")
    labels = {name: value for name, value in labels_of(label or []).items() if value is not None}
    wanted = Wanted(owner, labels, open_, late, exact)
    found = asyncio.run(_listed(configured(config), limit, before, by_header, wanted))
    if as_json:
        say_json({"runs": [entry(one) for one in found]})
    else:
        _tell(found)
    return Exit.OK


async def _listed(
    config: Config, limit: int, before: str | None, by_header: bool, wanted: Wanted
) -> list[Listed]:
    async with operations_of(config, patient=True) as operations:
        if by_header:
            return await list_by_header(operations, limit, wanted)
        if before is None:
            return await list_runs(operations, limit, wanted)
        if (at := await created_at(operations, before)) is None:
            raise NoSuchRun(f"the ledger has no manifest of run {before!r}", "Take one from an earlier page")
        return await list_runs(operations, limit, wanted, (at, before))


def entry(one: Listed) -> dict[str, object]:
    """A run in a list, as JSON has it; null where it was not counted to the end."""
    view = one.view
    return {
        "run": view.run,
        "manifest": view.manifest,
        "created_at": plain(view.created_at),
        **shown(view.about),
        "cancelled": plain(view.cancelled),
        "counts": {state.value: view.counts.get(state, 0) for state in ORDER} if one.counted else None,
        "open": view.open if one.counted else None,
        **(forecast(view) if one.counted else dict.fromkeys(forecast(view))),
        "oldest": plain(one.oldest),
    }


def _tell(found: list[Listed]) -> None:
    console, now = people(), datetime.now(UTC)
    for one in found:
        view = one.view
        at = second(view.created_at) if view.created_at else "by header"
        counts = ", ".join(f"{state} {view.counts[state]}" for state in ORDER if view.counts.get(state))
        if not one.counted:
            console.print(f"{at}  {view.run}: more than {COUNTED:,} jobs: runs show, or --exact")
        else:
            console.print(f"{at}  {view.run}: {counts or 'no job yet'}; {status_line(view)}")
        if about := said(view.about):
            console.print(f"    {about}")
        if one.oldest is not None:
            console.print(f"    {oldest_line(one.oldest, now)}")
