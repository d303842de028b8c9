"""``acklast dead export``: dead letters as JSON lines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer

from acklast.cli.bar import Bar, bar
from acklast.cli.dead_select import Fingerprint, LaneOption, ReasonOption, RunOption, Since, Until, wanted_of
from acklast.cli.dead_show import document, redaction_of
from acklast.cli.lane_target import operations_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import line, people, say_json
from acklast.cli.whole_file import whole_file
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger import dead
from acklast.ledger.dead import Wanted, Whole
from acklast.ledger.operate import Operations

_PAGE: Final = 100
"""Letters in memory at a time: each may be of 16 MB, as RabbitMQ allows."""


def export(
    lane: LaneOption = None,
    run: RunOption = None,
    reason: ReasonOption = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; else standard output.", dir_okay=False)
    ] = None,
    payload: Annotated[bool, typer.Option("--payload", help="With their messages, redacted.")] = False,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Write dead letters as JSON lines, those that failed last first, as they are at one moment."""
    wanted = wanted_of(lane, run, reason, fingerprint, since, until)
    count = asyncio.run(_export(configured(config), wanted, out, payload=payload))
    if out is not None and as_json:
        say_json({"file": str(out), "letters": count})
    elif out is not None:
        people().print(f"{count} dead letters in {out}")
    return Exit.OK


async def _export(config: Config, wanted: Wanted, out: Path | None, *, payload: bool) -> int:
    count = 0
    async with operations_of(config) as operations, operations.snapshot():
        of = await dead.total(operations, wanted)
        with _writing(out) as file, bar(of, "export") as progress:
            async for letter in _letters(operations, wanted, message=payload):
                redaction = redaction_of(config, letter.entry.lane) if payload else None
                file.write(line(document(letter, redaction)) + "\n")
                count += 1
                _at(progress, count)
    return count


def _at(progress: Bar, count: int) -> None:
    if not count % _PAGE:
        progress.at(count, f"{count} letters")


async def _letters(operations: Operations, wanted: Wanted, *, message: bool) -> AsyncIterator[Whole]:
    after = None
    while found := await dead.whole_page(operations, wanted, _PAGE, after, message=message):
        for letter in found:
            yield letter
        after = found[-1].entry.cursor


def _writing(out: Path | None) -> AbstractContextManager[TextIO]:
    """The file, or standard output."""
    return nullcontext(sys.stdout) if out is None else whole_file(out)
