"""Writes tenants as CSV, the same ones every time: who is to be reminded of the rent.

python tenants.py > tenants.csv
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import Final, TextIO

COLUMNS: Final = ("tenant", "name", "email", "month", "rent_cents")
NAMES: Final = ("Adel", "Bea", "Cem", "Dora", "Emre", "Fatou", "Gil", "Hana")


def tenants(first: int, count: int) -> Iterator[dict[str, str]]:
    """``count`` tenants, numbered from ``first``."""
    for number in range(first, first + count):
        yield {
            "tenant": f"T-{number:04d}",
            "name": NAMES[number % len(NAMES)],
            "email": f"t{number:04d}@tenants.example",
            "month": "July 2026",
            "rent_cents": str(60_000 + number * 137 % 90_000),
        }


def write(to: TextIO, first: int, count: int) -> None:
    writer = csv.DictWriter(to, COLUMNS)
    writer.writeheader()
    writer.writerows(tenants(first, count))


if __name__ == "__main__":
    write(sys.stdout, 1, 600)
