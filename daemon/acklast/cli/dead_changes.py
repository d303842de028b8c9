"""``acklast dead drop`` and ``note``: what people do to dead letters, each with its entry in the audit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from typing import Annotated, Final, TypeAlias

import typer

from acklast.cli.bar import bar
from acklast.cli.dead_select import (
    Fingerprint,
    Id,
    LaneOption,
    ReasonOption,
    RunOption,
    Since,
    Until,
    no_such_letter,
    wanted_of,
)
from acklast.cli.lane_target import As, operations_of, operator_of, reason_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger import dead
from acklast.ledger.dead import Wanted
from acklast.ledger.dead_changes import Dropped
from acklast.ledger.dead_changes import drop as drop_letters
from acklast.ledger.dead_changes import look as look_at_letters
from acklast.ledger.dead_changes import note as note_letter
from acklast.ledger.operate import Operations, Operator
from acklast.pacing.controls import Refused

_BATCH: Final = 200
"""Letters that one commit drops."""

Why: TypeAlias = Annotated[str, typer.Option("--why", help="Why; it stays in the audit.")]


def drop(
    why: Why,
    letters: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Letters by id.")] = None,
    lane: LaneOption = None,
    run: RunOption = None,
    reason: ReasonOption = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and drop nothing.")] = False,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Remove dead letters with their messages, for good. Their account stays: the jobs, and the audit.

    A letter whose job is not over stays: it is the way back. Name letters by id or by what they are.
    """
    wanted = wanted_of(lane, run, reason, fingerprint, since, until)
    if bool(letters) == (not wanted.all):
        raise Refused(
            "it is not said which letters",
            "Give ids, or options that narrow it such as --fingerprint; not both",
        )
    text, operator = reason_of(why), operator_of(as_)
    told = asyncio.run(_drop(configured(config), wanted, letters or [], text, operator, dry_run=dry_run))
    if as_json:
        say_json({**asdict(told), "dry_run": dry_run})
    else:
        _tell(told, dry_run=dry_run)
    return Exit.INCOMPLETE if told.kept or told.missing else Exit.OK


async def _drop(
    config: Config, wanted: Wanted, letters: Sequence[int], why: str, operator: Operator, *, dry_run: bool
) -> Dropped:
    told = Dropped()
    async with operations_of(config) as operations:
        of = len(letters) or await dead.total(operations, wanted)
        with bar(of, "drop") as progress:
            async for batch in _batches(operations, wanted, letters):
                if dry_run:
                    told += await look_at_letters(operations, batch)
                else:
                    told += await drop_letters(operations, batch, why, operator)
                progress.at(told.dropped + told.kept + told.missing, f"{told.dropped} dropped")
    return told


async def _batches(
    operations: Operations, wanted: Wanted, letters: Sequence[int]
) -> AsyncIterator[Sequence[int]]:
    if letters:
        for first in range(0, len(letters), _BATCH):
            yield letters[first : first + _BATCH]
        return
    after = None
    while found := await dead.page(operations, wanted, _BATCH, after):
        after = found[-1].cursor
        yield [entry.id for entry in found]


def _tell(told: Dropped, *, dry_run: bool) -> None:
    console = people()
    console.print(f"{told.dropped} dead letters {'would be dropped' if dry_run else 'dropped'}")
    if told.kept:
        console.print(f"{told.kept} stay: their jobs are not over")
    if told.missing:
        console.print(f"{told.missing} are not there, or somebody is at work on them")


def note(
    letter: Id,
    text: Annotated[str, typer.Argument(help="What there is to say.")],
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Say something of a dead letter, for whoever looks at it next. What was said before stays."""
    said, operator = reason_of(text), operator_of(as_)
    if not asyncio.run(_note(configured(config), letter, said, operator)):
        raise no_such_letter(letter)
    if as_json:
        say_json({"letter": letter, "note": said, "actor": operator.name})
    else:
        people().print(f"noted on dead letter {letter}")
    return Exit.OK


async def _note(config: Config, letter: int, text: str, operator: Operator) -> bool:
    async with operations_of(config) as operations:
        return await note_letter(operations, letter, text, operator)
