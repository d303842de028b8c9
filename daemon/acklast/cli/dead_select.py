"""Which dead letters a command means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias

import typer

from acklast.cli.spans import parse_moment, parse_span
from acklast.errors import AcklastError, Exit
from acklast.ledger.dead import Cursor, Wanted
from acklast.pacing.controls import Refused

LaneOption: TypeAlias = Annotated[str | None, typer.Option("--lane", "-l", help="Of this lane.")]
RunOption: TypeAlias = Annotated[str | None, typer.Option("--run", help="Of this run; '' for no run.")]
ReasonOption: TypeAlias = Annotated[str | None, typer.Option("--reason", help="With this reason code.")]
Fingerprint: TypeAlias = Annotated[
    str | None, typer.Option("--fingerprint", "-f", help="Whose failure has this fingerprint.")
]
Since: TypeAlias = Annotated[
    str | None, typer.Option(help="That failed last since then: RFC 3339 with an offset, or 2h, 1d ago.")
]
Until: TypeAlias = Annotated[str | None, typer.Option(help="That failed last before then; as --since.")]
Id: TypeAlias = Annotated[int, typer.Argument(help="The letter's id, from 'acklast dead list'.")]


class NoSuchLetter(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    exit = Exit.NOT_FOUND


def no_such_letter(letter: int) -> NoSuchLetter:
    return NoSuchLetter(
        f"the ledger has no dead letter {letter}",
        "It was dropped, or retention has removed it; 'acklast dead list' has those that are there",
    )


def wanted_of(
    lane: str | None,
    run: str | None,
    reason: str | None,
    fingerprint: str | None,
    since: str | None = None,
    until: str | None = None,
) -> Wanted:
    """
    Raises:
        Refused: a time cannot be read.
    """
    return Wanted(lane, run, reason, fingerprint, moment_or_ago(since), moment_or_ago(until))


def moment_or_ago(text: str | None) -> datetime | None:
    """A moment, or one that is some time ago.

    Raises:
        Refused: it is neither.
    """
    if text is None:
        return None
    if text[:1].isdigit() and "T" not in text.upper() and " " not in text:
        ago: timedelta = parse_span(text)
        return datetime.now(UTC) - ago
    return parse_moment(text)


def token(cursor: Cursor) -> str:
    """Where the next page begins, as a word for the command line."""
    return f"{cursor.at.astimezone(UTC).isoformat()}/{cursor.id}"


def cursor_of(text: str | None) -> Cursor | None:
    """
    Raises:
        Refused: it is none.
    """
    if text is None:
        return None
    at, _, letter = text.partition("/")
    if not letter.isascii() or not letter.isdigit() or len(letter) > 18:
        raise Refused(f"{text!r} is no place in a list", "Take 'next' from the page before")
    return Cursor(parse_moment(at), int(letter))
