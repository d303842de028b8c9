"""What is told as events, as counters and histograms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from acklast.telemetry import catalogue as of
from acklast.telemetry.catalogue import CATALOGUE, OF_DAEMONS
from acklast.telemetry.events import Event, Flushed, Notice, Published, Settled
from acklast.telemetry.metric import FIRED, MOST, Kind, Metric, Origin, Sample
from acklast.telemetry.registry import Registry
from acklast.telemetry.snapshot import Buckets, Snapshot, Value

LANES = {"rent": "crm", "mail": ""}


def told(*events: Event) -> Snapshot:
    registry = Registry(LANES, clock=lambda: 100.0)
    for event in events:
        registry(event)
    return registry.snapshot()


def settled(disposition: str, lane: str = "rent", **more: Any) -> Settled:
    return Settled(disposition, lane, "key", **more)


def counted(snapshot: Snapshot, metric: Metric, *labels: str) -> float:
    value = snapshot.value(metric, *labels)
    assert isinstance(value, int | float), (metric.name, labels, value)
    return value


DONE = settled("complete", outcome="done", attempt=1, handler_s=0.02, pace_s=0.0, effect_to_ack_s=0.003)
CASES = [
    (DONE, {of.JOBS_DONE: 1, of.ATTEMPTS: 1}),
    (settled("retry", outcome="transient", reason="timeout"), {of.ATTEMPTS: 1}),
    (settled("retry", outcome="rate_limited", reason="rate_limited"), {of.RATE_LIMITED: 1}),
    (settled("bury", outcome="permanent", reason="no_such_flat"), {of.ATTEMPTS: 1, of.BURIED: 1}),
    (settled("bury", outcome="not_started", reason="deadline_exceeded"), {of.BURIED: 1}),
    (settled("hold", outcome="unknown", reason="timeout"), {of.ATTEMPTS: 1}),
    (settled("give_back", outcome="unknown", reason="drain_cut"), {}),
    (settled("give_back", outcome="interrupted", reason="drain"), {}),
    (settled("give_back", reason="stand_by"), {}),
    (settled("complete", outcome="reconciled"), {of.JOBS_DONE: 1, of.ATTEMPTS: 1}),
    (settled("claim_lost", outcome="done"), {of.ATTEMPTS: 1}),
    (settled("decided", reason="done"), {of.DUPLICATES: 1}),
    (settled("conflict", reason="key_conflict"), {of.BURIED: 1}),
    (settled("malformed", reason="missing_key"), {of.BURIED: 1}),
    (settled("not_due"), {}),
]
TOTALS = (of.JOBS_DONE, of.ATTEMPTS, of.RATE_LIMITED, of.DUPLICATES, of.BURIED)


@pytest.mark.parametrize(
    ("event", "expected"), CASES, ids=[f"{one.disposition}-{one.outcome}" for one, _ in CASES]
)
def test_what_a_delivery_counts_for(event: Settled, expected: dict[Metric, int]) -> None:
    snapshot = told(event)
    totals = {family.metric: sum(numbers(family.points.values())) for family in snapshot.families}
    assert {metric: totals[metric] for metric in TOTALS if totals[metric]} == expected
    assert totals[of.DELIVERIES] == 1
    assert counted(snapshot, of.DELIVERIES, "rent", event.disposition) == 1
    assert totals[of.OUTCOMES_TOTAL] == (event.outcome is not None)


def numbers(values: Any) -> Iterator[float]:
    return (value.count if isinstance(value, Buckets) else value for value in values)


def test_a_refusal_is_the_budgets() -> None:
    snapshot = told(*[settled("retry", lane, outcome="rate_limited") for lane in ("rent", "rent", "mail")])
    assert counted(snapshot, of.RATE_LIMITED, "rent", "crm") == 2
    assert counted(snapshot, of.RATE_LIMITED, "mail", "") == 1


def test_reasons_are_cut_off_and_none_of_them_is_lost() -> None:
    events = [
        settled("retry", outcome="transient", reason=f"order_{number}")
        for number in range(MOST + 30)
        for _ in range(2)
    ]
    snapshot = told(*events, settled("retry", "mail", outcome="transient", reason="one_more"))
    [family] = [one for one in snapshot.families if one.metric is of.OUTCOMES_TOTAL]
    reasons = {labels[2] for labels in family.points if labels[0] == "rent" and labels[1] == "transient"}
    assert len(reasons) == MOST + 1
    assert counted(snapshot, of.OUTCOMES_TOTAL, "rent", "transient", "order_0") == 2
    assert counted(snapshot, of.OUTCOMES_TOTAL, "rent", "transient", "other") == 60
    assert counted(snapshot, of.OUTCOMES_TOTAL, "mail", "transient", "one_more") == 1


def observed(value: Value | None) -> Buckets:
    assert isinstance(value, Buckets)
    return value


def test_times_go_into_their_buckets() -> None:
    snapshot = told(DONE, DONE, settled("bury", outcome="permanent", reason="no", handler_s=7200.0))
    done = observed(snapshot.value(of.HANDLER_DURATION, "rent", "done"))
    assert done.count == 2
    assert done.sum == pytest.approx(0.04)
    assert done.counts[of.HANDLER_DURATION.bounds.index(0.025)] == 2
    assert observed(snapshot.value(of.HANDLER_DURATION, "rent", "permanent")).counts[-1] == 1
    assert observed(snapshot.value(of.PACE_TIME, "rent")).counts[0] == 2
    assert observed(snapshot.value(of.EFFECT_TO_ACK, "rent")).count == 2


def test_a_time_that_is_a_bound_belongs_to_it() -> None:
    value = told(settled("complete", outcome="done", handler_s=0.005)).value(
        of.HANDLER_DURATION, "rent", "done"
    )
    assert observed(value).counts[of.HANDLER_DURATION.bounds.index(0.005)] == 1


def test_time_in_the_queue_is_told_by_priority() -> None:
    snapshot = told(
        settled("complete", outcome="done", queue_s=3.0, priority="high"),
        settled("complete", outcome="done", queue_s=100_000.0),
        settled("complete", outcome="done"),
    )
    assert observed(snapshot.value(of.QUEUE_TIME, "rent", "high")).count == 1
    assert observed(snapshot.value(of.QUEUE_TIME, "rent", "normal")).counts[-1] == 1


def test_what_starts_no_handler_has_no_time_of_one() -> None:
    snapshot = told(settled("decided", reason="done"), settled("bury", outcome="not_started", reason="x"))
    [family] = [one for one in snapshot.families if one.metric is of.HANDLER_DURATION]
    assert {labels[1] for labels in family.points} == {"done"}


def test_a_flush_has_its_size_and_its_time() -> None:
    snapshot = told(Flushed("jobs", 120, 0.004), Flushed("jobs", 1, 5.0, ok=False))
    sizes, times = observed(snapshot.value(of.FLUSH_SIZE)), observed(snapshot.value(of.FLUSH_DURATION))
    assert (sizes.count, sizes.sum, times.count) == (2, 121, 2)


@pytest.mark.parametrize(
    ("notice", "metric", "labels", "by"),
    [
        (Notice("session.renewal", "debug", {"result": "failed"}), of.LEASE_RENEWALS, ("failed",), 1),
        (Notice("session.lost", "error", {"session": 3}), of.LEASE_LOST, (), 1),
        (
            Notice("broker.connected", fields={"role": "consumer", "generation": 2}),
            of.RECONNECTS,
            ("consumer",),
            1,
        ),
        (
            Notice("broker.connected", fields={"role": "consumer", "generation": 1}),
            of.RECONNECTS,
            ("consumer",),
            0,
        ),
        (
            Notice("unrouted.sent_on", fields={"lane": "rent", "count": 7}),
            of.PUBLISHED_TOTAL,
            ("unrouted",),
            7,
        ),
        (Notice("jobs.missing", fields={"lane": "rent", "sent": 3}), of.PUBLISHED_TOTAL, ("missing",), 3),
        (Published("relay", 50), of.PUBLISHED_TOTAL, ("relay",), 50),
    ],
)
def test_what_is_told_of_the_daemon_is_counted(
    notice: Event, metric: Metric, labels: tuple[str, ...], by: int
) -> None:
    assert counted(told(notice), metric, *labels) == by


def test_what_the_broker_set_aside_is_buried_too() -> None:
    def filed(lane: str, reason: str) -> Notice:
        return Notice("letter.filed", "warning", {"lane": lane, "key": "k", "run": None, "reason": reason})

    snapshot = told(
        filed("rent", "broker_delivery_limit"),
        filed("rent", "invalid_payload"),
        settled("bury", outcome="permanent", reason="invalid_payload"),
        *(filed(f"typo{number}", "unrouted") for number in range(3)),
    )
    assert counted(snapshot, of.BURIED, "rent", "broker_delivery_limit") == 1
    assert counted(snapshot, of.BURIED, "rent", "invalid_payload") == 2
    assert counted(snapshot, of.BURIED, "", "unrouted") == 3


def test_a_notice_that_nobody_counts_counts_for_nothing() -> None:
    assert told(Notice("lane.paused")) == told()


def test_series_are_there_before_anything_happens() -> None:
    snapshot = told()
    there = {family.metric for family in snapshot.families}
    counting = {
        one
        for one in OF_DAEMONS
        if one.kind is not Kind.GAUGE and not one.name.startswith("acklast.telemetry.")
    }
    assert counting <= there
    for family in snapshot.families:
        assert not any(numbers(family.points.values()))
        if "lane" in family.metric.labels:
            assert {labels[0] for labels in family.points} == set(LANES)
    assert counted(snapshot, of.BURIED, "rent", "deadline_exceeded") == 0


def test_a_gauge_is_asked_for_each_time() -> None:
    registry, left = Registry(), iter((3.0, 2.0))
    registry.watch(lambda: [Sample(of.LEASE_LEFT, (), next(left))])
    assert [registry.snapshot().value(of.LEASE_LEFT) for _ in range(2)] == [3.0, 2.0]


def test_a_source_that_fails_takes_no_other_along() -> None:
    registry = Registry(LANES)

    def broken() -> Iterator[Sample]:
        yield Sample(of.LEASE_LEFT, (), 1)
        raise RuntimeError

    registry.watch(broken, lambda: [Sample(of.DRAINING, (), 0)])
    snapshot = registry.snapshot()
    assert snapshot.value(of.LEASE_LEFT) is None
    assert snapshot.value(of.DRAINING) == 0
    assert registry.failed_sources == 1


def test_a_process_tells_only_what_it_can() -> None:
    registry = Registry(only=(of.PUBLISHED_TOTAL, of.BUILD_INFO))
    registry.watch(lambda: [Sample(of.BUILD_INFO, ("1", ""), 1), Sample(of.DRAINING, (), 0)])
    assert [one.metric for one in registry.snapshot().families] == [of.PUBLISHED_TOTAL, of.BUILD_INFO]


def test_the_order_is_the_catalogues() -> None:
    order = [one.metric for one in told(DONE).families]
    assert order == [one for one in CATALOGUE if one in order]


def test_figures_of_the_ledger_say_that_they_are() -> None:
    assert {one.name for one in CATALOGUE if one.origin is Origin.FLEET} >= {"acklast.jobs", "acklast.runs"}


def test_firings_are_told_by_the_scheduler_alone() -> None:
    registry = Registry(only=of.OF_SCHEDULERS)
    registry(Notice("schedule.fired", fields={"schedule": "nightly", "run": "n-1"}))
    registry(Notice("schedule.skipped", "warning", {"schedule": "nightly", "count": 4}))
    registry(Notice("firing.done", fields={"schedule": "nightly", "rows": 100}))
    snapshot = registry.snapshot()
    assert [counted(snapshot, of.FIRINGS, "nightly", one) for one in FIRED] == [1, 1, 4]
    assert {one.metric for one in snapshot.families} == {of.FIRINGS}
    assert told(Notice("schedule.fired", fields={"schedule": "nightly"})) == told()
