"""The benchmark's figures: what is counted, what is left out, what is compared with what."""

from __future__ import annotations

import pytest

from bench.stats import Spread, gaps, quantile, rate, ratios, window


def test_a_spread_is_the_median_and_the_range() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_no_values_have_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


@pytest.mark.parametrize(("part", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_a_quantile_is_a_value_that_was_measured(part: float, expected: int) -> None:
    assert quantile(list(range(100, 0, -1)), part) == expected


def test_a_tenth_at_each_edge_is_not_counted() -> None:
    assert window(1000) == (100, 900)


def test_the_rate_does_not_see_a_slow_start_or_a_slow_end() -> None:
    steady = [10.0 + number / 100 for number in range(100)]
    moments = [0.0] * 5 + steady[5:95] + [60.0] * 5
    assert rate(moments) == pytest.approx(100)


def test_the_rate_sees_what_is_slow_between_the_edges() -> None:
    moments = [float(number) for number in range(50)] + [100.0 + number for number in range(50)]
    assert rate(moments) == pytest.approx(80 / 131, rel=0.01)


@pytest.mark.parametrize("moments", [[], [1.0], [1.0] * 100])
def test_too_few_jobs_have_no_rate(moments: list[float]) -> None:
    with pytest.raises(ValueError, match="too few"):
        rate(moments)


def test_gaps_are_those_between_the_edges() -> None:
    moments = [0.0, *(10.0 + number for number in range(8)), 99.0]
    assert gaps(moments) == [10.0, *[1.0] * 7]


def test_a_ratio_is_taken_within_its_round() -> None:
    """A round in which the machine was slow for all changes no ratio."""
    assert ratios([400, 40, 400], [100, 10, 100]) == Spread(4, 4, 4)


def test_rounds_that_do_not_match_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1, 2], [1])
