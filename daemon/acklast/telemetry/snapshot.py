"""All metrics of a process at one moment, as values: what is exported and what is scraped is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from acklast.telemetry.catalogue import CATALOGUE
from acklast.telemetry.metric import Metric, Sample

Labels: TypeAlias = tuple[str, ...]
"""Values of a metric's labels, in their order."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram's series. ``counts`` has one more than there are bounds, and none holds another."""

    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        return sum(self.counts)


Value: TypeAlias = float | Buckets
Points: TypeAlias = Mapping[Labels, Value]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric and its series."""

    metric: Metric
    points: Points


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Times are seconds since the epoch: what only grows has grown from ``started_at`` to ``at``."""

    started_at: float
    at: float
    families: tuple[Family, ...]

    def value(self, metric: Metric, *labels: str) -> Value | None:
        """One series; None where there is none."""
        return next(
            (one.points[labels] for one in self.families if one.metric is metric and labels in one.points),
            None,
        )


def snapshot_of(
    started_at: float, at: float, counted: Mapping[Metric, Points], samples: Iterable[Sample]
) -> Snapshot:
    """Put together what was counted and what was looked up, in the catalogue's order.

    A metric without any series is left out. Of two samples of one series the later one counts.
    """
    found: dict[str, dict[Labels, Value]] = {
        metric.name: dict(points) for metric, points in counted.items() if points
    }
    for sample in samples:
        found.setdefault(sample.metric.name, {})[sample.labels] = sample.value
    families = (Family(metric, found[metric.name]) for metric in CATALOGUE if metric.name in found)
    return Snapshot(started_at, at, tuple(families))
