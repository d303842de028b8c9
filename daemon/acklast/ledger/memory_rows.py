"""The rows of the ledger in memory, and which of them retention removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from acklast.ledger.about import NOTHING, Cancellation, RunAbout
from acklast.ledger.api import AttemptView, LetterView, State
from acklast.ledger.retention import Keeps, Pruned, sessions_s

FINAL: Final = frozenset({State.DONE, State.DEAD, State.CANCELLED})


@dataclass(slots=True)
class Worker:
    instance: str
    worker: str
    version: str
    lease_until: datetime
    ended_at: datetime | None = None


@dataclass(slots=True)
class Job:
    enqueued_at: datetime
    fingerprint: bytes | None
    state: State = State.QUEUED
    fence: int = 0
    attempts: int = 0
    claims: int = 0
    rate_limited: int = 0
    ambiguous: bool = False
    session: int | None = None
    type: str | None = None
    run: str | None = None
    reason: str | None = None
    result: Any = None
    published_at: datetime | None = None
    claimed_at: datetime | None = None
    available_at: datetime | None = None
    effect_at: datetime | None = None
    recorded_at: datetime | None = None
    settled_at: datetime | None = None
    deadline: datetime | None = None
    priority: int | None = None
    history: list[AttemptView] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    created_at: datetime
    manifest: int | None = None
    about: RunAbout = NOTHING


@dataclass(slots=True)
class KeptLetter:
    """A dead letter. ``digest`` is set where it has no job of its own, ``bare`` once its payload has gone."""

    view: LetterView
    digest: bytes | None = None
    bare: bool = False

    def belongs_to(self, lane: str, key: str) -> bool:
        """Whether it is a letter of this job, and not of another message with its key."""
        return self.digest is None and (self.view.lane, self.view.key) == (lane, key)


@dataclass(slots=True)
class PrunedJobs:
    """What a run's account keeps of jobs in one state that retention has removed."""

    jobs: int = 0
    claims: int = 0


@dataclass(slots=True)
class Rows:
    """All tables."""

    workers: dict[int, Worker] = field(default_factory=dict)
    jobs: dict[tuple[str, str], Job] = field(default_factory=dict)
    letters: list[KeptLetter] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    cancelled: dict[str, Cancellation] = field(default_factory=dict)
    tallies: dict[tuple[str, State], PrunedJobs] = field(default_factory=dict)


def prune_rows(rows: Rows, keeps: Keeps, now: datetime, *, dry_run: bool) -> Pruned:
    """Remove what has expired at ``now``, as the statements of ``prune`` do it in Postgres."""

    def age_s(at: datetime | None) -> float:
        return 0.0 if at is None else (now - at).total_seconds()

    jobs = [place for place, job in rows.jobs.items() if _expired(rows, place, job, keeps, age_s)]
    letters = [kept for kept in rows.letters if _unneeded(rows, kept) and kept.view.lane in keeps]
    aged = [(kept, age_s(kept.view.last_failure_at), keeps[kept.view.lane]) for kept in letters]
    gone = [kept for kept, age, keep in aged if age >= keep.dead_s]
    bare = [kept for kept, age, keep in aged if keep.payload_s <= age < keep.dead_s and not kept.bare]
    old = [n for n, one in rows.workers.items() if age_s(one.ended_at or one.lease_until) > sessions_s(keeps)]
    states = Counter(rows.jobs[place].state for place in jobs)
    pruned = Pruned(
        states[State.DONE],
        states[State.DEAD],
        states[State.CANCELLED],
        attempts=sum(len(rows.jobs[place].history) for place in jobs),
        letters=len(gone),
        payloads=len(bare),
        sessions=len(old),
    )
    if not dry_run:
        _remove(rows, jobs, gone, bare, old)
    return pruned


def _expired(
    rows: Rows, place: tuple[str, str], job: Job, keeps: Keeps, age_s: Callable[[datetime | None], float]
) -> bool:
    keep = keeps.get(place[0])
    if keep is None or job.state not in FINAL:
        return False
    letters = [kept.view.last_failure_at for kept in rows.letters if kept.belongs_to(*place)]
    window_s = keep.dead_s if job.state is State.DEAD else keep.done_s
    return age_s(job.recorded_at) >= window_s and all(age_s(at) >= keep.dead_s for at in letters)


def _unneeded(rows: Rows, kept: KeptLetter) -> bool:
    """Whether no open job may need its letter."""
    job = None if kept.view.key is None else rows.jobs.get((kept.view.lane, kept.view.key))
    return kept.digest is not None or job is None or job.state in FINAL


def _remove(
    rows: Rows, jobs: list[tuple[str, str]], gone: list[KeptLetter], bare: list[KeptLetter], old: list[int]
) -> None:
    for place in jobs:
        job = rows.jobs.pop(place)
        if job.run is not None:
            tally = rows.tallies.setdefault((job.run, job.state), PrunedJobs())
            tally.jobs, tally.claims = tally.jobs + 1, tally.claims + job.claims
    rows.letters[:] = [kept for kept in rows.letters if kept not in gone]
    for kept in bare:
        kept.bare = True
    for session in old:
        del rows.workers[session]
