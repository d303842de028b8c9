"""The fleet's metrics, out of what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from acklast.fleet import Head, Sampled, samples_of
from acklast.lane_queues import Queues
from acklast.ledger.api import State
from acklast.ledger.backlog import Backlog, Dead, Depth, Oldest, OpenRun, Working
from acklast.telemetry import catalogue as of
from acklast.telemetry.metric import Metric, Sample

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FOUND = Sampled(Backlog(NOW), at=100.0, took_s=0.02)


def told(found: Sampled, *lanes: str, now: float = 100.0) -> Mapping[tuple[Metric, tuple[str, ...]], float]:
    samples = list(samples_of(found, lanes or ("a",), now))
    for one in samples:
        assert len(one.labels) == len(one.metric.labels), one
        for name, value in zip(one.metric.labels, one.labels, strict=True):
            assert value in one.metric.values.get(name, (value,)), one
    series = {(one.metric, one.labels): one.value for one in samples}
    assert len(series) == len(samples), "no series is told twice"
    return series


def test_a_lane_of_ours_without_jobs_has_zeros() -> None:
    series = told(FOUND)
    assert {value for (metric, _), value in series.items() if metric in (of.JOBS, of.OLDEST_AGE)} == {0}
    assert series[of.JOBS, ("a", "high", "waiting")] == 0
    assert series[of.OLDEST_AGE, ("a", "low")] == 0
    assert series[of.RUNS, ("late",)] == 0
    assert (of.JOBS, ("a", "normal", "ready")) not in series  # nobody knows


def test_depths_are_of_all_runs_and_of_other_lanes_too() -> None:
    depths = (
        Depth("a", "high", State.QUEUED, "r", 2),
        Depth("a", "high", State.QUEUED, None, 3),
        Depth("b", "normal", State.DEAD, "r", 4),
    )
    series = told(replace(FOUND, backlog=Backlog(NOW, depths=depths), queues={"a": Queues(ready=7)}))
    assert series[of.JOBS, ("a", "high", "queued")] == 5
    assert series[of.JOBS, ("b", "normal", "dead")] == 4
    assert series[of.JOBS, ("a", "normal", "ready")] == 7


def test_an_age_goes_on_after_the_look_and_the_older_one_counts() -> None:
    oldest = (Oldest("a", "normal", NOW - timedelta(seconds=60)),)
    found = replace(FOUND, backlog=Backlog(NOW, oldest=oldest))
    assert told(found, now=105.0)[of.OLDEST_AGE, ("a", "normal")] == 65
    head = Head("normal", waited_s=200.0, started_at=98.0)
    assert told(replace(found, heads={"a": head}), now=105.0)[of.OLDEST_AGE, ("a", "normal")] == 207
    head = Head("high", waited_s=1.0, started_at=98.0)
    both = told(replace(found, heads={"a": head}), now=105.0)
    assert (both[of.OLDEST_AGE, ("a", "normal")], both[of.OLDEST_AGE, ("a", "high")]) == (65, 8)


def test_nothing_is_said_of_jobs_that_are_not_counted_yet() -> None:
    found = replace(
        FOUND, backlog=Backlog(NOW, complete=False), others=(Sample(of.LANE_FORECAST, ("a",), 1),)
    )
    metrics = {metric for metric, _ in told(found)}
    assert metrics == {of.SAMPLE_AGE, of.SAMPLE_DURATION, of.REDRIVES}


def test_dead_letters_are_told_as_they_were_read() -> None:
    dead = (Dead("a", "refused", 2), Dead("", "unrouted", 3))
    series = told(replace(FOUND, backlog=Backlog(NOW, dead=dead)))
    letters = {labels: value for (metric, labels), value in series.items() if metric is of.DEAD_LETTERS}
    assert letters == {("a", "refused"): 2, ("", "unrouted"): 3}


def test_runs_workers_and_redrives_are_told_by_how_they_stand() -> None:
    counts = {State.QUEUED: 1}
    backlog = Backlog(
        NOW,
        runs=(
            OpenRun("r", counts, deadline=NOW - timedelta(1)),
            OpenRun("s", counts),
            OpenRun("t", counts, cancelled=True),
        ),
        workers=(Working("a", "open", 2), Working("a", "paused", 1)),
        redrives={"running": 3},
    )
    series = told(replace(FOUND, backlog=backlog), now=130.0)
    statuses = {"open": 1, "late": 1, "cancelling": 1, "at_risk": 0}
    assert {status: series[of.RUNS, (status,)] for status in statuses} == statuses
    assert series[of.WORKERS, ("a", "open")] == 2
    assert (series[of.REDRIVES, ("running",)], series[of.REDRIVES, ("asking",)]) == (3, 0)
    assert (series[of.SAMPLE_AGE, ()], series[of.SAMPLE_DURATION, ()]) == (30, 0.02)
