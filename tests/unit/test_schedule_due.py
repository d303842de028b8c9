"""What fires after however long nobody looked: every firing is decided once, whatever the looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.config.schedules import CatchUp
from acklast.cron import Cron, zone_of
from acklast.ledger.schedules import Skipped
from acklast.schedule.due import Due, Rules, due
from acklast.schedule.firing import TRIES, wait_s

HOURLY = Cron.parse("0 * * * *", zone_of("Europe/Berlin"))
NOON = datetime(2026, 8, 3, 12, tzinfo=UTC)
ALL = Rules(CatchUp.ALL, 1000)
LATEST = Rules(CatchUp.LATEST)
SKIP = Rules(CatchUp.SKIP)


def hours(*numbers: int) -> tuple[datetime, ...]:
    return tuple(NOON.replace(hour=number) for number in numbers)


@pytest.mark.parametrize(
    ("rules", "fire", "skipped"),
    [
        (ALL, (9, 10, 11, 12), None),
        (Rules(CatchUp.ALL, 2), (11, 12), (2, 9, 10)),
        (LATEST, (12,), (3, 9, 11)),
        (SKIP, (12,), (3, 9, 11)),
        (Rules(CatchUp.ALL, 1000, timedelta(hours=2)), (11, 12), (2, 9, 10)),
    ],
)
def test_after_an_outage_catch_up_says_what_fires(
    rules: Rules, fire: tuple[int, ...], skipped: tuple[int, int, int] | None
) -> None:
    found = due(NOON, NOON - timedelta(hours=4), HOURLY, rules)
    assert found.fire == hours(*fire)
    assert found.skipped == (Skipped(skipped[0], *hours(*skipped[1:])) if skipped else None)


def test_what_is_late_fires_as_the_latest_and_is_skipped_otherwise() -> None:
    now = NOON + timedelta(minutes=20)
    assert due(now, NOON - timedelta(hours=1), HOURLY, LATEST).fire == (NOON,)
    assert due(now, NOON - timedelta(hours=1), HOURLY, SKIP) == Due((), Skipped(1, NOON, NOON))


def test_nothing_is_due_twice_and_nothing_before_its_time() -> None:
    assert due(NOON, NOON, HOURLY, ALL) == Due()
    assert due(NOON - timedelta(seconds=1), NOON - timedelta(minutes=59), HOURLY, ALL) == Due()


def test_jobs_that_could_not_start_any_more_are_not_made() -> None:
    rules = Rules(CatchUp.LATEST, lasts=timedelta(minutes=20))
    found = due(NOON + timedelta(minutes=20), NOON - timedelta(minutes=1), HOURLY, rules)
    assert found == Due((), Skipped(1, NOON, NOON))


CRONS = st.sampled_from(["* * * * *", "0 * * * *", "30 2 * * *", "*/20 1-3 * * *"]).map(
    lambda text: Cron.parse(text, zone_of("Europe/Berlin"))
)
# Around both changes of the clock.
STARTS = st.sampled_from([datetime(2026, 3, 28, 20, tzinfo=UTC), datetime(2026, 10, 24, 20, tzinfo=UTC)])
LOOKS = st.lists(st.integers(1, 6 * 3600), min_size=1, max_size=12)


@given(CRONS, STARTS, LOOKS)
def test_with_all_every_time_fires_once_whenever_one_looks(
    cron: Cron, start: datetime, gaps: list[int]
) -> None:
    times = [start]
    for gap in gaps:
        times.append(times[-1] + timedelta(seconds=gap))
    rules = Rules(CatchUp.ALL, 10_000)
    fired = [at for last, now in pairwise(times) for at in due(now, last, cron, rules).fire]
    assert fired == list(cron.between(start, times[-1]))


@given(CRONS, STARTS, LOOKS, st.sampled_from(CatchUp), st.integers(1, 5), st.integers(60, 7200))
def test_every_time_fires_or_is_skipped_and_is_told(
    cron: Cron, start: datetime, gaps: list[int], catch_up: CatchUp, limit: int, lasts_s: int
) -> None:
    now = start + timedelta(seconds=sum(gaps))
    times = list(cron.between(start, now))
    found = due(now, start, cron, Rules(catch_up, limit, timedelta(seconds=lasts_s)))
    skipped = found.skipped.count if found.skipped else 0
    assert len(found.fire) + skipped == len(times)
    assert list(found.fire) == times[len(times) - len(found.fire) :]
    if found.skipped:
        left = times[:skipped]
        assert (found.skipped.first, found.skipped.last) == (left[0], left[-1])


def test_a_firing_is_tried_ever_more_seldom_and_given_up() -> None:
    waits = [wait_s(tries) for tries in range(TRIES)]
    assert waits[:4] == [5.0, 10.0, 20.0, 40.0]
    assert waits[-2:] == [600.0, None]
