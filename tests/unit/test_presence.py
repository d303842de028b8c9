"""When something was paused, out of what operators changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from acklast.ledger.controls import Target
from acklast.ledger.presence import Changed, Stop, stops_of

LANE: Final = (Target.LANE, "mail")
BUDGET: Final = (Target.BUDGET, "mail")


def at(minute: int) -> datetime:
    return datetime(2030, 1, 1, 12, tzinfo=UTC) + timedelta(minutes=minute)


def changed(minute: int, was: bool, is_: bool, until: datetime | None = None) -> Changed:
    return Changed(at(minute), *LANE, was, is_, until)


@pytest.mark.parametrize(
    ("changes", "stops"),
    [
        ([], []),
        ([changed(0, False, True), changed(5, True, False)], [(at(0), at(5))]),
        ([changed(5, True, False)], [(None, at(5))]),
        ([changed(0, False, True)], [(at(0), None)]),
        ([changed(0, False, True, at(3))], [(at(0), at(3))]),
        ([changed(0, False, True, at(9)), changed(5, True, False)], [(at(0), at(5))]),
        ([changed(0, False, True, at(3)), changed(5, False, False)], [(at(0), at(3))]),
        ([changed(0, False, True), changed(2, True, True, at(4))], [(at(0), at(2)), (at(2), at(4))]),
        ([changed(0, False, False)], []),
    ],
    ids=[
        "nothing",
        "and resumed",
        "from before",
        "still",
        "with an end",
        "resumed before its end",
        "over before another change",
        "paused anew",
        "another control",
    ],
)
def test_a_pause_goes_until_the_next_change_or_its_own_end(
    changes: list[Changed], stops: list[tuple[datetime | None, datetime | None]]
) -> None:
    assert stops_of(changes) == [Stop(*LANE, begin, end) for begin, end in stops]


def test_a_lane_and_a_budget_of_one_name_are_two_things() -> None:
    mine, its = changed(0, False, True), Changed(at(1), *BUDGET, False, True)
    assert stops_of([mine, its]) == [Stop(*LANE, at(0), None), Stop(*BUDGET, at(1), None)]
