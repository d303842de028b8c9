"""The backtest in small: the same drains each time, and the band holds as often as it is to."""

from __future__ import annotations

from collections import Counter
from random import Random

from acklast.outlook.cast import Basis
from bench.backtest import PARTS, Trial, account, drain, drains, main, mistaken, rows
from bench.drain_kinds import KINDS


def trial(actual_s: float, low_s: float | None = 80.0, **more: str) -> Trial:
    likely_s, high_s = (None, None) if low_s is None else (100.0, 130.0)
    constraints = {"named": "budget", "true": "budget"} | more
    return Trial(1, "calm", 0.5, likely_s, low_s, high_s, actual_s, Basis.MEASURED, **constraints)


def test_the_account_counts_what_held_and_to_which_side_it_did_not() -> None:
    found = account([trial(100), trial(129), trial(70), trial(200, true="paused"), trial(1, None)])
    assert (found.forecasts, found.unknown, found.held, found.early, found.late) == (5, 1, 0.5, 0.25, 0.25)
    assert found.named == 0.8
    assert mistaken([trial(1, true="paused")]) == [("budget", "paused", 1)]


def test_one_number_is_one_drain() -> None:
    assert drain(10) == drain(10)


def test_the_band_holds_four_times_out_of_five_and_the_constraint_is_found() -> None:
    trials = drains([10, 20, 30, 50, 71, 92], workers=1)
    assert len(trials) == 6 * len(PARTS)
    found = account(trials)
    assert 0.65 <= found.held <= 1.0
    assert found.off < 0.2
    assert found.named > 0.8


def test_the_table_has_a_row_for_each_part_and_kind() -> None:
    trials = drain(10)
    assert [row[0] for row in rows(trials)] == [*(f"{part:.0%} done" for part in PARTS), "calm", "all"]
    assert main(["--drains", "1", "--first", "10", "--workers", "1"]) == 0


def test_every_kind_has_a_name_of_its_own() -> None:
    names = Counter(kind(Random(1)).kind for kind in KINDS)
    assert set(names.values()) == {1}
