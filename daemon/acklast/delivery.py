"""The life of one delivery. Read this file first: ``process`` is the product in one column.

    parse -> enter (slot, permit) -> claim -> attempt -> decide -> record -> settle -> ack -> emit

The order is the promise. The claim is durable before the handler starts, the verdict is durable before it is
acted on, and the ack comes last: whatever dies in between, the next delivery finds in the ledger how far the
last one came, and goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, assert_never

from acklast import faults, letters
from acklast.custody import kept_of
from acklast.errors import LedgerUnavailable, SessionLost
from acklast.judge import Judged, judge, name_of
from acklast.lane import Abandoned, Lane, Returned
from acklast.ledger.api import (
    Claim,
    Claimed,
    Conflict,
    Decided,
    Fresh,
    Held,
    Letter,
    NotDue,
    Record,
    Recorded,
    Session,
)
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry
from acklast.pacing.budgets import StandBy
from acklast.pacing.lanes import Entry
from acklast.pacing.slots import Draining
from acklast.settle import Delivery, job_fields
from acklast.settled import event_of
from acklast.telemetry.events import Settled
from acklast_topology import contract
from acklast_topology.contract import Envelope, Malformed, Reason

_HELD_S: Final = 30.0
"""The longest that a second copy of a claimed job waits before it asks again."""

_HELD_HERE_S: Final = 5.0
"""The shortest where this very process is at work on the job: by then most jobs are over."""


async def process(lane: Lane, delivery: Delivery) -> None:
    """Take one delivery through its life, whatever the message holds and whatever the handler does."""
    if faults.ARMED:
        faults.point("received")
    envelope = contract.parse(delivery.raw)
    delivery.trace = lane.tracer.begin(envelope)
    if faults.ARMED:
        faults.point("parsed")
    try:
        if isinstance(envelope, Malformed):
            event = await _keep_malformed(lane, delivery, envelope)
        else:
            event = await _take_through(lane, delivery, envelope, await lane.pacing.enter(delivery.turn))
    except StandBy:
        # Given back while the consumer still takes in, it would come straight back.
        if not await lane.pacing.gate.left():
            await process(lane, delivery)
            return
        # Another daemon may start it sooner; it has left this one's consumer for good.
        acked = await lane.settler.give_back(delivery)
        event = event_of(lane, delivery, envelope, "give_back", acked, reason="stand_by")
    except Draining:
        # Given back while a consumer of ours still takes in, it would come straight back.
        await lane.drain.quiet.wait()
        acked = await lane.settler.give_back(delivery)
        event = event_of(lane, delivery, envelope, "give_back", acked, reason="drain")
    except Abandoned:
        said = delivery.told()
        lane.emitter.notice("delivery.abandoned", "warning", lane=lane.name, tag=delivery.tag, **said)
        return
    lane.emitter.emit(event)
    if faults.ARMED:
        faults.point("emitted")


async def _take_through(lane: Lane, delivery: Delivery, envelope: Envelope, entry: Entry) -> Settled:
    """Claim, attempt, record, settle. ``entry`` is held until the attempt is over, and no longer."""
    delivery.entered_at = time.monotonic()
    if faults.ARMED:
        faults.point("entered")
    with entry:
        if delivery.over or not delivery.channel.alive:
            # It is in its queue again already: the copy that the broker delivers is the one to work on.
            return _returned(lane, delivery, envelope)
        if (since := lane.active.get(envelope.key)) is not None:
            return await _settle_unclaimed(lane, delivery, envelope, _held_here(since))
        lane.active[envelope.key] = delivery.taken_at
        try:
            session, claimed = await claim_of(lane, delivery, envelope)
            delivery.claimed_at = time.monotonic()
            if faults.ARMED:
                faults.point("claimed")
            if isinstance(claimed, Fresh):
                lane.claimed.add(delivery)
                delivery.attempt, delivery.fence = claimed.attempt, claimed.fence
                judged = await judge(lane, envelope, session, claimed, entry, delivery.trace)
        except Returned:
            _let_go(lane, delivery, envelope.key)
            return _returned(lane, delivery, envelope)
        except BaseException:
            _let_go(lane, delivery, envelope.key)
            raise
    try:
        if not isinstance(claimed, Fresh):
            return await _settle_unclaimed(lane, delivery, envelope, claimed)
        if faults.ARMED:
            faults.point("decided")
        recorded = await _record(lane, envelope, session, claimed, judged)
        delivery.recorded_at = time.monotonic()
    finally:
        _let_go(lane, delivery, envelope.key)
    if faults.ARMED:
        faults.point("recorded")
    return await _settle(lane, delivery, envelope, claimed, judged, recorded)


def _returned(lane: Lane, delivery: Delivery, envelope: Envelope) -> Settled:
    if delivery.over:
        return event_of(lane, delivery, envelope, "give_back", acked=True, reason="held_long")
    return event_of(lane, delivery, envelope, "channel_lost", acked=False)


def _let_go(lane: Lane, delivery: Delivery, key: str) -> None:
    """The claim stands no more, as far as this process is concerned."""
    del lane.active[key]
    lane.claimed.discard(delivery)
    if lane.pacing.alone.suspects:
        lane.pacing.alone.recorded((lane.name, key))


# --- claim -------------------------------------------------------------------------------------------


async def claim_of(lane: Lane, delivery: Delivery, envelope: Envelope) -> tuple[Session, Claimed]:
    """Ask the ledger for the job, under a session that lives.

    Raises:
        Returned: it did not answer for so long that the delivery is in its queue again.
        Abandoned: the drain's time is up.
    """
    claim = Claim(
        lane=lane.name,
        key=envelope.key,
        fingerprint=envelope.fingerprint,
        type=envelope.type,
        run=envelope.run,
        published_at=envelope.published_at,
        deadline=envelope.deadline,
        not_before=envelope.not_before,
        kept=kept_of(envelope) if lane.custody else None,
        priority=envelope.raw.priority,
    )
    tries = 0
    while True:
        try:
            session = await lane.lease.current()
        except SessionLost as closed:
            raise Abandoned from closed
        try:
            answer = await lane.ledger.claim(session, claim)
            if lane.watch.away:
                lane.watch.answered(lane.name)
            return session, answer
        except SessionLost:
            lane.lease.lost(session)
        except LedgerUnavailable as error:
            await lane.wait_out(error, tries)
            tries += 1
        if delivery.over or not delivery.channel.alive:
            raise Returned


def _held_here(since: float) -> Held:
    """Wait as long again as the job has taken until now: what takes long is not asked for all the time."""
    now = datetime.now(UTC)
    wait_s = max(_HELD_HERE_S, time.monotonic() - since)
    return Held(now + timedelta(seconds=wait_s), now)


async def _settle_unclaimed(
    lane: Lane, delivery: Delivery, envelope: Envelope, claimed: Decided | NotDue | Held | Conflict
) -> Settled:
    """The ledger gave no claim: replay what it had decided, or wait, or keep the evidence."""
    match claimed:
        case Decided():
            acked = await _ack_final(lane, delivery, envelope.key, claimed.fence)
            return event_of(lane, delivery, envelope, "decided", acked, reason=claimed.state)
        case NotDue():
            wait_s = (claimed.at - claimed.now).total_seconds()
            acked = await lane.settler.wait(delivery, envelope.key, wait_s)
            return event_of(lane, delivery, envelope, "not_due", acked)
        case Held():
            wait_s = min((claimed.until - claimed.now).total_seconds(), _HELD_S)
            acked = await lane.settler.wait(delivery, envelope.key, wait_s)
            return event_of(lane, delivery, envelope, "held", acked)
        case Conflict():
            await _bury_stray(lane, letters.of_conflict(lane.name, envelope))
            acked = await lane.settler.ack(delivery)
            return event_of(lane, delivery, envelope, "conflict", acked, reason=Reason.KEY_CONFLICT)
        case _:
            assert_never(claimed)


async def _keep_malformed(lane: Lane, delivery: Delivery, malformed: Malformed) -> Settled:
    """A message that breaks the contract ends in the dead letters, with its bytes, and the lane goes on."""
    await _bury_stray(lane, letters.of_malformed(lane.name, malformed))
    acked = await lane.settler.ack(delivery)
    return event_of(lane, delivery, malformed, "malformed", acked, reason=malformed.reason)


async def _bury_stray(lane: Lane, letter: Letter) -> None:
    def bury() -> Awaitable[None]:
        return lane.ledger.bury_stray(letter, worker=lane.worker, version=lane.version)

    await lane.insist(bury)


# --- record and settle -------------------------------------------------------------------------------


async def _record(
    lane: Lane, envelope: Envelope, session: Session, claimed: Fresh, judged: Judged
) -> Recorded:
    """Make the verdict durable. Until it is, nothing of it is acted on."""
    if judged.recorded:
        return Recorded.RECORDED
    letter = None
    if isinstance(judged.verdict, Bury | Hold):
        verdict = judged.verdict
        letter = letters.of_job(lane.name, envelope, verdict.reason, verdict.detail, judged.raised)
    record = Record(
        lane=lane.name,
        key=envelope.key,
        fence=claimed.fence,
        verdict=judged.verdict,
        outcome=judged.outcome,
        reason=judged.reason,
        detail=judged.detail,
        started_at=judged.started_at,
        effect_at=judged.ended_at,
        letter=letter,
        frees=lane.custody,
        follow_ups=judged.follow_ups,
    )
    return await insist_on(lane, envelope, session, record, claimed.attempt)


async def insist_on(
    lane: Lane, envelope: Envelope, session: Session, record: Record, attempt: int | None = None
) -> Recorded:
    """Make this verdict durable, or the least that can be said of it: a claim must not stand for ever.

    Raises:
        Abandoned: the drain's time is up.
    """
    try:
        return await lane.insist(lane.ledger.record, session, record)
    except Abandoned:
        raise
    except Exception as refusal:
        # The store will not have this verdict, and the effect may have happened: a person decides.
        said = job_fields(envelope, attempt=attempt, fence=record.fence)
        lane.emitter.notice("record.refused", "error", lane=lane.name, **said, exc_info=refusal)
        plain = _held_record(lane, envelope, record)
        return await lane.insist(lane.ledger.record, session, plain)


def _held_record(lane: Lane, envelope: Envelope, refused: Record) -> Record:
    """The least that can be said of an attempt whose own record was refused."""
    hold = Hold("unrecordable", "the ledger refused the verdict of this attempt")
    letter = letters.of_job(lane.name, envelope, hold.reason, hold.detail)
    plain = replace(letter, headers={}, properties={})
    return replace(
        refused, verdict=hold, outcome="unknown", reason=hold.reason, detail=hold.detail, letter=plain
    )


async def _settle(
    lane: Lane, delivery: Delivery, envelope: Envelope, claimed: Fresh, judged: Judged, recorded: Recorded
) -> Settled:
    """Do what the recorded verdict asks; the ack is the last of it."""
    if recorded is Recorded.CLAIM_LOST:
        # Another owner decides. This copy waits until it has, so that the job has a carrier whatever happens.
        acked = await lane.settler.wait(delivery, envelope.key, _HELD_S)
        return event_of(lane, delivery, envelope, "claim_lost", acked, claimed, judged)
    match judged.verdict:
        case Complete() | Bury() | Hold():
            acked = await _ack_final(lane, delivery, envelope.key, claimed.fence)
        case Retry(at=at):
            wait_s = (at - judged.ended_at).total_seconds()
            acked = await lane.settler.wait(delivery, envelope.key, wait_s)
        case GiveBack():
            acked = await lane.settler.give_back(delivery)
        case _:
            assert_never(judged.verdict)
    return event_of(lane, delivery, envelope, name_of(judged.verdict), acked, claimed, judged)


async def _ack_final(lane: Lane, delivery: Delivery, key: str, fence: int) -> bool:
    """Acknowledge a delivery whose job wants no more of them, and note that it was."""
    acked = await lane.settler.ack(delivery)
    if acked:
        # Only a note: raised from here, an outage would have a delivery requeued that is acked already.
        with suppress(LedgerUnavailable):
            await lane.ledger.settled(lane.name, key, fence)
    return acked
