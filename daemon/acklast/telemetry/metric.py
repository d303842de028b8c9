"""What a metric is, and the words that its labels may have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

MOST: Final = 50
"""So many reasons are told apart in a lane; the others are ``OTHER``."""
OTHER: Final = "other"


class Kind(StrEnum):
    """What a metric's value does."""

    COUNTER = "counter"
    """It only grows, from 0 at the process's start."""
    HISTOGRAM = "histogram"
    """How many observations there were up to each bound, how many in all, and their sum; all only grow."""
    GAUGE = "gauge"
    """How something stands at the moment."""


class Origin(StrEnum):
    """Whose value it is."""

    PROCESS = "process"
    """Of the process that tells it: add them up over the daemons."""
    FLEET = "fleet"
    """Read from the ledger, and so the same in every daemon: take the greatest."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric: itself alone, as there is one of each."""

    name: str
    """As OTLP has it."""
    kind: Kind
    unit: str
    """UCUM, as OTLP has it: ``s``, ``{job}``; empty where it has none."""
    labels: tuple[str, ...]
    description: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """All values of those labels that have words of ours."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets; there is one more, without."""
    origin: Origin = Origin.PROCESS
    example: str = ""
    """A PromQL query, where it is not obvious what to do with it."""

    @property
    def prometheus(self) -> str:
        """Its name in Prometheus; a histogram's series add ``_bucket``, ``_sum`` and ``_count``."""
        name = self.name.replace(".", "_") + _SUFFIXES.get(self.unit, "")
        return f"{name}_total" if self.kind is Kind.COUNTER else name


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series at the moment. ``labels`` has the values, in the order of the metric's own."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


_SUFFIXES: Final = {"s": "_seconds", "{call}/s": "_per_second"}

# What labels may be, where that is up to us.
DISPOSITIONS: Final = (
    "complete",
    "retry",
    "bury",
    "hold",
    "give_back",
    "decided",
    "not_due",
    "held",
    "conflict",
    "malformed",
    "claim_lost",
    "channel_lost",
)
OUTCOMES: Final = (
    "done",
    "rate_limited",
    "transient",
    "permanent",
    "unknown",
    "interrupted",
    "reconciled",
    "not_started",
)
HANDLED: Final = OUTCOMES[:6]
"""Those that a handler's run can have."""
PRIORITIES: Final = ("high", "normal", "low")
JOB_STATES: Final = ("ready", "queued", "waiting", "claimed", "unresolved", "dead")
LANE_STATES: Final = (
    "paused",
    "lease_lost",
    "breaker",
    "quiet",
    "no_permit",
    "not_consuming",
    "slowed",
    "open",
)
PERMITS: Final = ("held", "busy")
RENEWALS: Final = ("renewed", "failed", "refused")
ROLES: Final = ("consumer", "publisher")
PUBLISHED: Final = ("retry", "fair", "hand_on", "relay", "redrive", "missing", "unrouted")
FIRED: Final = ("fired", "done", "skipped")
SIGNALS: Final = ("traces", "metrics", "logs")
DROPS: Final = ("queue_full", "export_failed", "shutdown")
EXPORTS: Final = ("ok", "failed")
RUN_STATUSES: Final = ("open", "at_risk", "late", "cancelling")
"""Of runs that are not over."""
REDRIVE_STATUSES: Final = ("planned", "running", "paused", "asking", "stopped")
"""Of redrives that are not over."""

_SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
DURATION_S: Final = (*_SHORT, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""From a millisecond to an hour."""
WAIT_S: Final = (*DURATION_S, 21_600.0, 86_400.0)
"""From a millisecond to a day."""
FLUSH_S: Final = (0.0005, *_SHORT)
FLUSH_JOBS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


def counter(
    name: str,
    unit: str,
    labels: tuple[str, ...],
    description: str,
    example: str = "",
    **values: tuple[str, ...],
) -> Metric:
    """It only grows, from 0 on."""
    return Metric(name, Kind.COUNTER, unit, labels, description, values, example=example)


def histogram(
    name: str,
    unit: str,
    labels: tuple[str, ...],
    bounds: tuple[float, ...],
    description: str,
    example: str = "",
    **values: tuple[str, ...],
) -> Metric:
    """``bounds`` are the upper ones of its buckets."""
    return Metric(name, Kind.HISTOGRAM, unit, labels, description, values, bounds, example=example)


def gauge(
    name: str,
    unit: str,
    labels: tuple[str, ...],
    description: str,
    example: str = "",
    **values: tuple[str, ...],
) -> Metric:
    """How something stands in this process."""
    return Metric(name, Kind.GAUGE, unit, labels, description, values, example=example)


def fleet(
    name: str,
    unit: str,
    labels: tuple[str, ...],
    description: str,
    example: str = "",
    **values: tuple[str, ...],
) -> Metric:
    """How something stands by the ledger."""
    return replace(gauge(name, unit, labels, description, example, **values), origin=Origin.FLEET)
