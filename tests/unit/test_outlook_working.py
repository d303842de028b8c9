"""For how much of a minute somebody worked, and what nobody can tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acklast.outlook.facts import Minute
from acklast.outlook.working import Span, Times, minutes_of

ALWAYS = (Span(float("-inf")),)
LONG = Times(here=ALWAYS, busy_s=3600.0)


def worked(counts: list[tuple[int, int]], times: Times, running_s: float = 30.0) -> list[float]:
    return [one.worked_s for one in minutes_of(counts, running_s, times)]


def test_minutes_in_which_something_waited_and_somebody_worked_are_whole() -> None:
    assert minutes_of([(5, 6), (10, 10), (0, 0)], 30.0, LONG) == [
        Minute(5, 6, 30.0),
        Minute(10, 10),
        Minute(0, 0, fresh=True),  # of what was before it nothing is known
    ]


def test_a_daemon_that_was_started_in_the_midst_of_a_minute_has_worked_for_the_rest_of_it() -> None:
    times = Times(here=(Span(-35.0),), busy_s=3600.0)
    assert minutes_of([(60, 60), (6, 10), (0, 0)], 30.0, times) == [
        Minute(60, 60, 30.0),
        Minute(6, 10, idle_s=55.0, fresh=True),
        Minute(0, 0, idle_s=60.0, fresh=True),
    ]


def test_a_daemon_that_was_started_seconds_ago_has_worked_for_seconds() -> None:
    [one] = minutes_of([(10, 20)], 50.0, Times(here=(Span(-20.0),), busy_s=3600.0))
    assert (one.worked_s, one.fresh, one.sure) == (20.0, True, True)


def test_one_daemon_is_as_good_as_two_and_a_restart_is_a_gap() -> None:
    both = (Span(-300.0), Span(-200.0, -10.0))
    assert worked([(5, 5), (10, 10)], Times(here=both, busy_s=3600.0)) == [30.0, 60.0]
    one_after_another = (Span(-300.0, -50.0), Span(-38.0))
    assert worked([(5, 5), (10, 10)], Times(here=one_after_another, busy_s=3600.0)) == [30.0, 48.0]


def test_a_pause_is_no_work_and_is_not_counted_twice() -> None:
    times = Times(here=ALWAYS, stops=(Span(-80.0, -20.0), Span(-70.0, -25.0)), busy_s=3600.0)
    assert worked([(5, 5), (10, 10), (30, 30)], times) == [20.0, 10.0, 60.0]
    still = Times(here=ALWAYS, stops=(Span(-10.0),), busy_s=3600.0)
    assert worked([(5, 5)], still) == [20.0]


def test_before_anything_waited_a_minute_without_an_event_was_an_idle_one() -> None:
    times = Times(here=ALWAYS, busy_s=40.0)
    found = minutes_of([(60, 60), (20, 20), (0, 0), (60, 60)], 30.0, times)
    assert [one.worked_s for one in found] == [30.0, 10.0, 0.0, 60.0]
    assert [one.fresh for one in found] == [False, True, False, True]
    assert not found[-1].sure


def test_a_minute_after_another_at_work_is_whole_though_what_waits_now_came_in_it() -> None:
    assert worked([(60, 60), (20, 20), (20, 20)], Times(here=ALWAYS, busy_s=40.0))[1] == 60.0


def test_jobs_that_came_in_a_minute_tell_when_its_work_began() -> None:
    times = Times(here=ALWAYS, busy_s=0.0, came=(-45.0, -7000.0))
    assert worked([(60, 60), (20, 20)], times) == [30.0, 15.0]
    unknown = minutes_of([(60, 60), (20, 20)], 30.0, Times(here=ALWAYS, busy_s=0.0, came=(-7000.0,)))
    assert [one.sure for one in unknown] == [True, False]


def test_what_came_just_before_a_minute_waited_through_all_of_it() -> None:
    """What waits is counted by quarters of a minute, so it may wait for longer than that says."""
    [_, one] = minutes_of([(60, 60), (20, 20)], 30.0, Times(here=ALWAYS, busy_s=80.0, came=(-92.0,)))
    assert (one.worked_s, one.sure) == (60.0, True)


def test_who_worked_unseen_has_worked_all_the_time() -> None:
    assert worked([(5, 5), (10, 10)], Times(busy_s=3600.0)) == [30.0, 60.0]


def test_for_how_long_somebody_unseen_worked_nobody_can_tell() -> None:
    """Such as a daemon that was killed seconds after a pause, which was last heard of before its end."""
    times = Times(here=(Span(-900.0, -68.0), Span(-5.0)), stops=(Span(-150.0, -66.0),), busy_s=3600.0)
    assert minutes_of([(60, 60), (20, 20), (500, 500)], 30.0, times)[:2] == [
        Minute(60, 60, 30.0, idle_s=25.0),
        Minute(20, 20, sure=False),
    ]


def test_nothing_is_made_of_nothing() -> None:
    assert minutes_of([], 30.0, LONG) == []


SPANS = st.builds(
    lambda begin, length: Span(-begin, min(0.0, length - begin)), st.floats(0, 900), st.floats(0, 900)
)


def test_next_to_no_time_is_none_of_which_a_rate_could_be_made() -> None:
    [one] = minutes_of([(0, 1)], 1.0, Times(here=(Span(-1e-300),)))
    assert (one.worked_s, one.sure) == (1.0, False)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8),
    st.floats(1, 60),
    st.builds(
        Times,
        here=st.lists(SPANS, max_size=4),
        stops=st.lists(SPANS, max_size=4),
        busy_s=st.floats(0, 900),
        came=st.lists(st.floats(-900, 0), max_size=3),
    ),
)
def test_nobody_works_for_longer_than_a_minute_lasts_and_what_happened_took_time(
    counts: list[tuple[int, int]], running_s: float, times: Times
) -> None:
    found = minutes_of(counts, running_s, times)
    assert [(one.ended, one.started) for one in found] == counts
    for one in found:
        assert -1e-9 <= one.worked_s <= one.length_s + 1e-9
        assert one.worked_s > 0 or not (one.ended or one.started)
