"""``acklast runs``: the account of a run."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from acklast.cli import run_cancel, run_proof, run_set
from acklast.cli.exits import epilog
from acklast.cli.lane_target import operations_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json
from acklast.cli.proof import ORDER, PRUNABLE, progress, proof
from acklast.cli.run_set import said, shown
from acklast.cli.run_target import NoSuchRun, RunName, no_such_run
from acklast.cli.servers import ledger_of
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.api import RunView
from acklast.ledger.runs import Listed, created_at, list_by_header, list_runs

app = typer.Typer(help="Runs: bounded sets of jobs.")


@app.callback()
def _group() -> None:
    """Runs: bounded sets of jobs."""


@app.command(epilog=epilog(Exit.NOT_FOUND, Exit.UNFIT))
def show(
    run: RunName,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show a run's counts and the proof that every job of its manifest is in exactly one state."""
    view = asyncio.run(_run(configured(config), run))
    if view is None:
        raise no_such_run(run)
    if as_json:
        say_json(account(view))
    else:
        _tell(view)
    return Exit.OK if view.balanced else Exit.UNFIT


@app.command("list", epilog=epilog())
def list_(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many to list at most.")] = 20,
    before: Annotated[str | None, typer.Option(help="Only runs older than this one: the next page.")] = None,
    by_header: Annotated[
        bool, typer.Option("--by-header", help="Those that only their jobs' headers name, by name.")
    ] = False,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """List runs with their counts, the newest first."""
    found = asyncio.run(_listed(configured(config), limit, before, by_header))
    if as_json:
        say_json({"runs": [_entry(one) for one in found]})
    else:
        _tell_list(found)
    return Exit.OK


app.command(epilog=epilog(Exit.NOT_FOUND, Exit.UNFIT))(run_proof.proof)
app.command(epilog=epilog(Exit.NOT_FOUND, Exit.INCOMPLETE))(run_cancel.cancel)
app.command("set", epilog=epilog(Exit.NOT_FOUND))(run_set.set_)


async def _listed(config: Config, limit: int, before: str | None, by_header: bool) -> list[Listed]:
    async with operations_of(config) as operations:
        if by_header:
            return await list_by_header(operations, limit)
        if before is None:
            return await list_runs(operations, limit)
        if (at := await created_at(operations, before)) is None:
            raise NoSuchRun(f"the ledger has no manifest of run {before!r}", "Take one from an earlier page")
        return await list_runs(operations, limit, (at, before))


def _entry(one: Listed) -> dict[str, object]:
    return {
        "run": one.run,
        "manifest": one.manifest,
        "created_at": plain(one.created_at),
        "counts": {state.value: one.counts.get(state, 0) for state in ORDER},
        "open": one.open,
    }


def _tell_list(found: list[Listed]) -> None:
    console = people()
    for one in found:
        counts = ", ".join(f"{state} {one.counts[state]}" for state in ORDER if one.counts.get(state))
        at = plain(one.created_at.replace(microsecond=0)) if one.created_at else "by header"
        console.print(f"{at}  {one.run}: {counts or 'no job yet'}")


async def _run(config: Config, run: str) -> RunView | None:
    async with ledger_of(config) as ledger:
        return await ledger.run(run)


def account(view: RunView) -> dict[str, object]:
    """A run as ``--json`` gives it: every state has its count, zero included."""
    return {
        "run": view.run,
        "manifest": view.manifest,
        "counts": {state.value: view.counts.get(state, 0) for state in ORDER},
        "pruned": {state.value: view.pruned.get(state, 0) for state in PRUNABLE},
        "total": view.total,
        "open": view.open,
        "balanced": view.balanced,
        "attempts": view.attempts,
        "created_at": plain(view.created_at),
        **shown(view.about),
        "cancelled": plain(view.cancelled),
        "proof": proof(view),
    }


def _tell(view: RunView) -> None:
    console = people()
    console.print(f"run {view.run}: {progress(view)}")
    if about := said(view.about):
        console.print(f"  {about}")
    if (end := view.cancelled) is not None:
        console.print(f"  cancelled by {end.actor} at {plain(end.at)}: {end.reason or 'no reason given'}")
    for state in ORDER:
        gone = view.pruned.get(state, 0)
        pruned = f"  {gone} of them pruned" if gone else ""
        console.print(f"  {state:<11} {view.counts.get(state, 0):>9}{pruned}")
    console.print(f"  {'attempts':<11} {view.attempts:>9}")
    console.print(proof(view), style="green" if view.balanced else "red")
