"""Metrics on their way out: as the SDK's values, by a thread that no collector and no loop holds up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import AggregationTemporality

from acklast.telemetry import catalogue as of
from acklast.telemetry.events import Settled
from acklast.telemetry.exports import Exports
from acklast.telemetry.metric import Metric, Sample
from acklast.telemetry.metrics_data import Translation
from acklast.telemetry.metrics_export import MetricsExport
from acklast.telemetry.registry import Registry
from acklast.telemetry.snapshot import Snapshot
from acklast.telemetry.variables import Signal
from harness import eventually

RESOURCE = (("service.name", "acklast"),)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Telling:
    """A registry whose snapshots are translated."""

    def __init__(self, *, delta: bool) -> None:
        self.clock = Clock()
        self.registry = Registry({"rent": "crm"}, clock=self.clock)
        self.translation = Translation(RESOURCE, "acklast", "1", delta=delta)

    def done(self, handler_s: float = 0.02) -> None:
        self.registry(Settled("complete", "rent", "key", outcome="done", handler_s=handler_s))

    def told(self, after_s: float = 10.0) -> dict[str, Any]:
        self.clock.now += after_s
        data = self.translation(self.registry.snapshot())
        encode_metrics(data)  # the library takes it
        [resource] = data.resource_metrics
        assert resource.resource.attributes["service.name"] == "acklast"
        [scope] = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


def points(told: dict[str, Any], metric: Metric) -> Sequence[Any]:
    found: Sequence[Any] = told[metric.name].data.data_points
    return found


def test_counters_and_histograms_tell_all_since_the_start() -> None:
    telling = Telling(delta=False)
    telling.done()
    telling.told()
    telling.done()
    told = telling.told()
    [done] = points(told, of.JOBS_DONE)
    assert (done.value, dict(done.attributes)) == (2, {"lane": "rent"})
    assert (done.start_time_unix_nano, done.time_unix_nano) == (1000 * 10**9, 1020 * 10**9)
    [handled] = points(told, of.HANDLER_DURATION)
    assert (handled.count, sum(handled.bucket_counts)) == (2, 2)
    assert tuple(handled.explicit_bounds) == of.HANDLER_DURATION.bounds
    assert told[of.JOBS_DONE.name].data.aggregation_temporality is AggregationTemporality.CUMULATIVE
    assert told[of.JOBS_DONE.name].data.is_monotonic
    assert (told[of.HANDLER_DURATION.name].unit, told[of.JOBS_DONE.name].unit) == ("s", "{job}")


def test_by_delta_they_tell_what_they_have_grown_by() -> None:
    telling = Telling(delta=True)
    telling.done()
    telling.told()
    telling.done(1.5)
    telling.done(1.5)
    told = telling.told()
    [done] = points(told, of.JOBS_DONE)
    assert (done.value, done.start_time_unix_nano, done.time_unix_nano) == (2, 1010 * 10**9, 1020 * 10**9)
    [handled] = points(told, of.HANDLER_DURATION)
    assert (handled.count, handled.sum) == (2, pytest.approx(3.0))
    assert told[of.JOBS_DONE.name].data.aggregation_temporality is AggregationTemporality.DELTA
    assert of.JOBS_DONE.name not in telling.told()


@pytest.mark.parametrize("delta", [False, True])
def test_a_gauge_is_what_it_is(delta: bool) -> None:
    telling = Telling(delta=delta)
    telling.registry.watch(lambda: [Sample(of.LEASE_LEFT, (), 7.5)])
    for _ in range(2):
        [left] = points(telling.told(), of.LEASE_LEFT)
        assert left.value == 7.5


class Collector:
    """Takes snapshots, or says why it does not; may be slow."""

    def __init__(self) -> None:
        self.got: list[Snapshot] = []
        self.why = ""
        self.held = threading.Event()
        self.held.set()
        self.entered = threading.Event()
        self.stopped = False

    def export(self, snapshot: Snapshot) -> str:
        self.entered.set()
        self.held.wait(60)
        if not self.why:
            self.got.append(snapshot)
        return self.why

    def stop(self) -> None:
        self.stopped = True


class Exporting:
    """The thread, with a collector of the test's own."""

    def __init__(self, every_s: float = 0.01) -> None:
        self.collector = Collector()
        self.exports = Exports()
        self.registry = Registry({"rent": ""})
        self.made = MetricsExport(self.registry.snapshot, lambda: self.collector, self.exports, every_s)

    def start(self) -> None:
        self.made.start(asyncio.get_running_loop())

    def count(self, result: str) -> int:
        return self.exports.exports[Signal.METRICS, result]


async def test_it_exports_again_and_again_and_once_more_at_the_end() -> None:
    one = Exporting()
    one.start()
    await eventually(lambda: len(one.collector.got) >= 3)
    one.registry(Settled("complete", "rent", "key", outcome="done"))
    await one.made.close()
    assert one.collector.got[-1].value(of.JOBS_DONE, "rent") == 1
    assert one.count("ok") == len(one.collector.got)
    assert one.collector.stopped


async def test_the_last_export_needs_no_timer() -> None:
    one = Exporting(every_s=3600)
    one.start()
    await one.made.close()
    assert len(one.collector.got) == 1


async def test_what_is_not_taken_is_counted_and_the_next_try_has_it_too() -> None:
    one = Exporting()
    one.collector.why = "unavailable"
    one.start()
    await eventually(lambda: one.count("failed") >= 2)
    one.collector.why = ""
    await eventually(lambda: one.collector.got)
    dropped = one.exports.dropped[Signal.METRICS, "export_failed"]
    assert dropped % sum(len(family.points) for family in one.collector.got[0].families) == 0 < dropped
    await one.made.close()


async def test_a_collector_that_hangs_holds_up_neither_the_loop_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acklast.telemetry.metrics_export.CLOSE_S", 0.05)
    one = Exporting()
    one.collector.held.clear()
    one.start()
    await eventually(one.collector.entered.is_set)
    assert one.exports.queued()[Signal.METRICS] == 1
    await one.made.close()
    assert one.exports.dropped[Signal.METRICS, "shutdown"] > 0
    assert one.collector.stopped
    one.collector.held.set()


async def test_a_defect_of_an_exporter_is_a_failed_export() -> None:
    one = Exporting()

    def broken(snapshot: Snapshot) -> str:
        raise ValueError

    one.collector.export = broken  # type: ignore[method-assign]  # what a library may do
    one.start()
    await eventually(lambda: one.count("failed") >= 2)
    await one.made.close()


async def test_a_loop_that_is_gone_ends_nothing_but_its_answers() -> None:
    one = Exporting()
    gone = asyncio.new_event_loop()
    gone.close()
    one.made.start(gone)
    await one.made.close()
    assert len(one.collector.got) == 1


async def test_an_exporter_that_cannot_be_made_is_counted_as_a_failure() -> None:
    def broken() -> Any:
        raise RuntimeError("no such plugin")

    exports = Exports()
    exporting = MetricsExport(Registry().snapshot, broken, exports, every_s=60.0)
    exporting.start(asyncio.get_running_loop())
    await eventually(lambda: exports.failing(Signal.METRICS))
    assert exports.exports[Signal.METRICS, "failed"] == 1
    await exporting.close()
