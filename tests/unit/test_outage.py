"""What is said of a lane that comes and goes."""

from __future__ import annotations

from acklast.outage import STEADY_S, Outage


def test_an_outage_is_said_once_and_its_end_once() -> None:
    outage = Outage()
    assert outage.back(0.0)
    assert outage.interrupted(100.0, "reset")
    assert [outage.interrupted(100.0 + each, "refused") for each in range(1, 600)] == [False] * 599
    assert outage.back(700.0)
    assert not outage.back(701.0), "a lane that is paused and goes on was not away"


def test_an_exact_reason_is_said_whenever_it_changes() -> None:
    outage = Outage()
    assert outage.interrupted(0.0, "cancelled")
    assert outage.interrupted(1.0, "classic, not quorum", exact=True)
    assert not outage.interrupted(2.0, "classic, not quorum", exact=True)
    assert outage.interrupted(3.0, "limit 5, not 100000", exact=True)


def test_a_lane_that_was_well_for_a_while_has_another_outage() -> None:
    outage = Outage()
    outage.interrupted(0.0, "reset")
    outage.back(1.0)
    assert outage.interrupted(1.0 + STEADY_S, "reset")
    assert outage.failures == 1


def test_a_lane_that_stood_by_for_a_while_has_another_outage() -> None:
    outage = Outage()
    outage.interrupted(0.0, "reset")
    outage.stands_by(1.0)
    outage.stands_by(5.0)
    assert outage.interrupted(1.0 + STEADY_S, "another reset")
    assert outage.failures == 1


def test_a_lane_that_flaps_says_so_ever_more_seldom() -> None:
    outage = Outage()
    said = 0
    for second in range(3600):
        said += outage.interrupted(float(second), "closed") + outage.back(second + 0.5)
    assert said <= 30
    assert outage.failures == 3600


def test_what_stays_away_after_flapping_is_said() -> None:
    outage = Outage()
    outage.interrupted(0.0, "closed")
    outage.back(0.1)
    assert not outage.interrupted(1.0, "closed")
    assert any(outage.interrupted(float(second), "gone") for second in range(2, 20))
