"""What the account of drains makes of notes, of the ledger's rows, and of how daemons ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.contenders.drain_lanes import CALL, EFFECT, FAILED, LANES, LIMITED, PATTERN, job
from bench.drain_account import Drain, Lane, Note, Row, lane_of, notes_of, summary, wrong_with

WELL = Drain(
    "restart", 0, 1.5, 10.0, "drain.receipt", {"unknown": 0, "left": 0, "cut": False, "given_back": 7}
)


def row(key: str, attempts: int = 1, state: str = "done") -> Row:
    return Row("fast", key, state, attempts)


def notes(key: str, *whats: str) -> list[Note]:
    return [Note(what, key) for what in whats]


def test_a_job_that_was_done_once_is_all_that_is_wanted() -> None:
    assert lane_of(["a"], notes("a", CALL, EFFECT), [row("a")]) == Lane(1, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("noted", "rows"),
    [
        ([], [row("a")]),
        (notes("a", CALL, EFFECT), []),
        (notes("a", CALL, EFFECT), [row("a", state="waiting")]),
    ],
    ids=["no-effect", "no-row", "not-done"],
)
def test_a_job_is_lost_without_an_effect_or_without_its_end_in_the_ledger(
    noted: list[Note], rows: list[Row]
) -> None:
    assert lane_of(["a"], noted, rows).lost == 1


def test_a_second_effect_counts() -> None:
    assert lane_of(["a"], notes("a", CALL, EFFECT, CALL, EFFECT), [row("a")]).second == 1


def test_attempts_are_held_against_the_handlers_own_count() -> None:
    failed_twice = notes("a", CALL, FAILED, CALL, FAILED, CALL, EFFECT)
    assert lane_of(["a"], failed_twice, [row("a", 3)]).spent == 0
    assert lane_of(["a"], failed_twice, [row("a", 4)]).spent == 1


def test_a_rate_limit_spends_none() -> None:
    limited = notes("a", CALL, LIMITED, CALL, EFFECT)
    assert lane_of(["a"], limited, [row("a", 1)]) == Lane(1, 0, 0, 0, 0, 0)
    assert lane_of(["a"], limited, [row("a", 2)]).spent == 1


def test_a_call_that_came_to_nothing_was_cut() -> None:
    assert lane_of(["a"], notes("a", CALL, CALL, EFFECT), [row("a")]).unfinished == 1


@pytest.mark.parametrize(
    "drain",
    [
        replace(WELL, code=1),
        replace(WELL, took_s=10.1),
        replace(WELL, last="job.settled"),
        replace(WELL, receipt={**WELL.receipt, "left": 1}),
        replace(WELL, receipt={**WELL.receipt, "unknown": 1}),
        replace(WELL, receipt={**WELL.receipt, "cut": True}),
    ],
    ids=["code", "late", "last-line", "left", "unknown", "cut"],
)
def test_a_drain_that_is_not_as_it_must_be_is_told(drain: Drain) -> None:
    assert not WELL.wrong
    [said] = wrong_with({}, [WELL, drain])
    assert said.startswith("drain 2 (restart): ")


def test_what_is_wrong_with_a_lane_is_told() -> None:
    assert wrong_with({"fast": Lane(9, 0, 0, 5, 0, 0)}, []) == []
    assert len(wrong_with({"fast": Lane(9, 1, 2, 5, 3, 4)}, [])) == 4


def test_a_row_tells_of_all_its_drains() -> None:
    cells = summary([WELL, replace(WELL, took_s=2.5, code=1), replace(WELL, took_s=11.0)])
    assert cells == ("3", "2", "2.50", "11.00", "11.00", "0", "21", "2 times 0, 1 times 1")


def test_notes_are_read_as_handlers_write_them() -> None:
    assert notes_of("call fast-1 1 0 77 1.5\neffect fast-1 1 0 77 1.6\n") == notes("fast-1", CALL, EFFECT)


def test_every_lane_has_jobs() -> None:
    assert {job("run", number).lane for number in range(len(PATTERN))} == set(LANES)
