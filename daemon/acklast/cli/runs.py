"""``acklast runs``: the account of a run."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from acklast.cli.exits import epilog
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json
from acklast.cli.proof import ORDER, PRUNABLE, progress, proof
from acklast.cli.servers import ledger_of
from acklast.config import Config
from acklast.errors import AcklastError, Exit
from acklast.ledger.api import RunView

app = typer.Typer(help="Runs: bounded sets of jobs.")


class NoSuchRun(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    exit = Exit.NOT_FOUND


@app.callback()
def _group() -> None:
    """Runs: bounded sets of jobs."""


@app.command(epilog=epilog(Exit.NOT_FOUND, Exit.UNFIT))
def show(
    run: Annotated[str, typer.Argument(help="The run's id.")],
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show a run's counts and the proof that every job of its manifest is in exactly one state."""
    view = asyncio.run(_run(configured(config), run))
    if view is None:
        raise NoSuchRun(f"the ledger knows no run {run!r}", "Check its id; a run begins with its first job")
    if as_json:
        say_json(account(view))
    else:
        _tell(view)
    return Exit.OK if view.balanced else Exit.UNFIT


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
        "proof": proof(view),
    }


def _tell(view: RunView) -> None:
    console = people()
    console.print(f"run {view.run}: {progress(view)}")
    for state in ORDER:
        gone = view.pruned.get(state, 0)
        pruned = f"  {gone} of them pruned" if gone else ""
        console.print(f"  {state:<11} {view.counts.get(state, 0):>9}{pruned}")
    console.print(f"  {'attempts':<11} {view.attempts:>9}")
    console.print(proof(view), style="green" if view.balanced else "red")
