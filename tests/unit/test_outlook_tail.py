"""When the last retry is over, against retries that are drawn one by one."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.outlook.tail import Retries, Tail

HALF = Retries(0.5, 8.0, 900.0)


def last_s(retries: Retries, per_s: float, for_s: float, chance: float) -> float:
    return Tail(retries).last_s(per_s, for_s, chance)


def drawn(retries: Retries, per_s: float, for_s: float, random: Random) -> float:
    """How long after the last beginning the last of so many jobs is over."""
    last = 0.0
    for number in range(int(per_s * for_s)):
        rounds, waited_s = 0, 0.0
        while random.random() < retries.fails and rounds < 7:
            waited_s += random.uniform(0, 2) * min(retries.cap_s, retries.wait_s * 2.0**rounds)
            rounds += 1
        last = max(last, waited_s - number / per_s)
    return last


@pytest.mark.parametrize(
    ("retries", "per_s", "for_s"),
    [(HALF, 2.0, 3600.0), (HALF, 2.0, 60.0), (Retries(0.1, 5.0, 900.0), 10.0, 600.0)],
    ids=["long and often", "short", "seldom"],
)
def test_the_last_is_over_by_the_time_that_is_told_as_often_as_it_says(
    retries: Retries, per_s: float, for_s: float
) -> None:
    random = Random(3)
    ends = [drawn(retries, per_s, for_s, random) for _ in range(100)]
    early, middle, late = (last_s(retries, per_s, for_s, chance) for chance in (0.1, 0.5, 0.9))
    assert early <= middle <= late
    # A wait is taken for its mean, so half a round is near enough.
    assert sum(end <= late * 1.5 for end in ends) >= 80
    assert sum(end <= early / 1.5 for end in ends) <= 25
    assert 20 <= sum(end <= middle for end in ends) <= 80


def test_without_failures_there_is_no_last_retry() -> None:
    assert last_s(Retries(0.0, 8.0, 900.0), 10.0, 3600.0, 0.9) == 0.0
    assert last_s(HALF, 0.0, 3600.0, 0.9) == 0.0


def test_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    found = [Retries(0.5, 8.0, 20.0).waited_s(rounds) for rounds in (0, 1, 1.5, 2, 3, 4)]
    assert found == [0.0, 8.0, 16.0, 24.0, 44.0, 64.0]


@given(
    st.builds(Retries, st.floats(0, 0.9), st.floats(0.1, 60), st.floats(60, 3600)),
    st.floats(0, 50),
    st.floats(0, 7200),
)
def test_more_jobs_and_more_certainty_take_longer(retries: Retries, per_s: float, for_s: float) -> None:
    times = [last_s(retries, per_s, for_s, chance) for chance in (0.1, 0.5, 0.9)]
    assert all(less <= more for less, more in pairwise(times))
    assert last_s(retries, 2 * per_s, for_s, 0.5) >= times[1] - 1e-3
    assert times[-1] <= 2 * retries.waited_s(7)
