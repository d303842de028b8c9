"""Which unresolved jobs a command means: by key, by letter, or by what they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from acklast.cli.output import safe
from acklast.errors import AcklastError, Exit
from acklast.ledger.dead import Wanted
from acklast.ledger.operate import Operations
from acklast.ledger.unresolved import Named, named, page
from acklast.pacing.controls import Refused

_MOST_DIGITS = 18
"""Of an id."""


class By(StrEnum):
    """What a name on the command line is."""

    ID = "id"
    KEY = "key"


Names: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY|ID]...", help="Jobs by key, or by their letters' ids.")
]
ByOption: TypeAlias = Annotated[
    By | None, typer.Option("--by", help="What the names are, where a key looks like an id.")
]


class NotUnresolved(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    exit = Exit.NOT_FOUND


@dataclass(frozen=True, slots=True)
class Meant:
    """Jobs by name, or all that are ``wanted``."""

    names: Sequence[str]
    by: By | None
    wanted: Wanted


def meant_of(names: Sequence[str] | None, by: By | None, wanted: Wanted) -> Meant:
    """
    Raises:
        Refused: neither is said, or both.
    """
    narrowed = Wanted(lane=wanted.lane) != wanted
    if (names and narrowed) or (not names and wanted.all):
        raise Refused(
            "it is not said which jobs",
            "Give keys or ids, perhaps with --lane, or options that narrow it such as --reason; not both",
        )
    return Meant(list(dict.fromkeys(names or ())), by, wanted)


@dataclass(frozen=True, slots=True)
class Picked:
    """Letters of one batch. ``unknown``: names that are of no unresolved job."""

    letters: Sequence[int]
    unknown: Sequence[str] = ()


async def picked(operations: Operations, meant: Meant, batch: int) -> AsyncIterator[Picked]:
    """The letters of the jobs that are meant, so many at a time.

    Raises:
        Refused: a name may be of more than one.
        LedgerUnavailable: the ledger does not answer.
    """
    if meant.names:
        for first in range(0, len(meant.names), batch):
            yield await _by_name(operations, meant, meant.names[first : first + batch])
        return
    after = None
    while found := await page(operations, meant.wanted, batch, after):
        after = found[-1].entry.cursor
        yield Picked([held.entry.id for held in found])


async def _by_name(operations: Operations, meant: Meant, names: Sequence[str]) -> Picked:
    found = await _named(operations, names, meant.by, meant.wanted.lane)
    ones = {name: _only(name, found, meant.by) for name in names}
    letters = [one.id for one in ones.values() if one is not None]
    return Picked(letters, [name for name, one in ones.items() if one is None])


async def one_of(operations: Operations, name: str, by: By | None, lane: str | None) -> Named:
    """The letter of one name.

    Raises:
        Refused: it may be of more than one.
        NotUnresolved: there is none.
        LedgerUnavailable: the ledger does not answer.
    """
    one = _only(name, await _named(operations, [name], by, lane), by)
    if one is None:
        where = f" in lane {lane}" if lane else ""
        raise NotUnresolved(
            f"no unresolved job has the key or the id {safe(name)!r}{where}",
            "'acklast jobs show KEY' tells what became of it; 'acklast unresolved list' has those that wait",
        )
    return one


async def _named(
    operations: Operations, names: Sequence[str], by: By | None, lane: str | None
) -> list[Named]:
    ids = [int(name) for name in names if by is not By.KEY and _may_be_id(name)]
    return await named(operations, ids, [] if by is By.ID else names, lane)


def _may_be_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= _MOST_DIGITS


def _only(name: str, found: Sequence[Named], by: By | None) -> Named | None:
    """The one that a name stands for; None where there is none.

    Raises:
        Refused: there are more.
    """
    ones = [one for one in found if by is not By.KEY and _may_be_id(name) and one.id == int(name)]
    ones += [one for one in found if by is not By.ID and one.unresolved and one.key == name]
    ones = list({one.id: one for one in ones}.values())
    if len(ones) <= 1:
        return ones[0] if ones else None
    lanes = sorted({one.lane for one in ones if one.key == name})
    if len(lanes) > 1:
        raise Refused(f"jobs with the key {safe(name)!r} are unresolved in {', '.join(lanes)}", "Give --lane")
    raise Refused(
        f"{safe(name)!r} is the id of one letter and the key of another job", "Give --by id or --by key"
    )
