"""A rate out of minutes, by hand-made minutes that anybody can check."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.outlook.facts import Minute
from acklast.outlook.pace import Flight, pace


def minutes(*ended: int, first_s: float = 60.0) -> list[Minute]:
    """The newest first; each job started once."""
    return [Minute(n, n, 60.0 if at else first_s) for at, n in enumerate(ended)]


def test_what_never_changes_goes_on_as_it_was() -> None:
    found = pace(minutes(*[120] * 20))
    assert found is not None
    assert (found.per_s, found.starts_per_job, found.stalled_s) == (2.0, 1.0, 0.0)
    assert found.spread < 0.05


def test_the_minute_that_still_runs_counts_for_its_part() -> None:
    found = pace(minutes(40, 120, 120, 120, first_s=20.0))
    assert found is not None
    assert found.per_s == pytest.approx(2.0)


def test_what_was_before_a_lasting_change_counts_no_more() -> None:
    found = pace(minutes(60, 60, 60, *[240] * 30))
    assert found is not None
    assert found.per_s == pytest.approx(1.0)
    assert found.minutes == 3


def test_a_single_bad_minute_is_part_of_the_rate() -> None:
    found = pace(minutes(120, 120, 30, 120, 120, 120))
    assert found is not None
    assert 1.5 < found.per_s < 1.9
    assert found.minutes == 6


def test_few_jobs_say_less_than_many() -> None:
    few, many = pace(minutes(2, 1, 3, 2)), pace(minutes(200, 200, 200, 200))
    assert few is not None
    assert many is not None
    assert few.spread > 4 * many.spread


def test_minutes_that_differ_widen_it() -> None:
    rough, smooth = pace(minutes(80, 120, 80, 120)), pace(minutes(100, 100, 100, 100))
    assert rough is not None
    assert smooth is not None
    assert rough.spread > smooth.spread


def test_two_minutes_that_differ_widen_it_too() -> None:
    rough, smooth = pace(minutes(700, 500)), pace(minutes(600, 600))
    assert rough is not None
    assert smooth is not None
    assert rough.spread > 2 * smooth.spread


def test_how_many_starts_a_job_takes_is_of_the_same_minutes_as_the_rate() -> None:
    found = pace([*[Minute(60, 120)] * 3, *[Minute(240, 240)] * 30])
    assert found is not None
    assert found.starts_per_job == 2.0


def test_retries_are_starts_that_end_nothing() -> None:
    found = pace([Minute(60, 90)] * 5)
    assert found is not None
    assert found.starts_per_job == 1.5


def test_a_standstill_is_no_rate() -> None:
    found = pace(minutes(0, 0, 1, *[120] * 10, first_s=30.0))
    assert found is not None
    assert found.stalled_s == 150.0
    assert found.per_s == pytest.approx(2.0)


def test_half_a_minute_without_an_end_is_no_standstill() -> None:
    found = pace(minutes(0, *[120] * 10, first_s=30.0))
    assert found is not None
    assert found.stalled_s == 0.0


def test_time_in_which_nobody_worked_does_not_count() -> None:
    found = pace([Minute(60, 60, 30.0), Minute(20, 20, idle_s=50.0), Minute(0, 0, idle_s=60.0)])
    assert found is not None
    assert (found.per_s, found.minutes, found.worked_s) == (2.0, 2, 40.0)


def test_a_minute_in_which_work_came_at_some_time_counts_where_there_is_nothing_else() -> None:
    some = Minute(20, 20, sure=False)
    with_another, alone = pace([Minute(60, 60, 30.0), some]), pace([some])
    few_seconds = pace([Minute(40, 40, 5.0), some])
    assert with_another is not None
    assert (with_another.per_s, with_another.minutes) == (2.0, 1)
    assert alone is not None
    assert alone.per_s == pytest.approx(1 / 3)
    assert few_seconds is not None
    assert few_seconds.minutes == 2


def test_what_a_daemon_has_in_flight_since_its_start_is_half_done_where_all_slots_are_full() -> None:
    # Ten slots, 5 s each: two a second. After 18 s three rounds are over and one has begun.
    found = pace([Minute(30, 40, 18.0, fresh=True)], Flight(10, 10))
    assert found is not None
    assert found.per_s == pytest.approx(35 / 18)
    assert found.starts_per_job == 1.0


def test_where_slots_are_free_all_that_is_in_flight_has_not_ended_yet() -> None:
    # Two start each second and take 5 s, with slots for a hundred.
    found = pace([Minute(30, 40, 20.0, fresh=True)], Flight(10, 100))
    assert found is not None
    assert found.per_s == pytest.approx(2.0, rel=0.03)


def test_what_is_in_flight_all_the_time_takes_nothing_away() -> None:
    known = minutes(*[120] * 5)
    assert pace(known, Flight(10, 10)) == pace(known)


@pytest.mark.parametrize("known", [[], minutes(0, 0, 0)], ids=["nothing", "no ends"])
def test_nothing_is_made_of_nothing(known: list[Minute]) -> None:
    assert pace(known) is None


@given(st.lists(st.integers(0, 500), min_size=1, max_size=60), st.integers(0, 100))
def test_it_is_never_beyond_what_was_seen(ended: list[int], extra: int) -> None:
    known = [Minute(n, n + extra) for n in ended]
    found = pace(known)
    if found is None:
        assert not any(ended)
    else:
        assert min(ended) / 60 - 1e-9 <= found.per_s <= max(ended) / 60 + 1e-9
        assert found.spread > 0
        assert found.starts_per_job >= 1


def test_chance_alone_is_no_change() -> None:
    random = Random(7)
    known = [Minute(sum(random.random() < 0.5 for _ in range(120)), 60) for _ in range(40)]
    found = pace(known)
    assert found is not None
    assert found.minutes > 20
