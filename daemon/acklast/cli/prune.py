"""``acklast ledger prune``: remove what is older than the lanes' windows, and put down who did it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from acklast.cli.bar import bar
from acklast.cli.lane_target import As, operator_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.servers import ledger_of
from acklast.config import Config, select
from acklast.errors import Exit, LedgerUnavailable
from acklast.ledger.operate import Operator
from acklast.ledger.postgres import PostgresLedger
from acklast.ledger.retention import Pruned, Step
from acklast.pruner import keeps_of, pruning


@dataclass(slots=True)
class Account:
    """What one command removed, or in a dry run would have removed."""

    lanes: list[str]
    dry_run: bool
    pruned: Pruned = field(default_factory=Pruned)
    complete: bool = False

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def tell(self) -> None:
        console = people()
        for name, count in asdict(self.pruned).items():
            console.print(f"  {name:<10} {count:>9}  {MEANINGS[name]}")
        done = "would be removed or emptied" if self.dry_run else "removed or emptied"
        console.print(f"{self.pruned.rows} rows {done}{'' if self.complete else ', not to the end'}")


MEANINGS = {
    "done": "jobs past keep_done_s",
    "dead": "jobs past keep_dead_s",
    "cancelled": "jobs past keep_done_s",
    "attempts": "of those jobs, or without a job",
    "letters": "dead letters past keep_dead_s",
    "payloads": "dead letters emptied, past keep_payload_s",
    "sessions": "worker sessions that ended long ago",
    "redrives": "redrives that ended long ago, and plans never started",
}


def prune(
    lane: Annotated[
        list[str] | None, typer.Option("--lane", "-l", help="Only this lane; may be given several times.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and remove nothing.")] = False,
    rate: Annotated[
        int | None,
        typer.Option(min=1, help="Rows a second; otherwise a tenth of the time, so that lanes run on."),
    ] = None,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Remove what is older than the lanes' keep_done_s, keep_dead_s and keep_payload_s. Daemons do it too.

    Jobs that are not final stay, whatever their age. Safe to interrupt and to repeat. Where the
    ledger has roles it takes a daemon's login; an operator's may count, by --dry-run.
    """
    settings = select(configured(config), lane or [])
    account = Account(list(settings.lanes), dry_run)
    try:
        asyncio.run(_prune(settings, account, rate, operator_of(as_)))
    finally:
        # Whatever ended it early: what was removed is told.
        if as_json:
            say_json(account.document())
        else:
            account.tell()
    return Exit.OK


async def _prune(config: Config, account: Account, rate: int | None, operator: Operator) -> None:
    async with ledger_of(config) as ledger:
        if account.dry_run:
            await _follow(ledger.prune(keeps_of(config.lanes), dry_run=True), account)
            return
        # Two entries: one that was killed in between has its beginning there.
        windows = {name: asdict(keep) for name, keep in keeps_of(config.lanes).items()}
        await ledger.note(operator, "prune", {"lanes": windows})
        try:
            await _follow(pruning(ledger, keeps_of(config.lanes), rate_per_s=rate), account)
        finally:
            await _note_end(ledger, account, operator)


async def _follow(steps: AsyncGenerator[Step, None], account: Account) -> None:
    with bar(0, "prune") as progress:
        async with aclosing(steps):
            async for step in steps:
                account.pruned += step.pruned
                progress.at(step.at, f"{account.pruned.rows} rows", step.of)
    account.complete = True


async def _note_end(ledger: PostgresLedger, account: Account, operator: Operator) -> None:
    with suppress(LedgerUnavailable):  # the reason why it ended early, most likely
        await ledger.note(operator, "prune.ended", account.document())
