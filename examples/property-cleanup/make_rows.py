"""Writes properties.csv: 2,000 rows, the same ones every time.

    python make_rows.py

1,885 sound rows, 10 of properties that the API refuses for good, 5 that fail validation, and 100 that repeat
an earlier sound row word by word.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Final, TypeAlias

Row: TypeAlias = dict[str, str]

FILE: Final = Path(__file__).with_name("properties.csv")
COLUMNS: Final = ("property_id", "task", "rooms", "vacated_on", "ready_by", "budget_cents")
SOUND: Final = 1885
REFUSED: Final = 10
_TASKS: Final = ("clean", "clear_out", "garden", "paint")
_FIRST_DAY: Final = date(2026, 1, 5)

# One defect each; the key's column stays sound, because a row without a key is no job at all.
_DEFECTS: Final[tuple[Row, ...]] = (
    {"rooms": "0"},
    {"task": "demolish"},
    {"vacated_on": "2026-02-30"},
    {"ready_by": "2025-12-31"},
    {"budget_cents": "12,50"},
)


def sound(number: int) -> Row:
    """A row that passes. The numbers only have to differ from row to row."""
    vacated_on = _FIRST_DAY + timedelta(days=number % 28)
    return {
        "property_id": f"P-{number:05d}",
        "task": _TASKS[number % len(_TASKS)],
        "rooms": str(1 + number * 7 % 12),
        "vacated_on": vacated_on.isoformat(),
        "ready_by": (vacated_on + timedelta(days=3 + number % 5)).isoformat(),
        "budget_cents": str(15_000 + number * 137 % 90_000),
    }


def refused(number: int) -> Row:
    """A row of the kind that the API answers with 422: the numbers from 90000 on are under legal hold."""
    return sound(90_000 + number)


def unique() -> Iterator[Row]:
    """The rows without the repeats, the odd ones spread among the others."""
    odd = [refused(n) for n in range(1, REFUSED + 1)]
    odd += [sound(SOUND + n) | defect for n, defect in enumerate(_DEFECTS, start=1)]
    every = SOUND // len(odd)
    for number in range(1, SOUND + 1):
        yield sound(number)
        if number % every == 0 and odd:
            yield odd.pop(0)
    yield from odd


def rows() -> Iterator[Row]:
    """All rows: every nineteenth is followed by a repeat of an earlier sound one, which makes a hundred."""
    for position, row in enumerate(unique(), start=1):
        yield row
        if position % 19 == 0:
            yield sound(position * 5 // 6)


def main() -> None:
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows())


if __name__ == "__main__":
    main()
