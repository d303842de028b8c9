"""Windows, counts, and the memory of where there is something to remove next."""

from __future__ import annotations

from dataclasses import dataclass

from acklast.ledger.retention import LATE, SESSIONS_S, Dues, Keep, Pruned, sessions_s, shortest_s

DAY = 86_400.0
KEEPS = {"a": Keep(30 * DAY, 90 * DAY, 10 * DAY), "b": Keep(300 * DAY, 90 * DAY, 90 * DAY)}


@dataclass
class Clock:
    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


def dues(clock: Clock) -> Dues:
    made = Dues(clock)
    made.begin(KEEPS)
    return made


def test_counts_add_up() -> None:
    total = Pruned(done=1, letters=2) + Pruned(done=3, sessions=4)
    assert total == Pruned(done=4, letters=2, sessions=4)
    assert total.rows == 10


def test_the_shortest_window_of_all_lanes() -> None:
    assert shortest_s(KEEPS) == 10 * DAY


def test_a_session_is_kept_as_long_as_the_longest_window() -> None:
    assert sessions_s(KEEPS) == 300 * DAY
    assert sessions_s({"a": Keep(1, 1, 1)}) == SESSIONS_S


def test_what_was_never_seen_is_due() -> None:
    assert dues(Clock()).due("jobs", 1, 0)


def test_a_stretch_is_due_when_its_earliest_row_is() -> None:
    clock = Clock()
    seen = dues(clock)
    seen.looked("jobs", 1, 0, 5 * DAY)
    clock.at += 5 * DAY - 1
    assert not seen.due("jobs", 1, 0)
    clock.at += 1
    assert seen.due("jobs", 1, 0)
    assert seen.due("jobs", 1, 256)
    assert seen.due("attempts", 1, 0)
    assert seen.due("jobs", 2, 0)


def test_what_is_written_after_the_look_is_not_missed() -> None:
    clock = Clock()
    seen = dues(clock)
    seen.looked("jobs", 1, 0, None)
    seen.looked("jobs", 1, 256, 25 * DAY)
    clock.at += 10 * DAY
    assert seen.due("jobs", 1, 0)
    assert seen.due("jobs", 1, 256)


def test_rows_that_trickle_out_do_not_keep_a_stretch_busy() -> None:
    clock = Clock()
    seen = dues(clock)
    seen.looked("jobs", 1, 0, 0.0)
    clock.at += 10 * DAY * LATE - 1
    assert not seen.due("jobs", 1, 0)
    clock.at += 1
    assert seen.due("jobs", 1, 0)


def test_other_windows_make_everything_due() -> None:
    seen = dues(Clock())
    seen.looked("jobs", 1, 0, None)
    seen.begin(dict(KEEPS))
    assert not seen.due("jobs", 1, 0)
    seen.begin({"a": Keep(1, 1, 1)})
    assert seen.due("jobs", 1, 0)
