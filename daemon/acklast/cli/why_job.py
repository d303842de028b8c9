"""Why one job is not running, or that it is, or that it is over: pure.

Nothing is said more certainly than the evidence has it: a queue of the broker cannot be searched, so a place
in it is "at most", and a job without a message is proven only by queues that were seen empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any, assert_never

from acklast.cli.spans import moment, span
from acklast.cli.why_ends import ended
from acklast.cli.why_lane import lane_reasons
from acklast.cli.why_promised import unpublished
from acklast.cli.why_reason import Answer, Case, Code, Need, Position, Reason, ordered
from acklast.cli.why_turn import gone_at, is_due, position, turn
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
    place = position(case) if is_due(case) else None
    reasons = [*_reasons(case, place), *_conflicts(case)]
    return Answer(view.lane, view.state.value, ordered(reasons), place)


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
    yield from turn(case, place)


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
    gone = gone_at(claimer)
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


def _conflicts(case: Case) -> Iterator[Reason]:
    for stray in case.strays[:1]:
        says = f"another message under this key was set aside as {stray.reason} at "
        says += f"{moment(stray.last_failure_at, case.now)}: {stray.detail}"
        helps = f"acklast dead show {stray.id}"
        evidence = {"letter": stray.id, "reason": stray.reason, "at": stray.last_failure_at}
        yield Reason(Code.KEY_CONFLICT, Need.ACT, says, evidence, helps)
