"""Why a job does not run that has come to an end: done, dead, unresolved or cancelled. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from acklast.cli.spans import moment, span
from acklast.cli.why_reason import Case, Code, Need, Reason
from acklast.ledger.about import RUN_CANCELLED
from acklast.ledger.api import LetterView, State
from acklast.ledger.whereabouts import Trying


def ended(case: Case) -> Iterator[Reason]:
    """The reasons of a job that is not open."""
    match case.facts.view.state:
        case State.DONE:
            yield _done(case)
        case State.DEAD:
            yield from _dead(case)
        case State.UNRESOLVED:
            yield from _unresolved(case)
        case _:
            yield _cancelled(case)


def _done(case: Case) -> Reason:
    view = case.facts.view
    at = view.recorded_at or case.now
    by = f" by {view.worker}" if view.worker else ""
    tries = f", at attempt {view.attempts}" if view.attempts > 1 else ""
    says = f"it is done since {moment(at, case.now)} ({span((case.now - at).total_seconds())} ago){by}{tries}"
    if view.settled_at is None:
        says += "; the acknowledgement of its message is not noted yet"
    evidence = {
        "at": view.recorded_at,
        "worker": view.worker,
        "version": view.version,
        "attempts": view.attempts,
        "result": view.result,
        "settled_at": view.settled_at,
    }
    return Reason(Code.DONE, Need.NOTHING, says, evidence, _show(case))


def _dead(case: Case) -> Iterator[Reason]:
    view, letter = case.facts.view, _letter(case)
    yield from _redriven(case)
    at = view.recorded_at or case.now
    says = f"it is dead since {moment(at, case.now)}: {view.reason or 'no reason'}"
    says += f", after {view.attempts} attempts" if view.attempts != 1 else ", at its first attempt"
    says += f"; {letter.detail}" if letter is not None and letter.detail else ""
    waits = case.facts.trying is not None
    says += "" if waits else ". It stays so until somebody redrives or drops it"
    yield Reason(
        Code.DEAD, Need.WAIT if waits else Need.ACT, says, _evidence(case, letter), _redrive(case, letter)
    )


def _redrive(case: Case, letter: LetterView | None) -> str:
    if letter is None:
        return _show(case)
    plan = f"acklast redrive plan --lane {letter.lane} --reason {letter.reason}"
    return f"acklast dead show {letter.id}; then {plan}"


def _redriven(case: Case) -> Iterator[Reason]:
    trying = case.facts.trying
    if trying is None:
        yield from _refused(case)
        return
    says = f"redrive {trying.id} of {trying.actor} tries it again: it is {trying.status}"
    says += f", {trying.released} of {trying.letters} letters released"
    need = Need.WAIT if trying.status == "running" else Need.ACT
    evidence = {name: getattr(trying, name) for name in Trying.__slots__}
    yield Reason(Code.REDRIVE_WAITS, need, says, evidence, f"acklast redrive status {trying.id}")


def _refused(case: Case) -> Iterator[Reason]:
    """The latest redrive of it has passed it over: whoever started that may count on it still."""
    trial = case.facts.view.redrives[-1] if case.facts.view.redrives else None
    if trial is None or trial.state != "refused":
        return
    says = f"redrive {trial.redrive} was to try it again, and did not: {trial.refusal}"
    evidence = {"redrive": trial.redrive, "letter": trial.letter, "refusal": trial.refusal}
    helps = f"acklast redrive status {trial.redrive}"
    yield Reason(Code.REDRIVE_REFUSED, Need.ACT, says, evidence, helps)


def _unresolved(case: Case) -> Iterator[Reason]:
    view, letter = case.facts.view, _letter(case)
    yield from _redriven(case)
    at = view.recorded_at or case.now
    says = f"it is unresolved since {moment(at, case.now)} ({view.reason or 'no reason'}):"
    says += " its effect may have happened, and a person or a reconcile decides"
    asked = case.facts.asked[-1] if case.facts.asked else None
    if asked is not None and asked.done_at is None:
        says += f"; {asked.actor} asked at {moment(asked.asked_at, case.now)}, and a daemon is to find out"
    elif asked is not None:
        says += f"; it was asked at {moment(asked.asked_at, case.now)} and found: {asked.found or asked.code}"
    name = letter.id if letter is not None else quote(view.key)
    helps = f"acklast unresolved show {name}; then acklast unresolved resolve or reconcile"
    waits = (asked is not None and asked.done_at is None) or case.facts.trying is not None
    evidence = _evidence(case, letter) | {"asked": asked}
    yield Reason(Code.UNRESOLVED, Need.WAIT if waits else Need.ACT, says, evidence, helps)


def _cancelled(case: Case) -> Reason:
    view, run, hand = case.facts.view, case.facts.cancelled, case.facts.hand
    at = view.recorded_at or (run.at if run else None)
    since = f" since {moment(at, case.now)}" if at else ""
    if view.reason == RUN_CANCELLED and run is not None:
        says = f"it is cancelled{since}: its run {view.run} was cancelled by {run.actor} at "
        says += f"{moment(run.at, case.now)}: {run.reason or 'no reason'}"
        evidence = {"at": at, "run": view.run, "actor": run.actor, "reason": run.reason, "run_at": run.at}
    else:
        says = f"it is cancelled{since} ({view.reason or 'no reason'})"
        says += f"; {hand.action} by {hand.actor}" if hand else ""
        evidence = {"at": at, "reason": view.reason, "actor": hand.actor if hand else None}
    helps = f"acklast audit --lane {view.lane} --key {quote(view.key)}"
    return Reason(Code.CANCELLED, Need.NOTHING, says, evidence, helps)


def _letter(case: Case) -> LetterView | None:
    """The letter of its end: the latest that is the job's own."""
    strays = {stray.id for stray in case.strays}
    own = [letter for letter in case.facts.view.letters if letter.id not in strays]
    return own[-1] if own else None


def _evidence(case: Case, letter: LetterView | None) -> dict[str, object]:
    view = case.facts.view
    return {
        "at": view.recorded_at,
        "reason": view.reason,
        "attempts": view.attempts,
        "letter": letter.id if letter else None,
        "detail": letter.detail if letter else None,
        "first_failure_at": letter.first_failure_at if letter else None,
        "last_failure_at": letter.last_failure_at if letter else None,
        "worker": letter.worker if letter else view.worker,
        "version": letter.version if letter else view.version,
        "trace_id": letter.trace_id if letter else None,
    }


def _show(case: Case) -> str:
    return f"acklast jobs show {quote(case.facts.view.key)} --lane {case.facts.view.lane}"
