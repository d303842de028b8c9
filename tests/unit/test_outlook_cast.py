"""Finishes and bands, against numbers that anybody can check."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from acklast.outlook.binding import Constraint
from acklast.outlook.cast import Basis, Finish, Meets, Prospect, meets, moment_of, outlook
from acklast.outlook.facts import Daemon, Facts, Hold, LaneFacts, Minute, Open
from acklast.reporter import Standing

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAEMON = Daemon(slots=10, in_flight=9, started=60, window_s=30.0, state=Standing.OPEN)
TWO_A_SECOND = [Minute(120, 120)] * 20


def lane(**more: Any) -> LaneFacts:
    known: dict[str, Any] = {
        "daemons": (DAEMON,),
        "minutes": TWO_A_SECOND,
        "configured_slots": 10,
    }
    return LaneFacts(**(known | more))


def facts(lanes: dict[str, LaneFacts], *open_: Open, **more: Any) -> Facts:
    return Facts(at=NOW, lanes=lanes, open=open_, **more)


def run_of(found: Facts, run: str = "r") -> Prospect:
    [one] = [one for one in outlook(found).runs if one.run == run]
    return one


def finish_of(found: Facts, run: str = "r") -> Finish:
    return run_of(found, run).finish


def test_a_run_is_finished_at_the_measured_pace_and_the_last_handler() -> None:
    found = finish_of(facts({"a": lane()}, Open("a", "r", 1200)))
    assert found.basis is Basis.MEASURED
    assert found.likely_s == pytest.approx(600 + 4.5)
    assert found.low_s is not None
    assert found.high_s is not None
    assert 450 < found.low_s < 604 < found.high_s < 900


def test_who_came_before_is_done_before() -> None:
    found = facts({"a": lane()}, Open("a", "old", 600), Open("a", "r", 600))
    assert finish_of(found, "old").likely_s == pytest.approx(304.5)
    assert finish_of(found).likely_s == pytest.approx(604.5)


def test_in_turns_they_go_side_by_side() -> None:
    found = facts({"a": lane(in_turns=True)}, Open("a", "old", 600), Open("a", "r", 300))
    assert finish_of(found).likely_s == pytest.approx(304.5)
    assert finish_of(found, "old").likely_s == pytest.approx(454.5)


def test_the_lane_is_through_with_its_last_run() -> None:
    found = outlook(facts({"a": lane()}, Open("a", "r", 600), Open("a", None, 600)))
    [one] = found.lanes
    assert one.jobs == 1200
    assert one.finish.likely_s == pytest.approx(604.5)


def test_the_further_away_the_less_is_known() -> None:
    def width(jobs: int) -> float:
        finish = finish_of(facts({"a": lane()}, Open("a", "r", jobs)))
        assert finish.high_s is not None
        assert finish.low_s is not None
        assert finish.likely_s is not None
        return (finish.high_s - finish.low_s) / finish.likely_s

    assert width(600) < width(1200) < width(3600)


def test_a_pause_that_ends_puts_it_off_and_one_that_does_not_leaves_it_unknown() -> None:
    ends = finish_of(facts({"a": lane(paused=Hold("paused", 100.0))}, Open("a", "r", 1200)))
    assert ends.likely_s == pytest.approx(704.5)
    never = run_of(facts({"a": lane(paused=Hold("paused by ann", None))}, Open("a", "r", 1200)))
    assert (never.finish.likely_s, never.finish.basis) == (None, Basis.UNKNOWN)
    assert "paused by ann" in never.finish.why


def test_without_a_daemon_nobody_can_tell() -> None:
    one = run_of(facts({"a": lane(daemons=())}, Open("a", "r", 10)))
    assert one.finish.basis is Basis.UNKNOWN
    assert one.binding.constraint is Constraint.NO_WORKER


def test_where_nothing_was_measured_the_budget_says_how_fast_it_may_go() -> None:
    at_first = replace(DAEMON, in_flight=0, started=0, permits=10, rate_per_s=2.0)
    unmeasured = lane(minutes=(), budget="api", daemons=(at_first,))
    found = finish_of(facts({"a": unmeasured}, Open("a", "r", 1200), budgets={"api": 2.0}))
    measured = finish_of(facts({"a": lane()}, Open("a", "r", 1200)))
    assert found.basis is Basis.LIMITS
    assert found.likely_s == pytest.approx(600.0)
    assert found.high_s is not None
    assert measured.high_s is not None
    assert found.high_s > 1.5 * measured.high_s


def test_without_a_budget_and_without_a_measurement_nobody_can_tell() -> None:
    idle = replace(DAEMON, in_flight=0, started=0)
    found = finish_of(facts({"a": lane(minutes=(), daemons=(idle,))}, Open("a", "r", 10)))
    assert (found.likely_s, found.basis) == (None, Basis.UNKNOWN)


def test_a_lane_gets_what_another_leaves_of_their_budget() -> None:
    full = replace(DAEMON, in_flight=5, started=30, permits=60, busy=60, rate_per_s=2.0)
    half = lane(budget="api", daemons=(full,), minutes=[Minute(60, 60)] * 10)
    found = facts({"a": half, "b": half}, Open("a", "r", 1200), Open("b", "other", 300), budgets={"api": 2.0})
    assert finish_of(found, "other").likely_s == pytest.approx(305)
    assert finish_of(found).likely_s == pytest.approx(755)


def test_what_has_stood_still_may_do_so_for_as_long_again() -> None:
    stood = [Minute(0, 0), Minute(0, 0), *TWO_A_SECOND]
    found = finish_of(facts({"a": lane(minutes=stood)}, Open("a", "r", 1200)))
    assert found.likely_s == pytest.approx(724.5)
    assert found.high_s is not None
    assert found.high_s > 600 + 9 * 120


def test_retries_come_on_top_at_the_end() -> None:
    failing = lane(minutes=[Minute(120, 240)] * 10, retry_s=8.0)
    some = finish_of(facts({"a": failing}, Open("a", "r", 1200, waiting=63)))
    assert some.likely_s is not None
    # Half of all attempts fail, so of 64 jobs one fails six times: 8 + 16 + ... + 256 s.
    assert some.likely_s > 600 + 504


def test_a_retry_that_waits_in_the_queue_is_no_longer_a_wait_for_that() -> None:
    failing = lane(minutes=[Minute(120, 132)] * 10)
    found = finish_of(facts({"a": failing}, Open("a", "r", 1200, waiting=100)))
    assert found.likely_s is not None
    assert found.likely_s < 615


def test_a_run_of_two_lanes_is_finished_with_the_last_of_them() -> None:
    slow = lane(minutes=[Minute(60, 60)] * 10)
    one = run_of(facts({"a": lane(), "b": slow}, Open("a", "r", 1200), Open("b", "r", 1200)))
    assert (one.lane, one.jobs) == ("b", 2400)
    assert one.finish.likely_s is not None
    assert one.finish.likely_s > 1200


@pytest.mark.parametrize(
    ("finish", "left_s", "expected"),
    [
        (Finish(50, 40, 70, Basis.MEASURED), 71.0, Meets.MET),
        (Finish(50, 40, 70, Basis.MEASURED), 60.0, Meets.AT_RISK),
        (Finish(50, 40, 70, Basis.MEASURED), 45.0, Meets.AT_RISK),
        (Finish(50, 40, 70, Basis.MEASURED), 39.0, Meets.MISSED),
        (Finish(None, None, None, Basis.UNKNOWN), 60.0, Meets.AT_RISK),
        (Finish(None, 70, None, Basis.UNKNOWN), 60.0, Meets.MISSED),
        (Finish(None, None, None, Basis.UNKNOWN), -1.0, Meets.MISSED),
    ],
    ids=["before", "likely met", "likely missed", "after", "unknown", "not before", "over"],
)
def test_a_deadline_is_met_missed_or_inside_the_band(finish: Finish, left_s: float, expected: Meets) -> None:
    assert meets(finish, left_s) is expected


def test_the_margin_is_from_the_likely_finish_and_the_nearest_deadline_comes_first() -> None:
    deadlines = {"r": NOW + timedelta(seconds=1000), "old": NOW + timedelta(seconds=2000)}
    open_ = (Open("a", "none", 10), Open("a", "old", 590), Open("a", "r", 600))
    found = outlook(facts({"a": lane()}, *open_, deadlines=deadlines))
    assert [one.run for one in found.runs] == ["r", "old", "none"]
    first = found.runs[0]
    assert first.meets is Meets.MET
    assert first.margin_s == pytest.approx(395.5)


def test_a_lane_that_nobody_knows_is_left_out() -> None:
    assert outlook(facts({}, Open("gone", "r", 5))).runs == ()


def test_a_moment_beyond_the_calendar_is_none() -> None:
    assert moment_of(NOW, 1e30) is None
    assert moment_of(NOW, 60) == NOW + timedelta(seconds=60)


def test_a_lane_that_has_just_begun_goes_by_its_first_seconds() -> None:
    begun = lane(minutes=[Minute(31, 40, 50.0, idle_s=30.0, fresh=True)])
    found = run_of(facts({"a": begun}, Open("a", "r", 1200)))
    assert found.per_s == pytest.approx((31 + 9 * 0.55) / 20)


@pytest.mark.parametrize("jobs", [1, 3, 10, 37, 1200])
def test_a_band_is_of_whole_seconds_and_no_narrower_than_a_handler_takes(jobs: int) -> None:
    finish = finish_of(facts({"a": lane()}, Open("a", "r", jobs)))
    low, likely, high = finish.low_s, finish.likely_s, finish.high_s
    assert low is not None
    assert likely is not None
    assert high is not None
    assert low == int(low)
    assert high == int(high)
    handler_s = 4.5
    assert low <= max(0.0, likely - handler_s - 1)
    assert high >= likely + handler_s + 1


def swinging(**more: Any) -> LaneFacts:
    """Now at 3 a second, of 2 in the mean, in waves of ten minutes."""
    ended = [180 if n % 10 < 5 else 60 for n in range(60)]
    return lane(minutes=[Minute(n, n) for n in ended], **more)


def test_a_pace_that_swings_comes_back_to_its_mean() -> None:
    found = run_of(facts({"a": swinging()}, Open("a", "r", 7200)))
    assert found.per_s == pytest.approx(2.0, rel=0.15)
    assert found.finish.likely_s == pytest.approx(3600, rel=0.15)


def test_what_others_leave_of_a_budget_is_no_swing() -> None:
    full = replace(DAEMON, in_flight=5, started=30, permits=60, busy=60, rate_per_s=4.0)
    mine = swinging(budget="api", daemons=(full,))
    open_ = (Open("a", "r", 7200), Open("b", "other", 7200))
    found = run_of(facts({"a": mine, "b": mine}, *open_, budgets={"api": 4.0}))
    assert found.per_s is not None
    assert found.per_s > 2.4
