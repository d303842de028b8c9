"""``acklast ledger erase``: what is known of a key goes, and its account stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from acklast.cli.lane_target import As, operations_of, operator_of, reason_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, safe, say_json
from acklast.config import Config
from acklast.errors import AcklastError, Exit
from acklast.ledger.erase import Erased, Left, lanes_of
from acklast.ledger.erase import erase as erase_lane
from acklast.ledger.operate import Operator


class NoSuchKey(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    exit = Exit.NOT_FOUND


def erase(
    key: Annotated[str, typer.Option("--key", help="The key whose content goes.")],
    why: Annotated[str, typer.Option("--why", help="Why; it stays in the audit.")],
    lane: Annotated[str | None, typer.Option("--lane", "-l", help="In this lane alone.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and erase nothing.")] = False,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Erase what a key's messages held: payloads, headers, free text, results. Its account stays.

    A job that is not over is left as it is, and told. Safe to repeat.
    """
    text, operator = reason_of(why), operator_of(as_)
    told = asyncio.run(_erase(configured(config), key, lane, text, operator, dry_run=dry_run))
    if as_json:
        say_json(document(key, told, dry_run=dry_run))
    else:
        _tell(told, dry_run=dry_run)
    return Exit.INCOMPLETE if any(isinstance(one, Left) for one in told) else Exit.OK


async def _erase(
    config: Config, key: str, lane: str | None, why: str, operator: Operator, *, dry_run: bool
) -> list[Erased | Left]:
    async with operations_of(config) as operations:
        lanes = [one for one in await lanes_of(operations, key) if lane in (None, one)]
        if not lanes:
            place = f"in lane {lane!r}" if lane is not None else "in any lane"
            raise NoSuchKey(
                f"the ledger has nothing by the key {key!r} {place}", "Check the key, as it was sent"
            )
        return [await erase_lane(operations, one, key, why, operator, dry_run=dry_run) for one in lanes]


def document(key: str, told: Sequence[Erased | Left], *, dry_run: bool) -> dict[str, object]:
    """What came of it, as JSON has it."""
    return {
        "key": key,
        "dry_run": dry_run,
        "erased": [asdict(one) for one in told if isinstance(one, Erased)],
        "left": [asdict(one) for one in told if isinstance(one, Left)],
    }


def _tell(told: Sequence[Erased | Left], *, dry_run: bool) -> None:
    console = people()
    for one in told:
        place = safe(one.lane) or "no lane"
        if isinstance(one, Left):
            console.print(f"{place}: left as it is: {one.why}. {one.remedy}", style="red")
            continue
        would = "would be erased" if dry_run else "erased"
        counts = ", ".join(
            f"{count} {name}" for name, count in asdict(one).items() if name != "lane" and count
        )
        console.print(f"{place}: {would}: {counts or 'nothing is left to erase'}")
