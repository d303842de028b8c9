"""One claimed job, from the claim to its verdict: may it start, what did it come to, what follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from acklast import faults, outcome
from acklast.decide import (
    CRASHED,
    Attempt,
    Reconcile,
    Run,
    decide,
    decide_reconciled,
    decide_start,
    is_spent,
    is_suspect,
    may_be_suspect,
)
from acklast.fingerprint import NOTHING, Raised
from acklast.handlers.app import JobType
from acklast.handlers.attempt import attempt, reconcile_attempt
from acklast.handlers.context import Context
from acklast.http.classify import saw_up
from acklast.lane import Lane
from acklast.ledger.api import AttemptView, Fresh, Record, Session
from acklast.ledger.changes import FAILURES
from acklast.outcome import Bury, Complete, GiveBack, Hold, Outcome, Retry, Verdict
from acklast.pacing.lanes import Entry
from acklast.pacing.slots import Draining
from acklast.settle import job_fields
from acklast.telemetry.trace import Trace
from acklast_topology.contract import Envelope, Reason
from acklast_topology.job import Job
from acklast_topology.value import value

_ALONE_AGAIN: Final = timedelta(seconds=5)
"""How long a suspect waits that finds another one running."""

_FAILED: Final = FAILURES | {"reconciled"}
"""Outcomes that spend attempts: a refusal for a quota, and what a drain ended, do not."""

_NAMES: Final[dict[type, str]] = {
    Complete: "complete",
    Retry: "retry",
    Bury: "bury",
    Hold: "hold",
    GiveBack: "give_back",
    outcome.Done: "done",
    outcome.RateLimited: "rate_limited",
    outcome.Transient: "transient",
    outcome.Permanent: "permanent",
    outcome.Unknown: "unknown",
    outcome.Interrupted: "interrupted",
}


def name_of(value: Verdict | Outcome) -> str:
    """The name of a verdict or an outcome, in snake case, as the ledger and the logs say it."""
    return _NAMES[type(value)]


@value
class Judged:
    """An attempt and what follows from it. ``recorded``: a transaction of the handler's own recorded it."""

    verdict: Verdict
    outcome: str
    reason: str
    detail: str
    started_at: datetime
    ended_at: datetime
    handler_s: float | None = None
    ended: float | None = None
    """When the handler returned, on the monotonic clock, in seconds."""
    recorded: bool = False
    follow_ups: Sequence[Job] = ()
    """Jobs that the attempt has promised: they count if it completes the job."""
    raised: Raised = NOTHING


class Clock:
    """The ledger's clock, carried on by the monotonic one, so that no second clock has to agree with it."""

    __slots__ = ("_at", "_mark")

    def __init__(self, at: datetime) -> None:
        self._at = at
        self._mark = time.monotonic()

    def now(self) -> datetime:
        return self._at + timedelta(0, time.monotonic() - self._mark)


@value
class _Job:
    """What the steps of one attempt share."""

    lane: Lane
    session: Session
    type: JobType
    envelope: Envelope
    context: Context
    known: Attempt
    clock: Clock
    entry: Entry
    trace: Trace | None

    def told(self) -> dict[str, Any]:
        """What a log line says of it."""
        return job_fields(self.envelope, attempt=self.context.attempt, fence=self.context.fence)

    @property
    def timeout_s(self) -> float:
        return self.type.timeout_s or self.lane.policy.timeout_s


async def judge(
    lane: Lane,
    envelope: Envelope,
    session: Session,
    claimed: Fresh,
    entry: Entry,
    trace: Trace | None = None,
) -> Judged:
    """Start the handler if it may start, and judge what came of it."""
    clock = Clock(claimed.now)
    if entry.early:
        await entry.cooled()
    if refusal := refusal_of(lane, session, entry):
        # Granted, but not to be started: whoever comes next must find the attempt unspent.
        return _unstarted(GiveBack(refusal, claimed.ambiguous), clock)
    job_type = lane.app.find(lane.name, envelope.type)
    if job_type is None:
        return _unstarted(Bury(Reason.UNKNOWN_TYPE, lane.app.why_none(lane.name, envelope.type)), clock)
    known = Attempt(
        claimed.attempt, claimed.rate_limited, envelope.deadline, claimed.ambiguous, claimed.stopped
    )
    if is_spent(known, lane.policy):
        known = replace(known, last=await _last_failure(lane, envelope.key))
    start = decide_start(known, lane.policy, claimed.now, can_reconcile=job_type.reconcile is not None)
    if isinstance(start, Bury | Hold):
        return _unstarted(start, clock)
    context = context_of(lane, envelope, session, claimed, clock, entry, trace)
    job = _Job(lane, session, job_type, envelope, context, known, clock, entry, trace)
    if may_be_suspect(known, lane.policy):
        # Noted before anything is waited for: one that was claimed at the same time waits for this one then.
        lane.pacing.alone.suspects.add((lane.name, envelope.key))
        if is_suspect(await _crashes(lane, envelope.key), lane.policy):
            return await _alone(job, start)
        lane.pacing.alone.recorded((lane.name, envelope.key))
        if refusal := refusal_of(lane, session, entry):  # the ledger was asked meanwhile
            return _unstarted(GiveBack(refusal, claimed.ambiguous), clock)
    return await _attempting(job, start)


async def _crashes(lane: Lane, key: str) -> int:
    """How many attempts at a job ended with their process."""
    return sum(one.outcome == CRASHED for one in await _history(lane, key))


async def _last_failure(lane: Lane, key: str) -> str:
    """What the last failure of a job was, as ``Attempt.last`` has it."""
    failed = [one for one in await _history(lane, key) if one.outcome in _FAILED]
    if not failed:
        return ""
    return CRASHED if failed[-1].outcome == CRASHED else failed[-1].reason


async def _history(lane: Lane, key: str) -> Sequence[AttemptView]:
    """A job's attempts that did not simply succeed, the oldest first."""
    views = await lane.insist(lane.ledger.jobs, key, lane.name)
    return [one for view in views for one in view.history]


async def _alone(job: _Job, start: Run | Reconcile) -> Judged:
    """Attempt while no other suspect runs in this process.

    Who finds one gives its claim up meanwhile: a claim that stands when the process ends is a crash.
    """
    lane, alone = job.lane, job.lane.pacing.alone
    if alone.taken:
        at = job.clock.now() + _ALONE_AGAIN
        return _unstarted(Retry(at, "runs_alone", spends=False, ambiguous=True), job.clock)
    try:
        await alone.take((lane.name, job.envelope.key))
    except Draining:
        return _unstarted(GiveBack("drain", ambiguous=True), job.clock)
    lane.emitter.notice("job.runs_alone", "warning", lane=lane.name, **job.told())
    try:
        if refusal := refusal_of(lane, job.session, job.entry):
            return _unstarted(GiveBack(refusal, ambiguous=True), job.clock)
        return await _attempting(job, start)
    finally:
        alone.give()


async def _attempting(job: _Job, start: Run | Reconcile) -> Judged:
    """Attempt, and let nothing but the end of the process keep the claim from its verdict.

    A defect here would leave the claim with our living session, and every later delivery waiting for it.
    """
    task = asyncio.current_task()
    assert task is not None
    job.lane.attempting.add(task)
    try:
        if isinstance(start, Reconcile):
            if judged := await _reconcile(job):
                return judged
            await job.entry.again()
            if barred := _barred(job):
                return barred
        return await _run(job)
    except Draining:
        return _unstarted(GiveBack("drain", ambiguous=True), job.clock)
    except asyncio.CancelledError:
        if job.lane.drain.abandoned:
            raise
        # Nobody of ours cancels outside a drain: the handler cancelled the task that it runs in.
        task.uncancel()
        return _defective(job, "cancelled_itself")
    except Exception as defect:
        job.lane.emitter.notice("attempt.defect", "error", lane=job.lane.name, **job.told(), exc_info=defect)
        return _defective(job, "defect")
    finally:
        job.lane.attempting.discard(task)


def _barred(job: _Job) -> Judged | None:
    """What ended while a reconcile and the wait for a permit took their time: the lease, or the deadline."""
    if refusal := refusal_of(job.lane, job.session, job.entry):
        return _unstarted(GiveBack(refusal, ambiguous=True), job.clock)
    step = decide_reconciled(False, None, job.known, job.lane.policy, job.clock.now(), 0.0)
    return _unstarted(step, job.clock) if isinstance(step, Bury) else None


def _defective(job: _Job, reason: str) -> Judged:
    now = job.clock.now()
    verdict = decide(outcome.Unknown(reason), job.known, job.lane.policy, now, job.lane.chance())
    return Judged(verdict, "unknown", reason, "", now, now, recorded=job.context.completed)


def refusal_of(lane: Lane, session: Session, entry: Entry) -> str:
    """Why this process may start nothing more, though the ledger granted the claim; empty where it may."""
    if not lane.lease.holds(session):
        return "lease_lapsed"
    if not entry.held_by(session.id):
        return "permit_lapsed"
    if entry.paused:
        return "paused"
    return "drain" if lane.drain.started.is_set() else ""


async def _run(job: _Job) -> Judged:
    policy, started_at, mark = job.lane.policy, job.clock.now(), time.monotonic()
    if faults.ARMED:
        faults.point("started")
    job.entry.spend()
    with job.lane.tracer.current(job.trace):
        result = await attempt(
            job.type,
            job.envelope,
            job.context,
            timeout_s=job.timeout_s,
            retry_after_cap_s=policy.retry_after_cap_s,
            cut=job.lane.drain.cuts,
        )
    ended = time.monotonic()
    if job.trace is not None:
        job.trace.ran(mark, ended)
    if faults.ARMED:
        faults.point("effect")
    job.entry.saw(saw_up(result))
    if isinstance(result, outcome.Unknown | outcome.Interrupted):
        job.entry.unanswered()
    if (hint := job.context.pace) is not None:
        job.entry.slow(hint.pace_per_s, hint.reset_s)
    if isinstance(result, outcome.RateLimited):
        # A quota that does not say when it is free again gets a pause all the same.
        job.entry.pause(result.retry_after_s or policy.backoff_base_s)
    ended_at = job.clock.now()
    return Judged(
        decide(result, job.known, policy, ended_at, job.lane.chance()),
        name_of(result),
        getattr(result, "reason", ""),
        getattr(result, "detail", ""),
        started_at,
        ended_at,
        ended - mark,
        ended,
        recorded=job.context.completed,
        follow_ups=job.context.follow_ups,
        raised=getattr(result, "raised", NOTHING),
    )


async def _reconcile(job: _Job) -> Judged | None:
    """Ask whether an earlier attempt had its effect; None where the handler is to run after all."""
    started_at, mark = job.clock.now(), time.monotonic()
    job.entry.spend()
    with job.lane.tracer.current(job.trace):
        answer = await reconcile_attempt(
            job.type, job.envelope, job.context, timeout_s=job.timeout_s, cut=job.lane.drain.cuts
        )
    if job.trace is not None:
        job.trace.ran(mark, time.monotonic())
    if answer.happened is None:
        job.entry.unanswered()
    ended_at = job.clock.now()
    if job.lane.drain.cutting and answer.happened is not True:
        cut = GiveBack("drain_cut", ambiguous=True)
        return Judged(cut, "interrupted", cut.reason, answer.detail, started_at, ended_at)
    step = decide_reconciled(
        answer.happened, answer.result, job.known, job.lane.policy, ended_at, job.lane.chance()
    )
    if isinstance(step, Run):
        return None
    reason = answer.reason or getattr(step, "reason", "")
    return Judged(step, "reconciled", reason, answer.detail, started_at, ended_at)


def _unstarted(verdict: Bury | Hold | GiveBack | Retry, clock: Clock) -> Judged:
    now = clock.now()
    return Judged(verdict, "not_started", verdict.reason, getattr(verdict, "detail", ""), now, now)


def context_of(
    lane: Lane,
    envelope: Envelope,
    session: Session,
    claimed: Fresh,
    clock: Clock,
    entry: Entry,
    trace: Trace | None = None,
) -> Context:
    """What a handler, or a reconcile, knows of its job.

    Nothing here refers back to the context: what is in no cycle is freed when the job is over, and what is
    in one waits until the garbage collector walks over all that is in flight.
    """
    follow_ups: list[Job] = []

    def transaction(result: Any) -> AbstractAsyncContextManager[Any]:
        record = Record(
            lane=lane.name,
            key=envelope.key,
            fence=claimed.fence,
            verdict=Complete(result),
            outcome="done",
            reason="",
            started_at=claimed.now,
            effect_at=clock.now(),
            follow_ups=follow_ups,
        )
        return lane.ledger.transaction(session, record)

    return Context(
        key=envelope.key,
        lane=lane.name,
        type=envelope.type,
        run=envelope.run,
        attempt=claimed.attempt,
        fence=claimed.fence,
        deadline=envelope.deadline,
        ambiguous=claimed.ambiguous,
        headers=envelope.raw.headers,
        draining=lane.drain.started,
        transaction=transaction,
        sent=entry.sent,
        now=clock.now,
        trace=trace,
        inject=lane.tracer.inject,
        follow_ups=follow_ups,
    )
