"""What holds a lane back, each with the figures that show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acklast.outlook.binding import Binding, Constraint, binding
from acklast.outlook.facts import Daemon, Hold, LaneFacts, Minute, Open
from acklast.reporter import Standing

OPEN = [Open("a", "r", 500)]
STEADY = [Minute(60, 60)] * 10


def daemon(**more: Any) -> Daemon:
    """One that starts one job a second and has room for more."""
    made = Daemon(slots=10, in_flight=2, started=30, window_s=30.0, state=Standing.OPEN)
    return replace(made, **more)


def lane(*daemons: Daemon, **more: Any) -> LaneFacts:
    known: dict[str, Any] = {"minutes": STEADY, "configured_slots": sum(one.slots for one in daemons)} | more
    return LaneFacts(daemons=daemons, **known)


def bound(one: LaneFacts, open_: list[Open] = OPEN, quota: float | None = None) -> Binding:
    return binding(one, [one], quota, open_)


def test_nothing_open_is_bound_by_what_comes() -> None:
    assert bound(lane(daemon()), []).constraint is Constraint.ARRIVALS


def test_an_operators_pause_comes_before_all_else() -> None:
    found = bound(lane(paused=Hold("paused by ann until 12:00:00Z: a move", 60.0)))
    assert found == Binding(Constraint.PAUSED, "paused by ann until 12:00:00Z: a move", {"left_s": 60.0})


def test_a_downstream_that_asked_for_quiet_has_paused_it() -> None:
    found = bound(lane(daemon(state=Standing.QUIET), quiet=Hold("quiet until 12:00:00Z", 30.0)), quota=5)
    assert (found.constraint, found.figures) == (Constraint.PAUSED, {"left_s": 30.0})


def test_without_a_daemon_nothing_goes() -> None:
    assert bound(lane()).constraint is Constraint.NO_WORKER
    found = bound(lane(daemon(state=Standing.NOT_CONSUMING), daemon(state=Standing.LEASE_LOST)))
    assert found.constraint is Constraint.NO_WORKER
    assert "lease_lost, not_consuming" in found.said


def test_an_open_breaker_tells_of_the_downstream() -> None:
    found = bound(lane(daemon(state=Standing.BREAKER, left_s=4.0), daemon(state=Standing.BREAKER)))
    assert found.constraint is Constraint.DOWNSTREAM_ERRORS
    assert found.figures == {"breakers_open": 2, "probe_in_s": 4.0}


def test_one_breaker_of_three_holds_nothing_back() -> None:
    found = bound(lane(daemon(state=Standing.BREAKER), daemon(in_flight=10), daemon(in_flight=10)))
    assert found.constraint is Constraint.CONCURRENCY


def test_most_attempts_fail() -> None:
    failing = [Minute(10, 5, 30.0), Minute(10, 60), Minute(12, 60), Minute(8, 60)]
    found = bound(lane(daemon(), minutes=failing))
    assert found.constraint is Constraint.DOWNSTREAM_ERRORS
    assert found.figures == {"attempts": 178, "failed": 148}


def test_a_third_that_fails_is_not_most() -> None:
    assert bound(lane(daemon(), minutes=[Minute(40, 60)] * 5)).constraint is Constraint.LEDGER


def test_what_has_just_started_has_not_failed() -> None:
    begun = [Minute(0, 2, 5.0), Minute(1, 12)]
    assert bound(lane(daemon(in_flight=10), minutes=begun)).constraint is Constraint.CONCURRENCY


def test_all_that_waits_for_its_time_is_not_due() -> None:
    found = bound(lane(daemon(in_flight=0)), [Open("a", "r", 7, waiting=7)])
    assert (found.constraint, found.figures) == (Constraint.NOT_DUE, {"waiting": 7})


def test_permits_in_use_all_the_time_are_the_budgets() -> None:
    found = bound(lane(daemon(permits=30, busy=30, rate_per_s=1.0)), quota=1.0)
    assert found.constraint is Constraint.BUDGET
    assert found.figures["permits_busy"] == 30
    assert found.said == "1 starts/s of 1/s; 30 of 30 permits in use"


def test_starts_at_the_effective_rate_are_the_budgets_though_permits_are_free() -> None:
    found = bound(lane(daemon(permits=30, busy=15, rate_per_s=1.0, state=Standing.SLOWED)), quota=2.0)
    assert found.constraint is Constraint.BUDGET
    assert found.said.endswith("; 2/s are in force")


def test_jobs_that_are_over_before_they_start_use_nothing_of_a_budget() -> None:
    """Those whose deadline has passed are claimed and buried, by hundreds a second, and take no permit."""
    expired = daemon(permits=20, busy=4, rate_per_s=20.0, started=2592)
    found = bound(lane(expired), quota=20.0)
    assert found.constraint is Constraint.LEDGER
    assert found.said == "498 wait, and 2 of 10 slots are in use"


def test_another_lane_may_use_the_budget_up() -> None:
    one = lane(daemon(permits=30, busy=14, rate_per_s=3.0, in_flight=1, started=60))
    other = lane(daemon(permits=30, busy=14, rate_per_s=3.0, started=30))
    assert binding(one, [one, other], 3.0, OPEN).constraint is Constraint.BUDGET
    assert binding(one, [one], 3.0, OPEN).constraint is not Constraint.BUDGET


def test_daemons_without_a_permit_wait_for_the_budget() -> None:
    found = bound(lane(daemon(state=Standing.NO_PERMIT, started=0, in_flight=0), minutes=()), quota=1.0)
    assert found.constraint is Constraint.BUDGET


def test_full_slots_beside_free_permits_are_too_few() -> None:
    found = bound(lane(daemon(in_flight=10, permits=30, busy=10, rate_per_s=3.0)), quota=3.0)
    assert found.constraint is Constraint.CONCURRENCY
    assert found.figures["handler_s"] == 10.0
    assert found.figures["more_per_slot_per_s"] == 0.1
    assert found.figures["free_per_s"] == 2.0
    assert "one slot more would give 0.1/s" in found.said


def test_an_operator_who_lowered_the_slots_is_told_of() -> None:
    found = bound(lane(daemon(slots=1, in_flight=1), configured_slots=10))
    assert found.constraint is Constraint.CONCURRENCY
    assert found.said.endswith("an operator lowered them from 10")


def test_one_slot_goes_as_fast_as_its_handler() -> None:
    found = bound(lane(daemon(slots=1, in_flight=1)))
    assert found.constraint is Constraint.HANDLER_TIME


def test_a_handler_that_takes_longer_than_before_is_the_cause() -> None:
    slower = [*[Minute(60, 60)] * 4, *[Minute(120, 120)] * 30]
    found = bound(lane(daemon(in_flight=10), minutes=slower))
    assert found.constraint is Constraint.HANDLER_TIME
    assert found.figures["handler_before_s"] == 5.0


def test_the_last_jobs_wait_for_their_handlers_alone() -> None:
    found = bound(lane(daemon(in_flight=10)), [Open("a", "r", 10, in_flight=10)])
    assert found.constraint is Constraint.HANDLER_TIME


def test_who_keeps_up_is_bound_by_what_comes() -> None:
    assert bound(lane(daemon()), [Open("a", "r", 2, in_flight=2)]).constraint is Constraint.ARRIVALS


def test_free_slots_and_permits_leave_the_house_itself() -> None:
    found = bound(lane(daemon()))
    assert (found.constraint, found.figures["ready"]) == (Constraint.LEDGER, 498)
