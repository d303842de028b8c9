"""Why one job is not running, or that it is, or that it is over: pure.

Nothing is said more certainly than the evidence has it: a queue of the broker cannot be searched, so a place
in it is "at most", and a job without a message is proven only by queues that were seen empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from shlex import quote
from typing import Any, assert_never

from acklast.absence import SLACK
from acklast.cli.spans import moment, span
from acklast.cli.why_ends import ended
from acklast.cli.why_lane import lane_reasons
from acklast.cli.why_promised import unpublished
from acklast.cli.why_reason import Answer, Case, Code, Need, Position, Reason, ordered
from acklast.ledger.api import JobView, State
from acklast.ledger.whereabouts import Claimer

ENDS = frozenset({State.DONE, State.DEAD, State.UNRESOLVED, State.CANCELLED})
_LONG_AT_LEAST_S = 5.0
"""What is shorter is long for nobody."""
_ENOUGH = 20
"""Other jobs that tell what is usual."""


def answer(case: Case) -> Answer:
    """Why the job is where it is."""
    view = case.facts.view
    place = position(case) if _is_due(case) else None
    reasons = [*_reasons(case, place), *_conflicts(case)]
    return Answer(view.lane, view.state.value, ordered(reasons), place)


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
            at = _gone_at(claimer) or view.claimed_at or view.enqueued_at
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
    """Whether it may be in a wait queue, for its own time: before its first claim the ledger cannot know."""
    first = case.facts.view.state is State.QUEUED and not case.facts.claims
    return first and case.lane.queues.delayed != 0


def _is_due(case: Case) -> bool:
    since = due_at(case)
    return since is not None and since <= case.now and not case.promises


def _gone_at(claimer: Claimer | None) -> datetime | None:
    return None if claimer is None else claimer.ended_at or claimer.lease_until


def _reasons(case: Case, place: Position | None) -> Iterator[Reason]:
    state, claimer = case.facts.view.state, case.facts.claimer
    if state in ENDS:
        yield from ended(case)
        return
    if state is State.CLAIMED and claimer is not None and claimer.live:
        yield _running(case, claimer)
        return
    yield from _forbidden(case)
    yield from _held_up(case)
    yield from lane_reasons(case)
    yield from _turn(case, place)


# --- it runs --------------------------------------------------------------------------------------------


def _running(case: Case, claimer: Claimer) -> Reason:
    view, usual = case.facts.view, case.facts.usual
    since = view.claimed_at or case.now
    took_s = max(0.0, (case.now - since).total_seconds())
    told = usual is not None and usual.jobs >= _ENOUGH
    long = usual is not None and told and took_s > max(usual.most_s, _LONG_AT_LEAST_S)
    says = f"it runs since {moment(since, case.now)} ({span(took_s)}), attempt {view.attempts}, "
    says += f"on {claimer.worker}"
    if usual is not None:
        says += f"; half of {usual.jobs} others took {_short(usual.half_s)}, "
        says += f"one in twenty over {_short(usual.most_s)}"
    if claimer.draining_at is not None:
        says += "; that daemon drains: it is let finish until the drain's deadline"
    evidence = {
        "since": since,
        "took_s": round(took_s, 3),
        "attempt": view.attempts,
        "worker": claimer.worker,
        "version": claimer.version,
        "usual": usual,
        "ambiguous": view.ambiguous,
        "draining_at": claimer.draining_at,
    }
    code = Code.RUNNING_LONG if long else Code.RUNNING
    return Reason(code, Need.NOTHING, says, evidence, _show(view))


def _show(view: JobView) -> str:
    return f"acklast jobs show {quote(view.key)} --lane {view.lane}"


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else span(seconds)


# --- it may not start -------------------------------------------------------------------------------------


def _forbidden(case: Case) -> Iterator[Reason]:
    view, cancelled = case.facts.view, case.facts.cancelled
    if cancelled is not None:
        says = (
            f"its run {view.run} was cancelled by {cancelled.actor} at {moment(cancelled.at, case.now)}: "
            f"{cancelled.reason or 'no reason'}; it ends as cancelled when its message comes"
        )
        evidence = {"run": view.run, "actor": cancelled.actor, "at": cancelled.at, "reason": cancelled.reason}
        yield Reason(
            Code.RUN_CANCELLED, Need.NOTHING, says, evidence, f"acklast runs show {quote(view.run or '')}"
        )
    if view.deadline is not None and view.deadline <= case.now:
        late = span((case.now - view.deadline).total_seconds())
        says = f"its deadline passed {late} ago, at {moment(view.deadline, case.now)}: it does not start any"
        says += " more, and becomes a dead letter (deadline_exceeded) when its message comes"
        remedy = f"acklast dead list --lane {view.lane} --reason deadline_exceeded"
        yield Reason(Code.DEADLINE_PASSED, Need.ACT, says, {"deadline": view.deadline}, remedy)


# --- it is held up by something of its own --------------------------------------------------------------


def _held_up(case: Case) -> Iterator[Reason]:
    view = case.facts.view
    if case.promises:
        yield from unpublished(case.promises, case.now, case.oldest_due)
    match view.state:
        case State.CLAIMED:
            yield _orphaned(case)
        case State.WAITING:
            yield _waiting(case)
        case State.QUEUED:
            yield from _queued(case)
        case State.DONE | State.DEAD | State.UNRESOLVED | State.CANCELLED:
            return
        case _:
            assert_never(view.state)


def _orphaned(case: Case) -> Reason:
    view, claimer = case.facts.view, case.facts.claimer
    gone = _gone_at(claimer)
    who = claimer.worker if claimer else "a daemon that the ledger does not know any more"
    how = "ended" if claimer and claimer.ended_at else "has not renewed its lease since"
    says = f"{who} claimed it at {moment(view.claimed_at or case.now, case.now)} and {how}"
    says += f" {moment(gone, case.now)}" if gone else ""
    says += ": the next delivery of its message takes it over"
    if case.rules is not None:
        says += (
            f"; whether its effect happened nobody knows, and on_unknown = {case.rules.on_unknown} decides"
        )
    evidence = {
        "worker": claimer.worker if claimer else None,
        "claimed_at": view.claimed_at,
        "gone_at": gone,
        "on_unknown": case.rules.on_unknown if case.rules else None,
    }
    return Reason(Code.ORPHANED, Need.WAIT, says, evidence, "acklast workers --all")


def _waiting(case: Case) -> Reason:
    view, at = case.facts.view, case.facts.view.available_at
    future = at is not None and at > case.now
    when = f"until {moment(at, case.now)} ({span((at - case.now).total_seconds())})" if at and future else ""
    when = when or (f"it was due at {moment(at, case.now)}" if at else "it is due")
    need = Need.WAIT
    evidence: dict[str, Any] = {"available_at": at, "attempts": view.attempts, "reason": view.reason}
    if not case.facts.claims:
        says = f"its publisher said not before: it waits {when}" if future else f"not-before is over: {when}"
        return Reason(Code.NOT_BEFORE, need, says, evidence)
    last = view.history[-1] if view.history else None
    evidence |= {
        "last": last,
        "rate_limited": view.rate_limited,
        "max_attempts": case.rules.max_attempts if case.rules else None,
    }
    of = f" of {case.rules.max_attempts}" if case.rules else ""
    limited = last is not None and last.outcome == "rate_limited"
    what = "the downstream refused it for its quota" if limited else f"attempt {view.attempts}{of} failed"
    why = f" ({view.reason})" if view.reason else ""
    says = f"{what}{why}: the next one waits {when}" if future else f"{what}{why}, and {when} again"
    code = Code.RATE_LIMITED if limited else Code.RETRY
    return Reason(code, need, says, evidence, _show(view))


def _queued(case: Case) -> Iterator[Reason]:
    view, trying = case.facts.view, case.facts.trying
    if trying is not None:
        trial = view.redrives[-1]
        sent = f"published at {moment(trial.sent_at, case.now)}" if trial.sent_at else "not published yet"
        says = f"redrive {trying.id} has queued it again, {sent}; the redrive is {trying.status}"
        evidence = {
            "redrive": trying.id,
            "status": trying.status,
            "released_at": trial.released_at,
            "sent_at": trial.sent_at,
        }
        yield Reason(Code.REDRIVEN, Need.WAIT, says, evidence, f"acklast redrive status {trying.id}")
    elif view.claimed_at is not None and view.recorded_at is not None:
        says = f"a daemon gave it back at {moment(view.recorded_at, case.now)} ({view.reason or 'no reason'})"
        says += ": no attempt is spent, and its message is in the queue again"
        evidence = {"at": view.recorded_at, "reason": view.reason, "worker": view.worker}
        yield Reason(Code.GIVEN_BACK, Need.WAIT, says, evidence)


# --- it is due ------------------------------------------------------------------------------------------


def _turn(case: Case, place: Position | None) -> Iterator[Reason]:
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
    per_s = view.used_per_s or None
    starts_at = None
    if ahead is not None and per_s is not None:
        starts_at = case.now + timedelta(seconds=min(ahead / per_s, timedelta(days=3650).total_seconds()))
    basis = "turns" if case.rules is not None and case.rules.in_turns else "fifo"
    return Position(ahead, per_s, starts_at, basis)


def _conflicts(case: Case) -> Iterator[Reason]:
    for stray in case.strays[:1]:
        says = f"another message under this key was set aside as {stray.reason} at "
        says += f"{moment(stray.last_failure_at, case.now)}: {stray.detail}"
        helps = f"acklast dead show {stray.id}"
        evidence = {"letter": stray.id, "reason": stray.reason, "at": stray.last_failure_at}
        yield Reason(Code.KEY_CONFLICT, Need.ACT, says, evidence, helps)


def proven(case: Case, absent: bool) -> Case:
    """The case after somebody has looked for as long as it takes."""
    return replace(case, proof=replace(case.proof, looked=True, absent=absent))
