"""What a drill's account makes of effects and logs, and that every fault can be asked for."""

from __future__ import annotations

import json
from math import inf

import pytest

from bench.drill_account import Effect, Line, account, effects_of, felt_at, lines_of
from bench.fault_kinds import KINDS
from bench.fault_kinds.base import chosen
from bench.faults import main, missed_by
from bench.queues import BenchError

RAISED, ENDED = 100.0, 110.0
INTERRUPTED, CONSUMING = Line("lane.interrupted", 101.0), Line("lane.consuming", 112.0)


def effect(key: str, at: float, *, ambiguous: bool = False, pid: int = 1) -> Effect:
    return Effect(key, ambiguous, pid, at)


def test_a_confirmed_job_without_an_effect_is_lost() -> None:
    found = account(["a", "b"], [effect("a", 90)], {}, RAISED, ENDED)
    assert (found.published, found.lost) == (2, 1)


def test_an_effect_that_was_not_confirmed_is_neither_lost_nor_second() -> None:
    found = account(["a"], [effect("a", 90), effect("b", 91)], {}, RAISED, ENDED)
    assert (found.lost, found.second) == (0, 0)


def test_second_effects_are_told_apart_by_what_their_attempt_was_told() -> None:
    effects = [
        effect("a", 90),
        effect("a", 95, ambiguous=True),
        effect("a", 96),
        effect("b", 91, ambiguous=True),
    ]
    found = account(["a", "b"], effects, {}, RAISED, ENDED)
    assert (found.second, found.in_window, found.outside) == (2, 1, 1)


def test_a_daemon_is_back_with_the_first_effect_after_it_consumes_again() -> None:
    effects = [effect("held", 111.0), effect("fresh", 112.5)]
    found = account([], effects, {1: [INTERRUPTED, CONSUMING]}, RAISED, ENDED)
    assert found.again_s == 2.5


def test_the_last_daemon_counts() -> None:
    logs: dict[int, list[Line]] = {1: [], 2: [INTERRUPTED, CONSUMING]}
    effects = [effect("a", 110.1, pid=1), effect("b", 113.0, pid=2)]
    assert account([], effects, logs, RAISED, ENDED).again_s == 3.0


def test_a_lane_that_is_never_consumed_again_is_never_back() -> None:
    assert account([], [effect("a", 130)], {1: [INTERRUPTED]}, RAISED, ENDED).again_s == inf


def test_lines_of_settled_jobs_are_not_counted() -> None:
    lines = [Line("job.settled", 101.0), INTERRUPTED, CONSUMING, Line("after", 200.0)]
    found = account([], [effect("a", 112.5)], {1: lines}, RAISED, ENDED)
    assert (found.lines, found.lines_per_s) == (2, 2 / 12.5)


def test_a_fault_that_is_over_at_once_came_when_it_was_felt() -> None:
    assert felt_at({1: [INTERRUPTED], 2: []}, RAISED, ENDED) == 101.0
    assert felt_at({1: [CONSUMING]}, RAISED, ENDED) == ENDED


def test_a_log_line_is_read_whatever_it_is() -> None:
    said = json.dumps({"event": "x", "timestamp": "1970-01-01T00:00:10Z", "lane": "a"})
    first, second = lines_of(f"{said}\nTraceback")
    assert (first.event, first.at, first.fields["lane"]) == ("x", 10.0, "a")
    assert (second.event, second.at) == ("Traceback", 10.0)


def test_effects_are_read_as_the_handler_writes_them() -> None:
    assert effects_of("a:1 1 42 10.5\n") == [Effect("a:1", True, 42, 10.5)]


def test_a_slip_in_a_name_is_told_before_anything_starts() -> None:
    with pytest.raises(BenchError, match="no fault is called nothing; there are"):
        chosen(["nothing"])
    assert main(["--fault", "nothing"]) == 69


def test_every_fault_says_what_it_is() -> None:
    assert "broker-restart" in KINDS
    assert all(kind.__doc__ and kind.within_s > 0 for kind in KINDS.values())


def test_what_was_missed_is_told() -> None:
    found = account(["a", "b"], [effect("a", 90)], {1: [INTERRUPTED]}, RAISED, ENDED)
    assert missed_by(KINDS["broker-restart"], found) == "1 lost, again only after inf s"
