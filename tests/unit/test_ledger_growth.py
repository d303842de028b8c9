"""Plans are made anew while a table is small and grows, and seldom when it is large."""

from __future__ import annotations

from itertools import pairwise

from acklast.ledger.growth import FIRST, MOST, Growth


def replans(rows: int, step: int = 1) -> list[int]:
    growth = Growth()
    return [row for row in range(step, rows + 1, step) if growth.outgrown(step)]


def test_a_table_never_more_than_doubles_on_the_same_plans() -> None:
    made = replans(10_000)
    assert made[0] == FIRST
    assert all(later <= 2 * earlier for earlier, later in pairwise(made))
    assert made[-1] > 5_000


def test_a_million_rows_take_few_plans() -> None:
    made = replans(1_000_000, 500)
    assert len(made) < 25
    assert max(later - earlier for earlier, later in pairwise(made)) <= MOST + 500


def test_records_alone_add_no_row() -> None:
    growth = Growth()
    assert not any(growth.outgrown(0) for _ in range(10_000))
