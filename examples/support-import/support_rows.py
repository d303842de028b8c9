"""The rows of the import: 5,000, the same ones every time, of every kind that a real file has.

python support_rows.py tickets.csv
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

COLUMNS: Final = ("ticket", "account", "subject", "opened_on", "priority")
ROWS: Final = 5000
CLOSED_FROM: Final = 9000
"""Accounts from this number on are closed: the help desk refuses their tickets."""
_PRIORITIES: Final = ("low", "normal", "high")
_FIRST_DAY: Final = date(2019, 3, 4)


class Kind(StrEnum):
    """What is to become of a row."""

    SOUND = "sound"
    """Its ticket is imported."""
    CLOSED = "closed account"
    """The help desk refuses it for good: a dead letter."""
    INVALID = "invalid payload"
    """A job, but not of a ticket: a dead letter."""
    REPEAT = "repeat"
    """Word for word an earlier row: nothing to do."""
    CONFLICT = "conflict"
    """An earlier row's ticket with another content: told, not published."""
    MALFORMED = "malformed"
    """No job at all: told by its line."""


JOBS: Final = frozenset({Kind.SOUND, Kind.CLOSED, Kind.INVALID})
"""Rows that become jobs."""
_EVERY: Final = {97: Kind.CONFLICT, 83: Kind.REPEAT, 211: Kind.MALFORMED, 239: Kind.INVALID, 499: Kind.CLOSED}


@dataclass(frozen=True, slots=True)
class Row:
    """One row. ``line`` is its line in the file, ``ticket`` empty where it has none."""

    line: int
    kind: Kind
    ticket: str
    text: str


def rows() -> list[Row]:
    """All rows in order."""
    made: list[Row] = []
    for number in range(1, ROWS + 1):
        kind = next((kind for every, kind in _EVERY.items() if number % every == 0), Kind.SOUND)
        made.append(_row(number, kind, made))
    return made


def _row(number: int, kind: Kind, before: Sequence[Row]) -> Row:
    line = number + 1  # the first one is the header
    values = _values(number)
    match kind:
        case Kind.REPEAT:
            earlier = next(row for row in reversed(before[:-50]) if row.kind is Kind.SOUND)
            return Row(line, kind, earlier.ticket, earlier.text)
        case Kind.CONFLICT:
            earlier = next(row for row in reversed(before[:-50]) if row.kind is Kind.SOUND)
            values[0], values[2] = earlier.ticket, "The same ticket told otherwise"
        case Kind.MALFORMED:
            values = values[:3] if number % 2 else ["", *values[1:]]
        case Kind.INVALID:
            values[4] = "urgent!!"
        case Kind.CLOSED:
            values[1] = f"A-{CLOSED_FROM + number % 1000:04d}"
        case Kind.SOUND:
            pass
    ticket = "" if kind is Kind.MALFORMED else values[0]
    return Row(line, kind, ticket, ",".join(values))


def _values(number: int) -> list[str]:
    return [
        f"T-{number:05d}",
        f"A-{number % 700:04d}",
        f"Door {number % 90} does not close",
        (_FIRST_DAY + timedelta(days=number % 1500)).isoformat(),
        _PRIORITIES[number % 3],
    ]


def lines(made: Sequence[Row]) -> Iterator[str]:
    """The file's lines."""
    yield ",".join(COLUMNS)
    for row in made:
        yield row.text


def write(file: Path) -> list[Row]:
    """Write the file; its rows."""
    made = rows()
    file.write_text("".join(f"{line}\n" for line in lines(made)), encoding="utf-8")
    return made


if __name__ == "__main__":
    written = Counter(row.kind for row in write(Path(sys.argv[1])))
    sys.stdout.write("".join(f"{count:>5}  {kind}\n" for kind, count in written.most_common()))
