"""The prefetch follows the pace: what runs and a second of work, low at first, high for whoever is fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.pacing.prefetch import HORIZON_S, Pace, Prefetch, prefetch_for

CEILINGS = st.integers(1, 65_535)
CONCURRENCIES = st.integers(1, 10_000)
PACES = st.floats(0, 1e6)
QUOTAS = st.none() | st.floats(1e-6, 1e6)


@given(CEILINGS, CONCURRENCIES, PACES, QUOTAS)
def test_it_is_within_its_bounds(ceiling: int, concurrency: int, pace: float, quota: float | None) -> None:
    count = prefetch_for(ceiling, concurrency, pace, quota)
    assert 1 <= count <= ceiling
    if count < ceiling:
        assert count > concurrency, "a slot that comes free finds its next job here"
        startable = min(pace, quota or math.inf) * HORIZON_S
        assert count - concurrency <= max(startable + 1, 1 + concurrency / 10)


@given(CEILINGS, CONCURRENCIES, PACES, PACES, QUOTAS)
def test_it_never_falls_as_the_pace_rises(
    ceiling: int, concurrency: int, one: float, other: float, quota: float | None
) -> None:
    slow, fast = sorted((one, other))
    assert prefetch_for(ceiling, concurrency, slow, quota) <= prefetch_for(ceiling, concurrency, fast, quota)


@given(CEILINGS, CONCURRENCIES, PACES, st.floats(1e-6, 1e6))
def test_a_quota_never_raises_it(ceiling: int, concurrency: int, pace: float, quota: float) -> None:
    limited = prefetch_for(ceiling, concurrency, pace, quota)
    assert limited <= prefetch_for(ceiling, concurrency, pace, None)
    assert limited <= prefetch_for(ceiling, concurrency, quota, None)


@pytest.mark.parametrize(
    ("ceiling", "concurrency", "pace", "quota", "count"),
    [
        (1000, 10, 0.0, None, 12),  # nothing known: all slots and a few more
        (1000, 10, 2.0, None, 12),  # handlers of 5 s
        (1000, 10, 100.0, None, 110),
        (1000, 500, 16_000.0, None, 1000),  # large batches
        (1000, 10, 5_000.0, 100 / 60, 12),  # fast handlers, few calls
        (5, 10, 5_000.0, None, 5),  # told so
        (1, 1, 0.0, None, 1),
    ],
)
def test_what_it_comes_to(
    ceiling: int, concurrency: int, pace: float, quota: float | None, count: int
) -> None:
    assert prefetch_for(ceiling, concurrency, pace, quota) == count


# --- the pace ----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0.01, 10), st.booleans()), max_size=30))
def test_a_pace_lies_among_what_was_seen(samples: list[tuple[int, float, bool]]) -> None:
    pace = Pace()
    for done, seconds, busy in samples:
        pace.note(done, seconds, busy=busy)
    seen = [done / seconds for done, seconds, _ in samples] or [0.0]
    assert 0 <= pace.per_s <= max(seen) * (1 + 1e-9)


def test_a_lane_without_work_is_not_slow() -> None:
    pace = Pace()
    pace.note(1000, 1.0, busy=True)
    for _ in range(100):
        pace.note(1, 1.0, busy=False)
    assert pace.per_s == 1000
    pace.note(3000, 1.0, busy=False)
    assert pace.per_s > 1000, "it did more: so it can"


# --- a lane and its prefetch over time ---------------------------------------------------------------


@dataclass
class Played:
    """A lane with more to do than it can: it holds all that it may, and looks twice a second."""

    prefetch: Prefetch
    now: float = 100.0
    settled: int = 0

    def __post_init__(self) -> None:
        self.counts = [self.prefetch.begin(self.now)]
        self.changed_at = [self.now]

    def go_on(self, seconds: float, settled_at: Callable[[float], int]) -> None:
        """``settled_at`` tells how many have been settled so many seconds from now."""
        began, before = self.now, self.settled
        while self.now < began + seconds:
            self.now += 0.5
            self.settled = before + settled_at(self.now - began)
            wanted = self.prefetch.look(self.now, self.settled, self.prefetch.count)
            if wanted is not None:
                self.prefetch.change(self.now, wanted)
                self.counts.append(wanted)
                self.changed_at.append(self.now)


def steady(per_s: float) -> Callable[[float], int]:
    return lambda seconds: int(seconds * per_s)


def together(count: int, each_s: float) -> Callable[[float], int]:
    """Handlers that begin and end at the same moments."""
    return lambda seconds: count * int(seconds / each_s)


def test_a_fast_lane_is_at_its_ceiling_within_a_second_and_stays_there() -> None:
    lane = Played(Prefetch(1000, 10))
    lane.go_on(1, steady(5000))
    assert lane.counts == [12, 1000]
    lane.go_on(60, steady(3000))
    assert lane.counts == [12, 1000]


def test_a_lane_that_is_near_its_ceiling_goes_on_to_it() -> None:
    lane = Played(Prefetch(1000, 10))
    lane.go_on(2, steady(600))
    lane.go_on(5, steady(5000))
    assert lane.counts == [12, 610, 1000]


@given(st.integers(1, 2000), st.floats(0.6, 100))
def test_slow_handlers_never_raise_it_by_ending_together(concurrency: int, each_s: float) -> None:
    lane = Played(Prefetch(65_535, concurrency))
    lane.go_on(300, together(concurrency, each_s))
    assert max(lane.counts) <= 3 * concurrency + 2
    if each_s >= 2:
        assert len(lane.counts) == 1


def test_a_lane_that_turns_slow_comes_down_within_ten_seconds_and_back_up_within_three() -> None:
    lane = Played(Prefetch(1000, 10))
    lane.go_on(10, steady(5000))
    lane.go_on(10, together(10, 5.0))
    assert lane.prefetch.count <= 24
    lane.go_on(3, steady(5000))
    assert lane.prefetch.count == 1000


def test_a_lane_that_stands_still_holds_what_its_slots_take() -> None:
    lane = Played(Prefetch(1000, 10))
    lane.go_on(10, steady(5000))
    lane.go_on(60, steady(0))
    assert lane.prefetch.count <= 24


@given(st.lists(st.tuples(st.floats(0.5, 10), st.floats(0, 10_000)), max_size=10))
def test_it_changes_seldom_and_only_where_it_matters(phases: list[tuple[float, float]]) -> None:
    lane = Played(Prefetch(1000, 10))
    for seconds, per_s in phases:
        lane.go_on(seconds, steady(per_s))
    for (before, was), (at, count) in zip(
        zip(lane.changed_at[1:], lane.counts[1:], strict=True),
        zip(lane.changed_at[2:], lane.counts[2:], strict=True),
        strict=False,
    ):
        assert at - before >= 2.0
        assert count >= 2 * was or count <= was / 2 or count == 1000


def test_a_new_channel_begins_with_what_is_known() -> None:
    lane = Played(Prefetch(1000, 10))
    lane.go_on(10, steady(300))
    assert lane.prefetch.begin(lane.now) == pytest.approx(310, abs=2)
    assert lane.prefetch.look(lane.now + 0.5, 150, 310) is None, "it counts from the new channel on"


def test_a_lane_with_a_quota_stays_low_however_fast_its_handlers_are() -> None:
    lane = Played(Prefetch(1000, 10, quota_per_s=50 / 60))
    lane.go_on(60, steady(5000))
    assert lane.counts == [12]


def test_what_is_stuck_does_not_use_up_what_a_lane_may_hold() -> None:
    prefetch = Prefetch(100, 4)
    count = prefetch.begin(0.0)
    prefetch.stuck = lambda: count
    assert prefetch.look(10.0, 0, count) == 2 * count
    prefetch.change(10.0, 2 * count)
    assert prefetch.look(20.0, 0, 2 * count) is None, "all slots have something to do again"
    prefetch.stuck = lambda: 1000
    assert prefetch.look(30.0, 0, 2 * count) == 100, "and never more than the ceiling"
