"""A snapshot as the SDK's own values, which its exporters take. Imported only where metrics are exported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, assert_never, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from acklast.telemetry.metric import Kind
from acklast.telemetry.snapshot import Buckets, Family, Labels, Snapshot, Value
from acklast.telemetry.span import Attributes

Place: TypeAlias = tuple[str, Labels]

_NS = 1_000_000_000


class Translation:
    """Makes MetricsData of one snapshot after the other."""

    def __init__(self, resource: Attributes, scope: str, version: str, *, delta: bool) -> None:
        """``delta``: what only grows is told as what it has grown by since the last time."""
        self._resource = Resource(dict(resource))
        self._scope = InstrumentationScope(scope, version)
        self._delta = delta
        self._before: dict[Place, Value] = {}
        self._told_at: float | None = None

    def __call__(self, snapshot: Snapshot) -> MetricsData:
        start = snapshot.started_at if self._told_at is None else self._told_at
        since = (start if self._delta else snapshot.started_at, snapshot.at)
        metrics = [_metric(family, self._points(family), since, self._delta) for family in snapshot.families]
        self._told_at = snapshot.at
        scoped = ScopeMetrics(self._scope, [one for one in metrics if one.data.data_points], "")
        return MetricsData([ResourceMetrics(self._resource, [scoped], "")])

    def _points(self, family: Family) -> Iterable[tuple[Labels, Value]]:
        if not self._delta or family.metric.kind is Kind.GAUGE:
            return family.points.items()
        return [
            (labels, grown)
            for labels, value in family.points.items()
            if (grown := self._grown((family.metric.name, labels), value)) is not None
        ]

    def _grown(self, place: Place, value: Value) -> Value | None:
        """By how much; None where it has not."""
        before, self._before[place] = self._before.get(place), value
        if not isinstance(value, Buckets):
            return value - _number(before) or None
        if before is None:
            return value if value.count else None
        earlier = _buckets(before)
        counts = tuple(now - then for now, then in zip(value.counts, earlier.counts, strict=True))
        return Buckets(counts, value.sum - earlier.sum) if any(counts) else None


def _metric(
    family: Family, points: Iterable[tuple[Labels, Value]], since: tuple[float, float], delta: bool
) -> Metric:
    metric = family.metric
    start_ns, at_ns = (int(moment * _NS) for moment in since)
    temporality = AggregationTemporality.DELTA if delta else AggregationTemporality.CUMULATIVE
    attributed = [(dict(zip(metric.labels, labels, strict=True)), value) for labels, value in points]
    data: Any
    match metric.kind:
        case Kind.GAUGE:
            data = Gauge([NumberDataPoint(of, 0, at_ns, float(_number(value))) for of, value in attributed])
        case Kind.COUNTER:
            counted = [NumberDataPoint(of, start_ns, at_ns, int(_number(value))) for of, value in attributed]
            data = Sum(counted, temporality, is_monotonic=True)
        case Kind.HISTOGRAM:
            observed = [
                _histogram(of, start_ns, at_ns, _buckets(value), metric.bounds) for of, value in attributed
            ]
            data = Histogram(observed, temporality)
        case _:
            assert_never(metric.kind)
    return Metric(metric.name, metric.description, metric.unit, data)


def _number(value: Value | None) -> float:
    assert not isinstance(value, Buckets)
    return value or 0


def _buckets(value: Value) -> Buckets:
    assert isinstance(value, Buckets)
    return value


def _histogram(
    attributes: dict[str, str], start_ns: int, at_ns: int, value: Buckets, bounds: tuple[float, ...]
) -> HistogramDataPoint:
    # The least and the greatest are not kept: OTLP has no need of them, and the encoder leaves out None.
    unknown = cast("float", None)
    return HistogramDataPoint(
        attributes, start_ns, at_ns, value.count, value.sum, value.counts, bounds, unknown, unknown
    )
