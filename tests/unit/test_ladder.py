"""A delay of any length, hop by hop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast_topology.ladder import BUCKETS_S, bucket_for

DAY_S = 86_400


def hops(delay_s: float) -> list[int]:
    """The wait queues that a job goes through until its time has come."""
    taken: list[int] = []
    while delay_s - sum(taken) > 0:
        taken.append(bucket_for(delay_s - sum(taken)))
    return taken


@pytest.mark.parametrize(
    ("remaining_s", "bucket"),
    [(-5, 1), (0, 1), (0.2, 1), (1, 1), (4.9, 1), (5, 5), (29, 5), (30, 30), (3599, 600), (10**9, 21600)],
)
def test_the_largest_bucket_that_is_not_too_long(remaining_s: float, bucket: int) -> None:
    assert bucket_for(remaining_s) == bucket


@given(st.floats(min_value=0.001, max_value=30 * DAY_S))
def test_a_job_is_never_early_and_at_most_a_second_late(delay_s: float) -> None:
    late_s = sum(hops(delay_s)) - delay_s
    assert 0 <= late_s <= min(BUCKETS_S)


@given(st.floats(min_value=0.001, max_value=DAY_S))
def test_a_delay_takes_few_hops(delay_s: float) -> None:
    assert len(hops(delay_s)) <= 36


def test_own_buckets() -> None:
    assert bucket_for(100, (2, 60)) == 60
    assert bucket_for(1, (2, 60)) == 2
