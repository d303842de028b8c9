"""Prometheus' text, read back by the reference library's own parser."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from acklast.telemetry import catalogue as of
from acklast.telemetry.catalogue import CATALOGUE
from acklast.telemetry.events import Settled
from acklast.telemetry.metric import Kind, Metric, Sample
from acklast.telemetry.prometheus import render
from acklast.telemetry.registry import Registry
from acklast.telemetry.snapshot import Buckets, Points, Snapshot, snapshot_of

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3"


def everything() -> Snapshot:
    """One series of each metric there is."""
    registry = Registry({"rent": "crm"}, only=CATALOGUE)
    for number in range(3):
        registry(
            Settled(
                "complete",
                "rent",
                "key",
                outcome="done",
                handler_s=0.1 * number,
                pace_s=0.0,
                effect_to_ack_s=0.004,
                queue_s=7.0,
            )
        )
    registry.watch(lambda: [sample_of(one) for one in CATALOGUE if one.kind is not Kind.HISTOGRAM])
    return registry.snapshot()


def sample_of(metric: Metric) -> Sample:
    return Sample(metric, tuple(metric.values.get(label, ("one",))[0] for label in metric.labels), 2.5)


async def families(accept: str, snapshot: Snapshot) -> dict[str, Any]:
    text, content_type = await render(snapshot, accept)
    is_open = content_type.startswith("application/openmetrics-text")
    assert is_open == (accept == OPENMETRICS)
    read = read_openmetrics if is_open else read_text
    return {family.name: family for family in read(text.decode())}


@pytest.mark.parametrize("accept", ["", "text/plain;version=0.0.4", OPENMETRICS], ids=["", "text", "open"])
async def test_every_metric_is_read_back(accept: str) -> None:
    found = await families(accept, everything())
    for metric in CATALOGUE:
        family = found[metric.prometheus.removesuffix("_total")]
        assert family.type == metric.kind.value
        assert family.documentation == metric.description
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


async def test_values_are_read_back() -> None:
    found = await families("", everything())
    samples = {
        (one.name, *sorted(one.labels.values())): one.value for one in found["acklast_lane_state"].samples
    }
    assert samples == {("acklast_lane_state", "one", "paused"): 2.5}
    [total] = [one.value for one in found["acklast_jobs_done"].samples if one.labels["lane"] == "rent"]
    assert total == 3


async def test_buckets_hold_those_below_them() -> None:
    found = await families("", everything())
    samples = found["acklast_handler_duration_seconds"].samples
    buckets = [one.value for one in samples if one.name.endswith("_bucket")]
    assert all(before <= after for before, after in pairwise(buckets))
    by_bound = {one.labels["le"]: one.value for one in samples if one.name.endswith("_bucket")}
    assert (by_bound["0.001"], by_bound["0.1"], by_bound["0.25"], by_bound["+Inf"]) == (1, 2, 3, 3)
    assert {one.name: one.value for one in samples if "le" not in one.labels} == {
        "acklast_handler_duration_seconds_count": 3,
        "acklast_handler_duration_seconds_sum": pytest.approx(0.3),
    }


async def test_labels_may_hold_anything() -> None:
    odd = 'a"b\\c\nd é'
    snapshot = snapshot_of(0, 0, {}, [Sample(of.DEAD_LETTERS, ("rent", odd), 1)])
    for accept in ("", OPENMETRICS):
        [family] = (await families(accept, snapshot)).values()
        assert [one.labels["reason"] for one in family.samples] == [odd]


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "open"])
async def test_a_large_family_has_one_head_and_all_its_series(accept: str) -> None:
    buckets = Buckets((1,) * (len(of.PACE_TIME.bounds) + 1), 1.0)
    counted: dict[Metric, Points] = {
        of.JOBS_DONE: {(f"lane{number}",): number for number in range(500)},
        of.PACE_TIME: {(f"lane{number}",): buckets for number in range(100)},
    }
    snapshot = snapshot_of(0, 0, counted, ())
    text, _ = await render(snapshot, accept)
    assert (text.count(b"# HELP"), text.count(b"# TYPE"), text.count(b"# EOF")) == (
        2,
        2,
        accept == OPENMETRICS,
    )
    found = await families(accept, snapshot)
    assert len(found["acklast_jobs_done"].samples) == 500
    assert len(found["acklast_pace_time_seconds"].samples) == 100 * (len(of.PACE_TIME.bounds) + 3)


async def test_the_loop_goes_on_meanwhile() -> None:
    counted: dict[Metric, Points] = {of.JOBS_DONE: {(f"lane{number}",): number for number in range(2000)}}
    rendering = asyncio.create_task(render(snapshot_of(0, 0, counted, ())))
    turns = 0
    while not rendering.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20


async def test_of_nothing_there_is_no_text() -> None:
    assert (await render(snapshot_of(0, 0, {}, ())))[0] == b""
    assert (await render(snapshot_of(0, 0, {}, ()), OPENMETRICS))[0] == b"# EOF\n"
