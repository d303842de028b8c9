"""One question about an unresolved job: has its effect happened, and what follows from the answer."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final, assert_never

from acklast import faults
from acklast.decide import Run, decide_found
from acklast.fingerprint import fingerprint
from acklast.handlers.app import JobType
from acklast.handlers.attempt import Reconciled, reconcile_attempt
from acklast.judge import Clock, context_of, refusal_of
from acklast.lane import Lane
from acklast.ledger.api import Fresh, Session
from acklast.ledger.reconciling import Answer, Buried, Effect, Found, Subject
from acklast.outcome import Bury, Complete
from acklast.pacing.lanes import Entry
from acklast.resend import raw_of_letter
from acklast_topology import contract
from acklast_topology.contract import Envelope, Malformed, Reason

CANNOT_TELL: Final = "cannot_tell"
"""The code where the job type's own function said so."""


async def find_out(lane: Lane, session: Session, entry: Entry, subject: Subject) -> Answer | None:
    """Ask; None where that may not be begun any more, or was cut: then somebody else asks."""
    clock = Clock(subject.now)
    if entry.early:
        await entry.cooled()
    if refusal_of(lane, session, entry):
        return None
    started_at = clock.now()
    found = await _asked(lane, session, entry, subject, clock)
    if lane.drain.cutting and found.happened is not True:
        return None
    if faults.ARMED:
        faults.point("question_answered")
    return answer_of(found, subject, started_at, clock.now())


async def _asked(lane: Lane, session: Session, entry: Entry, subject: Subject, clock: Clock) -> Reconciled:
    """What the job type's function says, or why it cannot be asked: then nothing was called."""
    raw = raw_of_letter(subject.letter)
    if raw is None:
        return Reconciled(None, reason="no_content")
    envelope = contract.parse(raw)
    if isinstance(envelope, Malformed):
        return Reconciled(None, reason=envelope.reason, detail=envelope.detail)
    job_type = lane.app.find(lane.name, envelope.type)
    if job_type is None:
        why = lane.app.why_none(lane.name, envelope.type)
        return Reconciled(None, reason=Reason.UNKNOWN_TYPE, detail=why)
    if job_type.reconcile is None:
        return Reconciled(None, reason="no_reconcile")
    return await _reconcile(lane, session, entry, subject, clock, job_type, envelope)


async def _reconcile(
    lane: Lane,
    session: Session,
    entry: Entry,
    subject: Subject,
    clock: Clock,
    job_type: JobType,
    envelope: Envelope,
) -> Reconciled:
    known = Fresh(subject.fence, subject.attempts, subject.rate_limited, ambiguous=True, now=subject.now)
    context = context_of(lane, envelope, session, known, clock, entry)
    timeout_s = job_type.timeout_s or lane.policy.timeout_s
    task = asyncio.current_task()
    assert task is not None
    lane.attempting.add(task)  # what a drain may cut is this alone
    try:
        entry.spend()
        found = await reconcile_attempt(job_type, envelope, context, timeout_s=timeout_s, cut=lane.drain.cuts)
    except asyncio.CancelledError:
        if lane.drain.abandoned:
            raise
        task.uncancel()
        found = Reconciled(None, reason="cancelled_itself")
    finally:
        lane.attempting.discard(task)
    if found.happened is None:
        entry.unanswered()
    return found


def answer_of(found: Reconciled, subject: Subject, started_at: datetime, ended_at: datetime) -> Answer:
    """What was found, and what becomes of the job. Pure."""
    step = decide_found(found.happened, found.result, subject.deadline, ended_at, stopped=subject.stopped)
    times = (started_at, ended_at)
    match step:
        case None:
            code = found.reason or CANNOT_TELL
            return Answer(Found.UNKNOWN, Effect.UNRESOLVED, *times, code=code, detail=found.detail)
        case Complete(result):
            return Answer(Found.HAPPENED, Effect.DONE, *times, result)
        case Run():
            return Answer(Found.NOT_HAPPENED, Effect.RETRY, *times)
        case Bury(reason, detail):
            failure = fingerprint(reason, detail, subject.letter.entry.key)
            return Answer(Found.NOT_HAPPENED, Effect.DEAD, *times, buried=Buried(reason, detail, failure))
        case _:
            assert_never(step)
