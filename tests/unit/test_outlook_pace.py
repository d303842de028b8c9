"""A rate out of minutes, by hand-made minutes that anybody can check."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.outlook.facts import Minute
from acklast.outlook.pace import pace

HOUR_S = 3600.0


def minutes(*ended: int, first_s: float = 60.0) -> list[Minute]:
    """The newest first; each job started once."""
    return [Minute(n, n, 60.0 if at else first_s) for at, n in enumerate(ended)]


def test_what_never_changes_goes_on_as_it_was() -> None:
    found = pace(minutes(*[120] * 20), HOUR_S)
    assert found is not None
    assert (found.per_s, found.starts_per_job, found.stalled_s) == (2.0, 1.0, 0.0)
    assert found.spread < 0.05


def test_the_minute_that_still_runs_counts_for_its_part() -> None:
    found = pace(minutes(40, 120, 120, 120, first_s=20.0), HOUR_S)
    assert found is not None
    assert found.per_s == pytest.approx(2.0)


def test_what_was_before_a_lasting_change_counts_no_more() -> None:
    found = pace(minutes(60, 60, 60, *[240] * 30), HOUR_S)
    assert found is not None
    assert found.per_s == pytest.approx(1.0)
    assert found.minutes == 3


def test_a_single_bad_minute_is_part_of_the_rate() -> None:
    found = pace(minutes(120, 120, 30, 120, 120, 120), HOUR_S)
    assert found is not None
    assert 1.5 < found.per_s < 1.9
    assert found.minutes == 6


def test_few_jobs_say_less_than_many() -> None:
    few, many = pace(minutes(2, 1, 3, 2), HOUR_S), pace(minutes(200, 200, 200, 200), HOUR_S)
    assert few is not None
    assert many is not None
    assert few.spread > 4 * many.spread


def test_minutes_that_differ_widen_it() -> None:
    rough, smooth = pace(minutes(80, 120, 80, 120), HOUR_S), pace(minutes(100, 100, 100, 100), HOUR_S)
    assert rough is not None
    assert smooth is not None
    assert rough.spread > smooth.spread


def test_retries_are_starts_that_end_nothing() -> None:
    found = pace([Minute(60, 90)] * 5, HOUR_S)
    assert found is not None
    assert found.starts_per_job == 1.5


def test_a_standstill_is_no_rate() -> None:
    found = pace(minutes(0, 0, 1, *[120] * 10, first_s=30.0), HOUR_S)
    assert found is not None
    assert found.stalled_s == 150.0
    assert found.per_s == pytest.approx(2.0)


def test_half_a_minute_without_an_end_is_no_standstill() -> None:
    found = pace(minutes(0, *[120] * 10, first_s=30.0), HOUR_S)
    assert found is not None
    assert found.stalled_s == 0.0


def test_a_lane_that_had_nothing_to_do_was_not_slow() -> None:
    idle = minutes(60, 60, 60, *[0] * 20)
    busy, free = pace(idle, HOUR_S), pace(idle, 150.0)
    assert free is not None
    assert free.per_s == pytest.approx(1.0)
    assert busy is not None
    assert busy.per_s == free.per_s  # nothing ended in the twenty before: that was another rate


@pytest.mark.parametrize("known", [[], minutes(0, 0, 0)], ids=["nothing", "no ends"])
def test_nothing_is_made_of_nothing(known: list[Minute]) -> None:
    assert pace(known, HOUR_S) is None


@given(st.lists(st.integers(0, 500), min_size=1, max_size=60), st.integers(0, 100))
def test_it_is_never_beyond_what_was_seen(ended: list[int], extra: int) -> None:
    known = [Minute(n, n + extra) for n in ended]
    found = pace(known, HOUR_S)
    if found is None:
        assert not any(ended)
    else:
        assert min(ended) / 60 - 1e-9 <= found.per_s <= max(ended) / 60 + 1e-9
        assert found.spread > 0
        assert found.starts_per_job >= 1


def test_chance_alone_is_no_change() -> None:
    random = Random(7)
    known = [Minute(sum(random.random() < 0.5 for _ in range(120)), 60) for _ in range(40)]
    found = pace(known, HOUR_S)
    assert found is not None
    assert found.minutes > 20


def test_work_that_came_in_the_midst_of_a_minute_does_not_make_it_a_slow_one() -> None:
    found = pace([Minute(60, 60, 30.0), Minute(20, 20)], 40.0)
    assert found is not None
    assert (found.per_s, found.minutes) == (2.0, 1)
    again = pace([Minute(60, 60, 30.0), Minute(20, 20), Minute(0, 0), Minute(120, 120)], 40.0)
    assert again is not None
    assert again.per_s == 2.0


def test_a_minute_through_which_something_waited_counts_whole() -> None:
    found = pace([Minute(60, 60, 30.0), Minute(60, 60)], 90.0)
    assert found is not None
    assert found.minutes == 2


def test_a_few_seconds_say_less_than_the_minute_before() -> None:
    found = pace([Minute(40, 40, 5.0), Minute(60, 60)], 10.0)
    assert found is not None
    assert found.minutes == 2
