"""A job that is due, and its place in its lane: pure.

A queue of the broker cannot be searched, so a place in it is "at most", and a job without a message is proven
only by queues that were seen empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from acklast.absence import SLACK
from acklast.cli.lane_why import State as LaneState
from acklast.cli.lane_why import causes
from acklast.cli.spans import moment, span
from acklast.cli.why_reason import Case, Code, Need, Position, Reason
from acklast.ledger.api import State
from acklast.ledger.whereabouts import Claimer


def due_at(case: Case) -> datetime | None:
    """Since when the job might have been claimed; None where it is over, at work, or not due."""
    view, claimer = case.facts.view, case.facts.claimer
    match view.state:
        case State.QUEUED:
            # A redrive, or a daemon that gave it back, has published it then.
            at = max(filter(None, (view.recorded_at, view.claimed_at, view.enqueued_at)))
        case State.WAITING:
            at = view.available_at or view.enqueued_at
        case State.CLAIMED if claimer is None or not claimer.live:
            at = gone_at(claimer) or view.claimed_at or view.enqueued_at
        case _:
            return None
    sent = case.facts.sent_at
    return max(at, sent) if sent else at


def suspicious(case: Case) -> bool:
    """Whether it is worth a look at the queues: it is due for long, and nothing known holds it up."""
    since = due_at(case)
    queues = case.lane.queues
    nothing = queues.ready == 0 and not queues.missing and not case.lane.held and not _may_be_delayed(case)
    return since is not None and case.now - since > SLACK and nothing and not case.promises


def _may_be_delayed(case: Case) -> bool:
    """Whether it may be in a wait queue, for its own time: an older program's manifest did not tell of it."""
    first = case.facts.view.state is State.QUEUED and not case.facts.claims
    return first and case.lane.queues.delayed != 0


def is_due(case: Case) -> bool:
    """Whether its message should be in the lane's queue, or about to be taken."""
    since = due_at(case)
    return since is not None and since <= case.now and not case.promises


def gone_at(claimer: Claimer | None) -> datetime | None:
    """When a session ended, or its lease ran out."""
    return None if claimer is None else claimer.ended_at or claimer.lease_until


def turn(case: Case, place: Position | None) -> Iterator[Reason]:
    """What of its place in the lane keeps it; nothing of a job that is not due."""
    since = due_at(case)
    if place is None or since is None:
        return
    for_s = (case.now - since).total_seconds()
    evidence = {
        "due_at": since,
        "due_for_s": round(for_s, 1),
        "ready": case.lane.queues.ready,
        "held": case.lane.held,
    }
    if case.proof.absent:
        yield _lost(case, since, evidence)
        return
    if suspicious(case) and case.proof.looked:
        says = (
            f"it is due for {span(for_s)}, and no message waits in its lane's queue: its message may be lost."
        )
        says += " It is proven only where the queues stay empty for as long as a delivery may be held"
        remedy = f"acklast jobs missing --lane {case.facts.view.lane}"
        yield Reason(Code.MAYBE_LOST, Need.ACT, says, evidence, remedy, certain=False)
        return
    yield _queue(case, place, for_s, evidence)
    deadline = case.facts.view.deadline
    if deadline is not None and place.starts_at is not None and case.now < deadline < place.starts_at:
        says = f"at this pace it starts about {moment(place.starts_at, case.now)}, after its deadline "
        says += f"{moment(deadline, case.now)}: it would become a dead letter instead"
        risk = {"deadline": deadline, "starts_at": place.starts_at}
        yield Reason(Code.DEADLINE_RISK, Need.ACT, says, risk, "acklast lanes", certain=False)


def _queue(case: Case, place: Position, for_s: float, evidence: dict[str, Any]) -> Reason:
    if not place.ahead and _may_be_delayed(case) and timedelta(seconds=for_s) > SLACK:
        delayed = case.lane.queues.delayed
        count = (
            "what is in the lane's wait queues could not be seen"
            if delayed is None
            else (f"{delayed:,} messages are in the lane's wait queues")
        )
        says = (
            f"it is promised for {span(for_s)} and was never claimed, and nothing is seen before it: {count}"
        )
        says += ", and it may be one of them, if its publisher gave it a not-before"
        return Reason(Code.MAYBE_DELAYED, Need.WAIT, says, evidence | {"delayed": delayed}, certain=False)
    if not place.ahead:
        behind = "the queue could not be seen" if place.ahead is None else "nothing is seen before it"
        says = f"it is due for {span(for_s)}, and {behind}: its message is on its way, or about to be taken"
        return Reason(Code.DUE, Need.WAIT, says, evidence, certain=False)
    says = f"it is due for {span(for_s)}, and at most {place.ahead:,} of its lane are before it"
    if place.starts_at is not None:
        says += f": its turn comes by about {moment(place.starts_at, case.now)}, at {place.per_s:.3g}/s"
    if case.holds is not None:
        says += f"; what holds the lane back: {case.holds.said}"
        evidence = evidence | {"binding": case.holds.constraint, "figures": case.holds.figures}
    if place.basis != "fifo":
        says += "; runs or tenants take turns in this lane, so it may be sooner"
    return Reason(Code.BEHIND, Need.WAIT, says, evidence, "acklast lanes", certain=False)


def _lost(case: Case, since: datetime, evidence: dict[str, Any]) -> Reason:
    view = case.facts.view
    says = f"its message is not in the broker: it is due since {moment(since, case.now)}, and its lane's"
    says += " queues were seen empty with nothing held by a daemon (purged, deleted, or lost with a node)"
    if case.facts.kept:
        says += "; the ledger has kept the message"
        remedy = f"acklast jobs missing --lane {view.lane} --republish"
    else:
        says += "; publish the same message again, with the same key: it finds its job"
        remedy = f"acklast jobs missing --lane {view.lane}"
    return Reason(Code.LOST, Need.ACT, says, evidence | {"kept": case.facts.kept}, remedy)


def position(case: Case) -> Position:
    """The job's place in its lane, and when its turn would come."""
    view = case.lane
    # Its own message is one of them; where it is not, nothing is before it at all.
    ahead = None if view.queues.ready is None else max(0, view.queues.ready + view.held - 1)
    per_s = case.per_s or view.used_per_s or None
    starts_at = None
    # What stands still has no pace, however fast it was.
    if ahead is not None and per_s is not None and causes(view)[0] in (LaneState.RUNNING, LaneState.IDLE):
        starts_at = case.now + timedelta(seconds=min(ahead / per_s, timedelta(days=3650).total_seconds()))
    basis = "turns" if case.rules is not None and case.rules.in_turns else "fifo"
    return Position(ahead, per_s, starts_at, basis)
