"""``acklast runs``: the account of a run."""

from __future__ import annotations

import asyncio

import typer

from acklast.cli import run_cancel, run_list, run_proof, run_set, run_watch
from acklast.cli.exits import epilog
from acklast.cli.lane_target import operations_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json
from acklast.cli.proof import ORDER, PRUNABLE, proof
from acklast.cli.run_set import said, shown
from acklast.cli.run_target import RunName, no_such_run
from acklast.cli.run_view import forecast, oldest_line, status_line
from acklast.cli.servers import ledger_of
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.api import RunView
from acklast.ledger.runs import Oldest, oldest_of

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
    view, oldest = asyncio.run(_run(configured(config), run))
    if view is None:
        raise no_such_run(run)
    if as_json:
        say_json(account(view, oldest))
    else:
        _tell(view, oldest)
    return Exit.OK if view.balanced else Exit.UNFIT


app.command("list", epilog=epilog(Exit.NOT_FOUND))(run_list.list_)
app.command(epilog=epilog(Exit.NOT_FOUND, Exit.UNFIT))(run_proof.proof)
app.command(epilog=epilog(Exit.NOT_FOUND, incomplete="runs cancel"))(run_cancel.cancel)
app.command(epilog=epilog(Exit.NOT_FOUND, Exit.CANCELLED, Exit.TIMED_OUT, incomplete="runs watch"))(
    run_watch.watch
)
app.command("set", epilog=epilog(Exit.NOT_FOUND))(run_set.set_)


async def _run(config: Config, run: str) -> tuple[RunView | None, Oldest | None]:
    async with ledger_of(config) as ledger:
        view = await ledger.run(run)
    if view is None or not view.open:
        return view, None
    async with operations_of(config, patient=True) as operations:
        return view, (await oldest_of(operations, [run])).get(run)


def account(view: RunView, oldest: Oldest | None = None) -> dict[str, object]:
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
        **forecast(view),
        "oldest": plain(oldest),
        "created_at": plain(view.created_at),
        **shown(view.about),
        "cancelled": plain(view.cancelled),
        "proof": proof(view),
    }


def _tell(view: RunView, oldest: Oldest | None) -> None:
    console = people()
    console.print(f"run {view.run}: {status_line(view)}")
    if about := said(view.about):
        console.print(f"  {about}")
    if (end := view.cancelled) is not None:
        console.print(f"  cancelled by {end.actor} at {plain(end.at)}: {end.reason or 'no reason given'}")
    for state in ORDER:
        gone = view.pruned.get(state, 0)
        pruned = f"  {gone} of them pruned" if gone else ""
        console.print(f"  {state:<11} {view.counts.get(state, 0):>9}{pruned}")
    console.print(f"  {'attempts':<11} {view.attempts:>9}")
    if oldest is not None:
        console.print(f"  {oldest_line(oldest, view.at or oldest.since)}")
    console.print(proof(view), style="green" if view.balanced else "red")
