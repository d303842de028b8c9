"""The ledger in memory: the same rules with no I/O, for tests and simulations. One process, nothing kept."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from acklast.fingerprint import fingerprint
from acklast.ledger import manifest
from acklast.ledger.about import NOTHING, RUN_CANCELLED, Cancellation, RunAbout, RunCancelled, joined
from acklast.ledger.api import (
    LATELY_S,
    AttemptView,
    Claim,
    Claimed,
    Conflict,
    Decided,
    Fresh,
    Held,
    JobView,
    Letter,
    LetterView,
    ManifestRow,
    NotDue,
    Record,
    Recorded,
    RunView,
    Session,
    State,
)
from acklast.ledger.backlog import Backlog
from acklast.ledger.changes import FAILURES, Change, change_for
from acklast.ledger.evidence import REASON_LIMIT, clean, storable_json
from acklast.ledger.memory_backlog import backlog_in
from acklast.ledger.memory_rows import FINAL, Job, KeptLetter, Rows, Run, Worker, prune_rows
from acklast.ledger.refusals import claim_lost, session_lost
from acklast.ledger.retention import Keeps, Step
from acklast.outcome import Complete
from acklast.telemetry.traceparent import trace_id
from acklast_topology.items import Manifested
from acklast_topology.job import Job as Promised

_DECIDED = FINAL | {State.UNRESOLVED}


class MemoryLedger:
    """Implements ``acklast.ledger.api.Ledger``; ``clock`` gives aware UTC times that never go back."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._rows = rows = Rows()
        self._jobs, self._letters, self._workers, self._runs = (
            rows.jobs,
            rows.letters,
            rows.workers,
            rows.runs,
        )
        self._ids = itertools.count(1)
        self.outbox: list[Promised] = []
        """What completed jobs have promised, in order."""

    async def close(self) -> None:
        """Nothing to let go."""

    # --- sessions -----------------------------------------------------------------------------------

    async def open_session(self, instance: str, *, worker: str, version: str, lease_s: float) -> Session:
        now = self._clock()
        for other in self._workers.values():
            if other.instance == instance and other.ended_at is None:
                other.ended_at = now
        session = Session(next(self._ids), instance, lease_s)
        self._workers[session.id] = Worker(instance, worker, version, now + timedelta(seconds=lease_s))
        return session

    async def renew(self, session: Session) -> bool:
        alive = self._alive(session.id)
        if alive:
            self._workers[session.id].lease_until = self._clock() + timedelta(seconds=session.lease_s)
        return alive

    async def close_session(self, session: Session) -> None:
        worker = self._workers[session.id]
        worker.ended_at = worker.ended_at or self._clock()

    def end_lease(self, session: Session) -> None:
        """The lease runs out now, whatever the clock says: for simulations of a process that froze."""
        self._workers[session.id].lease_until = self._clock()

    def _alive(self, session: int | None) -> bool:
        worker = None if session is None else self._workers.get(session)
        return worker is not None and worker.ended_at is None and worker.lease_until > self._clock()

    # --- claiming -----------------------------------------------------------------------------------

    async def claim(self, session: Session, claim: Claim) -> Claimed:
        if not self._alive(session.id):
            raise session_lost()
        now = self._clock()
        job = self._jobs.get((claim.lane, claim.key)) or self._enter(claim, now)
        if job.fingerprint is not None and job.fingerprint != claim.fingerprint:
            return Conflict(now)
        if job.state in _DECIDED:
            return Decided(job.state, now, job.fence)
        stopped = (job.run or claim.run) in self._rows.cancelled
        if job.state is State.CLAIMED:
            if self._alive(job.session):
                assert job.session is not None
                return Held(self._workers[job.session].lease_until, now)
            self._crashed(job)
        elif stopped and not job.ambiguous:
            job.run = job.run or claim.run
            self._stop(job)
            return Decided(job.state, now, job.fence)
        elif not stopped:
            due = job.available_at if job.state is State.WAITING else claim.not_before
            if due is not None and due > now:
                return NotDue(due, now)
        return replace(self._start(job, session, claim, now), stopped=stopped)

    def _enter(self, claim: Claim, now: datetime) -> Job:
        job = self._jobs[claim.lane, claim.key] = Job(now, claim.fingerprint)
        job.type, job.run = claim.type, claim.run
        job.published_at, job.deadline, job.priority = claim.published_at, claim.deadline, claim.priority
        if job.run in self._rows.cancelled:
            job.state, job.reason, job.recorded_at = State.CANCELLED, RUN_CANCELLED, now
        elif claim.not_before is not None and claim.not_before > now:
            job.state, job.available_at = State.WAITING, claim.not_before
        return job

    def _stop(self, job: Job) -> None:
        job.state, job.reason, job.available_at = State.CANCELLED, RUN_CANCELLED, None
        job.fence, job.recorded_at = job.fence + 1, self._clock()

    def cancel_run(self, run: str, reason: str = "") -> int:
        """Cancel what is idle, as ``runs cancel`` does it in Postgres; how many it were."""
        self._rows.cancelled.setdefault(run, Cancellation(self._clock(), "somebody", reason))
        idle = [
            job
            for job in self._jobs.values()
            if job.run == run and job.state in (State.QUEUED, State.WAITING) and not job.ambiguous
        ]
        for job in idle:
            self._stop(job)
        return len(idle)

    def _start(self, job: Job, session: Session, claim: Claim, now: datetime) -> Fresh:
        job.state, job.session, job.claimed_at = State.CLAIMED, session.id, now
        job.fence, job.attempts, job.claims = job.fence + 1, job.attempts + 1, job.claims + 1
        job.available_at = job.effect_at = job.recorded_at = job.settled_at = None
        job.fingerprint = claim.fingerprint
        job.type, job.run = job.type or claim.type, job.run or claim.run
        job.published_at = job.published_at or claim.published_at
        job.deadline = job.deadline or claim.deadline
        job.priority = claim.priority if job.priority is None else job.priority
        return Fresh(job.fence, job.attempts, job.rate_limited, job.ambiguous, now)

    def _crashed(self, job: Job) -> None:
        assert job.session is not None
        # A session that retention has removed is as good as ended, and nobody knows its worker any more.
        worker = self._workers.get(job.session) or Worker("", "", "", self._clock())
        worker.ended_at = worker.ended_at or self._clock()
        job.ambiguous = True
        job.history.append(
            AttemptView(
                job.fence,
                job.attempts,
                "crashed",
                "session_ended",
                "",
                job.claimed_at,
                worker.ended_at,
                worker.worker,
                worker.version,
            )
        )

    # --- recording ----------------------------------------------------------------------------------

    async def record(self, session: Session, record: Record) -> Recorded:
        change = change_for(record)
        job = self._jobs.get((record.lane, record.key))
        if job is None or job.fence != record.fence:
            return Recorded.CLAIM_LOST
        if job.state is State.CLAIMED:
            self._apply(session, record, change, job)
        return Recorded.RECORDED

    def _apply(self, session: Session, record: Record, change: Change, job: Job) -> None:
        if change.letter is not None:
            self._bury(session, change.letter, record, job)
        if change.state is not State.DONE or job.claims > 1:
            job.history.append(self._attempt(session, record, job))
        job.state, job.reason, job.available_at = change.state, change.reason, change.available_at
        job.result = None if change.result is None else json.loads(storable_json(change.result))
        job.attempts -= change.unspent
        job.rate_limited += change.limited
        job.ambiguous = job.ambiguous or change.ambiguous
        job.effect_at, job.recorded_at = record.effect_at, self._clock()
        if job.state is State.DONE:
            self.outbox += record.follow_ups

    def _attempt(self, session: Session, record: Record, job: Job) -> AttemptView:
        worker = self._workers[session.id]
        return AttemptView(
            record.fence,
            job.attempts,
            record.outcome,
            clean(record.reason, REASON_LIMIT),
            clean(record.detail),
            record.started_at,
            record.effect_at,
            worker.worker,
            worker.version,
        )

    def _bury(self, session: Session, letter: Letter, record: Record, job: Job) -> None:
        now, worker = self._clock(), self._workers[session.id]
        failed = [a.ended_at for a in job.history if a.outcome in FAILURES and a.ended_at is not None]
        view = self._letter(letter, record.key, now, worker.worker, worker.version)
        view = replace(view, attempts=job.attempts, first_failure_at=min(failed, default=now))
        self._letters.append(KeptLetter(view))

    async def settled(self, lane: str, key: str, fence: int) -> None:
        job = self._jobs.get((lane, key))
        if job is not None and job.fence == fence and job.state is not State.CLAIMED:
            job.settled_at = job.settled_at or self._clock()

    @asynccontextmanager
    async def transaction(self, session: Session, record: Record) -> AsyncIterator[None]:
        """There is nothing to commit together: yields None, and completes the job at the end."""
        if not isinstance(record.verdict, Complete):
            raise ValueError(f"a transaction completes its job: {record.verdict} cannot be part of it")
        yield None
        job = self._jobs.get((record.lane, record.key))
        if job is None or job.fence != record.fence or job.state is not State.CLAIMED:
            raise claim_lost(record)
        now = self._clock()
        self._apply(session, replace(record, effect_at=now), change_for(record), job)

    async def bury_stray(self, letter: Letter, *, worker: str, version: str) -> None:
        now = self._clock()
        for kept in self._letters:
            if kept.digest is not None and kept.digest == letter.digest and kept.view.lane == letter.lane:
                kept.view = replace(kept.view, seen=kept.view.seen + 1, last_failure_at=now)
                kept.bare = False
                return
        view = self._letter(letter, letter.key, now, worker, version)
        self._letters.append(KeptLetter(view, letter.digest))

    def _letter(
        self, letter: Letter, key: str | None, now: datetime, worker: str, version: str
    ) -> LetterView:
        return LetterView(
            id=next(self._ids),
            lane=letter.lane,
            key=key if key is None else clean(key),
            run=letter.run,
            reason=clean(letter.reason, REASON_LIMIT),
            detail=clean(letter.detail),
            attempts=0,
            first_failure_at=now,
            last_failure_at=now,
            seen=1,
            worker=worker,
            version=version,
            failure=letter.failure or fingerprint(letter.reason, letter.detail, letter.key),
            trace_id=trace_id(letter.headers),
        )

    # --- people and accounts ------------------------------------------------------------------------

    async def cancel(self, lane: str, key: str) -> bool:
        job = self._jobs.get((lane, key))
        if job is None or job.state in FINAL:
            return False
        job.state, job.reason, job.available_at = State.CANCELLED, "cancelled", None
        job.fence += 1
        job.recorded_at = self._clock()
        return True

    async def manifest(
        self, run: str, rows: Sequence[ManifestRow], about: RunAbout = NOTHING
    ) -> Sequence[Manifested]:
        made = self._runs.get(run)
        about = joined(run, made.about if made else NOTHING, about)
        if run in self._rows.cancelled:
            raise RunCancelled(run)
        now, new = self._clock(), set()
        known = {
            place: manifest.Known(job.state, job.fence, job.fingerprint)
            for place in {(row.lane, row.key) for row in rows}
            if (job := self._jobs.get(place)) is not None
        }
        for row in rows:
            if (row.lane, row.key) not in self._jobs:
                new.add((row.lane, row.key))
                job = self._jobs[row.lane, row.key] = Job(now, row.fingerprint)
                job.type, job.deadline, job.run = row.type, row.deadline, run
                job.priority = row.priority
                if row.not_before is not None and row.not_before > now:
                    job.state, job.available_at = State.WAITING, row.not_before
        account = self._runs.setdefault(run, Run(now))
        account.manifest, account.about = (account.manifest or 0) + len(new), about
        return manifest.answers(rows, new, known)

    async def jobs(self, key: str, lane: str | None = None) -> Sequence[JobView]:
        found = sorted(place for place in self._jobs if place[1] == key and lane in (None, place[0]))
        return [self.view(*place) for place in found]

    def places(self) -> Sequence[tuple[str, str]]:
        """Lane and key of every job, in the order in which they became known."""
        return list(self._jobs)

    def view(self, lane: str, key: str) -> JobView:
        """The account of one job.

        Raises:
            KeyError: it is not known.
        """
        job = self._jobs[lane, key]
        worker = None if job.session is None else self._workers.get(job.session)
        same = {name: getattr(job, name) for name in _COPIED}
        return JobView(
            lane=lane,
            key=key,
            worker=None if worker is None else worker.worker,
            version=None if worker is None else worker.version,
            history=tuple(job.history),
            letters=tuple(
                kept.view for kept in self._letters if (kept.view.lane, kept.view.key) == (lane, key)
            ),
            **same,
        )

    async def run(self, run: str) -> RunView | None:
        account = self._runs.get(run)
        jobs = [job for job in self._jobs.values() if job.run == run]
        tallies = {state: tally for (of, state), tally in self._rows.tallies.items() if of == run}
        if account is None and not jobs and not tallies:
            return None
        now = self._clock()
        ends = [job.recorded_at for job in jobs if job.state in _DECIDED and job.recorded_at is not None]
        counts = Counter(job.state for job in jobs)
        pruned = {state: tally.jobs for state, tally in tallies.items()}
        counts.update(pruned)
        return RunView(
            run,
            account.manifest if account else None,
            dict(counts),
            account.created_at if account else None,
            sum(job.claims for job in jobs) + sum(tally.claims for tally in tallies.values()),
            pruned,
            account.about if account else NOTHING,
            self._rows.cancelled.get(run),
            now,
            sum(at > now - timedelta(seconds=LATELY_S) for at in ends),
            max(ends, default=None),
        )

    async def backlog(self) -> Backlog:
        """As ``read_backlog`` reads it from Postgres; of workers and redrives there is nothing here."""
        return backlog_in(self._rows, self._clock())

    async def prune(self, keeps: Keeps, *, dry_run: bool = False) -> AsyncGenerator[Step, None]:
        yield Step(prune_rows(self._rows, keeps, self._clock(), dry_run=dry_run), 1, 1)


_COPIED = tuple(
    name for name in JobView.__slots__ if name in Job.__slots__ and name not in ("history", "letters")
)
