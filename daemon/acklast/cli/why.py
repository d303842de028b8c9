"""``acklast why``: why one job is not running, with the evidence and what helps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.console import Console

from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json
from acklast.cli.spans import moment
from acklast.cli.why_read import Found, find
from acklast.cli.why_reason import Answer, Code, Need, Reason
from acklast.errors import Exit

_STYLES: Final = {Need.ACT: "red", Need.WAIT: "yellow", Need.NOTHING: "green"}
_NOWHERE: Final = frozenset({Code.UNKNOWN, Code.OTHER_LANE, Code.UNFILED, Code.BROKER_UNSEEN})
"""What is said of a key of which nothing is known."""


def why(
    key: Annotated[str, typer.Argument(help="The job's key.")],
    lane: Annotated[str | None, typer.Option("--lane", "-l", help="The lane; otherwise every lane.")] = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Say why a job is not running: each reason with its evidence, and the command that helps.

    Looks at the ledger and the broker, and changes nothing. Where a message seems to be lost it looks at the
    lane's queues for some seconds.
    """
    found = asyncio.run(find(configured(config), key, lane))
    if as_json:
        say_json(document(found))
    else:
        console = people()
        for answer in found.answers:
            tell(console, found, answer)
    return exit_of(found.answers)


def exit_of(answers: Sequence[Answer]) -> Exit:
    """``NOT_FOUND`` where nothing is known of the key, ``UNFIT`` where somebody must do something."""
    codes = {reason.code for answer in answers for reason in answer.reasons}
    if codes <= _NOWHERE:
        return Exit.NOT_FOUND
    return Exit.UNFIT if any(answer.need is Need.ACT for answer in answers) else Exit.OK


def document(found: Found) -> dict[str, object]:
    """For JSON."""
    answers = [
        {
            "lane": one.lane,
            "state": one.state,
            "need": one.need.value,
            "reasons": plain(one.reasons),
            "position": plain(one.position),
        }
        for one in found.answers
    ]
    return {"key": found.key, "at": plain(found.at), "broker": found.blind, "answers": answers}


def tell(console: Console, found: Found, answer: Answer) -> None:
    """Print one answer for people."""
    where = f" in lane {answer.lane}" if answer.lane else ""
    console.print(f"{found.key}{where}: {answer.state or 'no job'}", style="bold")
    for reason in answer.reasons:
        _tell_reason(console, reason)
    place = answer.position
    if place is not None and place.ahead is not None and place.starts_at is not None:
        when = moment(place.starts_at, found.at)
        console.print(f"  at most {place.ahead:,} ahead, {place.per_s:.3g}/s: its turn by about {when}")


def _tell_reason(console: Console, reason: Reason) -> None:
    unsure = "" if reason.certain else ", not certain"
    console.print(f"  {reason.says}  [{reason.code}{unsure}]", style=_STYLES[reason.need])
    if reason.helps is not None:
        console.print(f"    {reason.helps}")
