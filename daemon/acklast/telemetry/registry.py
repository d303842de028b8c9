"""The sink that counts: everything that is told as an event becomes counters and histograms here.

Whatever only stands somehow (a gauge) is asked for when somebody collects, and is never counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import product
from typing import Any, Final, TypeAlias

from acklast.telemetry import catalogue as of
from acklast.telemetry.cells import Histogram, Settlements
from acklast.telemetry.events import Event, Flushed, Notice, Published, Settled
from acklast.telemetry.metric import DISPOSITIONS, Metric, Sample
from acklast.telemetry.snapshot import Labels, Points, Snapshot, snapshot_of
from acklast_topology.contract import Reason

Source: TypeAlias = Callable[[], Iterable[Sample]]
"""Looks at something and tells how it stands. Asked in the event loop, so it may not wait for anything."""

_BURIED: Final = frozenset({"bury", "malformed", "conflict"})
_SPENT: Final = frozenset({"done", "transient", "permanent", "unknown", "reconciled"})
"""Outcomes that cost an attempt, unless the delivery was given back."""


class Registry:
    """Counts from its making on. Events and ``snapshot`` come in the event loop's thread."""

    def __init__(
        self,
        lanes: Mapping[str, str] | None = None,
        *,
        only: Collection[Metric] = of.OF_DAEMONS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``lanes``: the budget of each, empty where it has none. ``only``: what this process can tell."""
        self._budgets = dict(lanes or {})
        self._only = frozenset(metric.name for metric in only)
        self._clock = clock
        self._started_at = clock()
        self._settled = Settlements(tuple(self._budgets))
        self._sizes = Histogram(of.FLUSH_SIZE.bounds)
        self._flushes = Histogram(of.FLUSH_DURATION.bounds)
        self._counts = {(metric, labels): 0.0 for metric in _NOTED for labels in _known(metric)}
        self._filed: Counter[Labels] = Counter()
        """What the broker had set aside, by lane and reason."""
        self._sources: list[Source] = []
        self.failed_sources = 0
        """Sources that could not tell, so far."""

    def watch(self, *sources: Source) -> None:
        """Ask these too at each collection."""
        self._sources += sources

    def __call__(self, event: Event) -> None:
        if isinstance(event, Settled):
            self._settled.add(event)
        elif isinstance(event, Flushed):
            self._sizes.observe(event.size)
            self._flushes.observe(event.seconds)
        elif isinstance(event, Published):
            self.count(of.PUBLISHED_TOTAL, event.kind, by=event.count)
        elif event.name == "letter.filed":
            # A message that reached no lane of ours names what its publisher made up.
            lane = event.fields["lane"] if event.fields["lane"] in self._budgets else ""
            self._filed[lane, event.fields["reason"]] += 1
        elif (told := _NOTICES.get(event.name)) is not None:
            metric, labels, by = told(event)
            self.count(metric, *labels, by=by)

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        place = (metric, labels)
        self._counts[place] = self._counts.get(place, 0.0) + by

    def snapshot(self) -> Snapshot:
        """How it all stands now."""
        counted = {metric: points for metric, points in self._counted().items() if metric.name in self._only}
        looked_up = (sample for sample in self._looked_up() if sample.metric.name in self._only)
        return snapshot_of(self._started_at, self._clock(), counted, looked_up)

    def _looked_up(self) -> Iterable[Sample]:
        for source in self._sources:
            try:
                yield from list(source())
            except Exception:
                # One that fails takes nothing along but what it would have told.
                self.failed_sources += 1

    # --- what was counted -------------------------------------------------------------------------------

    def _counted(self) -> dict[Metric, Points]:
        noted: dict[Metric, dict[Labels, Any]] = {}
        for (metric, labels), count in self._counts.items():
            noted.setdefault(metric, {})[labels] = count
        return {
            **noted,
            **self._from_lines(),
            **self._of_lanes(),
            of.FLUSH_SIZE: {(): self._sizes.buckets()},
            of.FLUSH_DURATION: {(): self._flushes.buckets()},
        }

    def _from_lines(self) -> dict[Metric, Points]:
        """Every counter of deliveries, from the one count of each kind of them."""
        sums = self._zeros()
        sums[of.BURIED].update(self._filed)

        def add(metric: Metric, labels: Labels, count: int) -> None:
            sums[metric][labels] = sums[metric].get(labels, 0) + count

        for (lane, disposition, outcome, reason), line in self._settled.lines.items():
            add(of.DELIVERIES, (lane, disposition), line.count)
            if disposition == "complete":
                add(of.JOBS_DONE, (lane,), line.count)
            elif disposition == "decided":
                add(of.DUPLICATES, (lane,), line.count)
            elif disposition in _BURIED:
                add(of.BURIED, (lane, reason or ""), line.count)
            if outcome is None:
                continue
            add(of.OUTCOMES_TOTAL, (lane, outcome, reason or ""), line.count)
            if outcome in _SPENT and disposition != "give_back":
                add(of.ATTEMPTS, (lane,), line.count)
            elif outcome == "rate_limited":
                add(of.RATE_LIMITED, (lane, self._budgets.get(lane, "")), line.count)
        return {metric: points for metric, points in sums.items() if points}

    def _zeros(self) -> dict[Metric, dict[Labels, float]]:
        """What is known to come: an alert sees only a count that was there before it grew."""
        lanes = self._budgets
        return {
            of.DELIVERIES: dict.fromkeys(product(lanes, DISPOSITIONS), 0),
            of.OUTCOMES_TOTAL: {(lane, "done", ""): 0 for lane in lanes},
            of.ATTEMPTS: {(lane,): 0 for lane in lanes},
            of.JOBS_DONE: {(lane,): 0 for lane in lanes},
            of.DUPLICATES: {(lane,): 0 for lane in lanes},
            of.BURIED: {(lane, reason.value): 0 for lane, reason in product(lanes, _OF_JOBS)},
            of.RATE_LIMITED: dict.fromkeys(lanes.items(), 0),
        }

    def _of_lanes(self) -> dict[Metric, Points]:
        lanes = self._settled.lanes.items()
        return {
            of.PACE_TIME: {(name,): cells.pace.buckets() for name, cells in lanes},
            of.EFFECT_TO_ACK: {(name,): cells.ack.buckets() for name, cells in lanes},
            of.HANDLER_DURATION: {
                (name, outcome): one.buckets()
                for name, cells in lanes
                for outcome, one in cells.handler.items()
            },
            of.QUEUE_TIME: {
                (name, priority): one.buckets()
                for name, cells in lanes
                for priority, one in cells.queue.items()
            },
        }


_OF_JOBS: Final = tuple(
    reason for reason in Reason if reason is not Reason.UNROUTED and not reason.startswith("broker_")
)
"""Reasons for which a job or a message of a lane may be buried whatever its handler says."""

_NOTED: Final = (of.PUBLISHED_TOTAL, of.LEASE_RENEWALS, of.LEASE_LOST, of.RECONNECTS)


def _known(metric: Metric) -> Iterable[Labels]:
    """Every series of a metric whose labels have words of ours alone."""
    return product(*(metric.values[label] for label in metric.labels))


_NOTICES: Final[Mapping[str, Callable[[Notice], tuple[Metric, Labels, float]]]] = {
    "session.renewal": lambda told: (of.LEASE_RENEWALS, (told.fields["result"],), 1),
    "session.lost": lambda told: (of.LEASE_LOST, (), 1),
    "broker.connected": lambda told: (
        of.RECONNECTS,
        (told.fields["role"],),
        int(told.fields["generation"] > 1),
    ),
    "unrouted.sent_on": lambda told: (of.PUBLISHED_TOTAL, ("unrouted",), told.fields["count"]),
    "schedule.fired": lambda told: (of.FIRINGS, (told.fields["schedule"], "fired"), 1),
    "schedule.skipped": lambda told: (of.FIRINGS, (told.fields["schedule"], "skipped"), told.fields["count"]),
    "firing.done": lambda told: (of.FIRINGS, (told.fields["schedule"], "done"), 1),
    "jobs.missing": lambda told: (of.PUBLISHED_TOTAL, ("missing",), told.fields["sent"]),
}
"""What is told once in a while anyway, and counted."""
