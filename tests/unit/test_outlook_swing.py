"""What an hour of minutes says of what comes: waves come back, steps stay, and chance is neither."""

from __future__ import annotations

from math import exp, pi, sin
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.outlook.swing import CALM, Swing, swing

HOUR = range(60)


def minutes(*rates: float) -> list[tuple[float, float]]:
    """Jobs a minute, the newest first."""
    return [(rate, 60.0) for rate in rates]


def waves(period_min: float, part: float = 0.5) -> list[tuple[float, float]]:
    """The newest minutes are on top of one."""
    return minutes(*(120 * (1 + part * sin(pi / 2 + 2 * pi * n / period_min)) for n in HOUR))


@pytest.mark.parametrize("period_min", [8, 15, 30])
def test_a_rate_that_swings_comes_back_to_what_is_usual(period_min: float) -> None:
    found = swing(waves(period_min), 60.0, 5.0)
    assert found.back > 0.5
    assert 1.9 < found.usual_per_s < 2.1
    assert found.usual_per_s <= found.per_s(3.0) < 2.5


def test_what_lies_further_ahead_is_nearer_to_what_is_usual() -> None:
    near, far = (swing(waves(20), horizon_min, 5.0) for horizon_min in (3.0, 120.0))
    assert near.back < far.back


@pytest.mark.parametrize("at", [5, 15, 30, 50])
def test_a_rate_that_has_changed_once_and_stayed_does_not(at: int) -> None:
    found = swing(minutes(*(60 if n < at else 120 for n in HOUR)), 30.0, 5.0)
    assert found.back < 0.15


def test_chance_is_no_swing_and_makes_no_spread() -> None:
    random = Random(5)
    calm = minutes(*(sum(random.random() < 0.5 for _ in range(240)) for _ in HOUR))
    found = swing(calm, 30.0, 5.0)
    assert found.back < 0.1
    assert found.spread < 0.02
    assert found.times == 1.0


def test_a_forecast_that_would_have_been_wrong_is_known_to_be_rough() -> None:
    random, level, rates = Random(9), 0.0, []
    for _ in HOUR:
        level += random.gauss(0, 0.1)
        rates.append(600 * exp(level))
    assert swing(minutes(*rates), 10.0, 5.0).spread > 0.1


def test_a_standstill_is_no_swing() -> None:
    stood = minutes(*(3 if n % 20 < 3 else 120 for n in HOUR))
    found = swing(stood, 30.0, 5.0)
    assert (found.back, found.spread) == (0.0, 0.0)


def test_of_a_quarter_of_an_hour_nothing_is_said() -> None:
    assert swing(waves(5)[:15], 30.0, 5.0) == CALM
    assert swing([], 30.0, 5.0) == CALM
    assert CALM.per_s(2.0) == 2.0


@given(
    st.lists(st.tuples(st.integers(0, 500), st.floats(1, 60)), max_size=60),
    st.floats(0, 600),
    st.floats(1, 9),
)
def test_it_never_goes_beyond_what_is_usual(
    known: list[tuple[float, float]], horizon_min: float, now_per_s: float
) -> None:
    found: Swing = swing(known, horizon_min, 5.0)
    assert 0.0 <= found.back <= 1.0
    assert found.spread >= 0.0
    if found.back:
        low, high = sorted((now_per_s, found.usual_per_s))
        assert low - 1e-9 <= found.per_s(now_per_s) <= high + 1e-9
