"""``acklast runs proof``: the account of every job of a run, in a file with a digest."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import inspect
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer

from acklast.cli.bar import Bar, bar
from acklast.cli.lane_target import operations_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json
from acklast.cli.proof import ORDER, PRUNABLE
from acklast.cli.run_target import RunName, no_such_run
from acklast.cli.whole_file import whole_file
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.api import State
from acklast.ledger.operate import Operations
from acklast.ledger.runs import Item, items_of, standing_of

COLUMNS: Final = tuple(inspect.signature(Item).parameters)
_TELL: Final = 1_000


@dataclass(frozen=True, slots=True)
class Proof:
    """What the file holds, and whether it is all that was promised."""

    run: str
    manifest: int | None
    counts: Mapping[State, int]
    pruned: Mapping[State, int]
    sha256: str

    @property
    def items(self) -> int:
        return sum(self.counts.values())

    @property
    def holds(self) -> bool:
        """Every job of the manifest is in the file, or was removed by retention."""
        return self.manifest is None or self.manifest == self.items + sum(self.pruned.values())


def proof(
    run: RunName,
    out: Annotated[Path, typer.Option(help="The file to write, CSV.", dir_okay=False)],
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Write every job of a run into a file, at one moment, and check that the sum holds."""
    made = asyncio.run(_write(configured(config), run, out))
    if as_json:
        say_json(document(made, out))
    else:
        _tell(made, out)
    return Exit.OK if made.holds else Exit.UNFIT


def document(made: Proof, out: Path) -> dict[str, object]:
    return {
        "run": made.run,
        "file": str(out),
        "sha256": made.sha256,
        "manifest": made.manifest,
        "items": made.items,
        "counts": {state.value: made.counts.get(state, 0) for state in ORDER},
        "pruned": {state.value: made.pruned.get(state, 0) for state in PRUNABLE},
        "holds": made.holds,
    }


async def _write(config: Config, run: str, out: Path) -> Proof:
    async with operations_of(config, patient=True) as operations, operations.snapshot():
        standing = await standing_of(operations, run)
        if standing is None:
            raise no_such_run(run)
        with whole_file(out) as file, bar(standing.total, f"proof of {run}") as progress:
            counts = await _write_items(operations, run, file, progress)
    with out.open("rb") as whole:
        digest = hashlib.file_digest(whole, "sha256").hexdigest()
    return Proof(run, standing.manifest, counts, standing.pruned, digest)


async def _write_items(operations: Operations, run: str, file: TextIO, progress: Bar) -> Counter[State]:
    counts = Counter[State]()
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    async with aclosing(items_of(operations, run)) as items:  # type: ignore[type-var]
        async for item in items:
            writer.writerow([_cell(getattr(item, name)) for name in COLUMNS])
            counts[item.state] += 1
            if not counts.total() % _TELL:
                progress.at(counts.total(), f"{counts.total()} jobs")
    return counts


def _cell(value: object) -> object:
    return "" if value is None else plain(value)


def _tell(made: Proof, out: Path) -> None:
    console = people()
    console.print(f"{made.items} jobs of run {made.run} in {out}")
    console.print(f"sha256 {made.sha256}")
    terms = " + ".join(f"{state} {made.counts.get(state, 0)}" for state in ORDER)
    gone = sum(made.pruned.values())
    pruned = f" + {gone} pruned" if gone else ""
    if made.manifest is None:
        console.print(f"{terms}{pruned}: no manifest to compare with")
    else:
        sign, verdict = ("=", "holds") if made.holds else ("!=", "does not hold")
        console.print(
            f"manifest {made.manifest} {sign} {terms}{pruned}: {verdict}",
            style="green" if made.holds else "red",
        )
