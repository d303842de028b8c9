"""How the whole fleet stands, as metrics: out of one reading of the ledger and a look at the queues. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from acklast.lane_queues import Queues
from acklast.ledger.backlog import DEPTHS, Backlog
from acklast.ledger.redrives import RedriveStatus
from acklast.ledger.run_status import Status
from acklast.telemetry import catalogue as of
from acklast.telemetry.metric import PRIORITIES, Sample

UNFINISHED: Final = (Status.OPEN, Status.AT_RISK, Status.LATE, Status.CANCELLING)
_UNKNOWN: Final = "normal"
"""The broker does not tell the priority of what is in a queue."""


@dataclass(frozen=True, slots=True)
class Head:
    """The job of a lane that was started last: its priority, how long it had waited by then, and when that
    was, by the monotonic clock.
    """

    priority: str
    waited_s: float
    started_at: float


@dataclass(frozen=True, slots=True)
class Sampled:
    """What was found, and when by the monotonic clock. ``queues`` and ``heads`` are those of our lanes."""

    backlog: Backlog
    at: float
    took_s: float
    queues: Mapping[str, Queues] = field(default_factory=dict)
    heads: Mapping[str, Head] = field(default_factory=dict)
    others: Sequence[Sample] = ()
    """What else was reckoned from the same."""


def samples_of(found: Sampled, lanes: Collection[str], now: float) -> Iterator[Sample]:
    """All of it. ``lanes`` are ours: they have zeros where nothing is."""
    yield Sample(of.SAMPLE_AGE, (), round(now - found.at, 3))
    yield Sample(of.SAMPLE_DURATION, (), round(found.took_s, 6))
    backlog = found.backlog
    for dead in backlog.dead:
        yield Sample(of.DEAD_LETTERS, (dead.lane, dead.reason), dead.letters)
    for one in backlog.workers:
        yield Sample(of.WORKERS, (one.lane, one.state), one.workers)
    for status in RedriveStatus:
        if not status.ended:
            yield Sample(of.REDRIVES, (status.value,), backlog.redrives.get(status.value, 0))
    for lane, queues in found.queues.items():
        if queues.ready is not None:
            yield Sample(of.JOBS, (lane, _UNKNOWN, "ready"), queues.ready)
    if backlog.complete:
        known = dict.fromkeys([*lanes, *(one.lane for one in backlog.depths)])
        yield from _depths(backlog, known)
        yield from _ages(found, known, now)
        yield from _runs(backlog)
        yield from found.others


def _depths(backlog: Backlog, lanes: Iterable[str]) -> Iterator[Sample]:
    jobs = Counter[tuple[str, str, str]]()
    for one in backlog.depths:
        jobs[one.lane, one.priority, one.state.value] += one.jobs
    for lane in lanes:
        for priority in PRIORITIES:
            for state in DEPTHS:
                place = (lane, priority, state.value)
                yield Sample(of.JOBS, place, jobs[place])


def _ages(found: Sampled, lanes: Iterable[str], now: float) -> Iterator[Sample]:
    """The age that a job had when it was read goes on until the next reading."""
    ages = {(lane, priority): 0.0 for lane in lanes for priority in PRIORITIES}
    for one in found.backlog.oldest:
        ages[one.lane, one.priority] = (found.backlog.at - one.since).total_seconds() + now - found.at
    for lane, head in found.heads.items():
        place = (lane, head.priority)
        ages[place] = max(ages.get(place, 0.0), head.waited_s + now - head.started_at)
    for place, age_s in ages.items():
        yield Sample(of.OLDEST_AGE, place, round(max(0.0, age_s), 3))


def _runs(backlog: Backlog) -> Iterator[Sample]:
    statuses = Counter(run.status(backlog.at) for run in backlog.runs)
    for status in UNFINISHED:
        yield Sample(of.RUNS, (status.value,), statuses[status])
