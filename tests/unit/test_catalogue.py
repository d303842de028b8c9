"""The catalogue of metrics: each has a name of its own, and words that are those of the code."""

from __future__ import annotations

import re

import pytest

from acklast.fleet import UNFINISHED
from acklast.ledger.redrives import RedriveStatus
from acklast.reporter import Standing
from acklast.telemetry.catalogue import BY_NAME, CATALOGUE
from acklast.telemetry.metric import LANE_STATES, REDRIVE_STATUSES, RUN_STATUSES, Kind, Metric

METRICS = [pytest.param(one, id=one.name) for one in CATALOGUE]


def test_no_two_share_a_name_in_either_world() -> None:
    assert len(CATALOGUE) == len(BY_NAME) == len({one.prometheus for one in CATALOGUE}) > 40


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_is_said_in_full(metric: Metric) -> None:
    assert re.fullmatch(r"acklast(\.[a-z_]+)+", metric.name)
    assert re.fullmatch(r"[a-z_]+", metric.prometheus)
    assert metric.description.endswith(".")
    assert set(metric.values) <= set(metric.labels)
    assert len(set(metric.labels)) == len(metric.labels)


@pytest.mark.parametrize("metric", METRICS)
def test_a_histogram_has_bounds_that_grow_and_nothing_else_has_any(metric: Metric) -> None:
    assert bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.bounds) == sorted(set(metric.bounds))


@pytest.mark.parametrize("metric", METRICS)
def test_no_label_is_a_key_or_a_type(metric: Metric) -> None:
    assert not set(metric.labels) & {"key", "type", "job", "trace_id"}
    assert "run" not in metric.labels or metric.name.startswith("acklast.run.")


def test_its_words_are_those_of_the_code() -> None:
    assert set(LANE_STATES) == set(Standing)
    assert RUN_STATUSES == UNFINISHED
    assert set(REDRIVE_STATUSES) == {one for one in RedriveStatus if not one.ended}
