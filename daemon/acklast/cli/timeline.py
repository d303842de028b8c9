"""A job's life as rows: what happened to it, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from acklast.ledger.api import AttemptView, JobView, LetterView, State
from acklast.ledger.trials import Trial


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened, or (``due``, ``deadline``) is to happen."""

    at: datetime
    what: str
    detail: str = ""


def timeline(job: JobView) -> list[Moment]:
    """Everything that the ledger knows of a job, oldest first.

    ``published`` is the publisher's clock; every other time is the ledger's.
    """
    return sorted(_moments(job), key=lambda moment: moment.at)


def _moments(job: JobView) -> Iterator[Moment]:
    # In the order of a life: the sort is stable, and group commits give several moments one time.
    yield from _at(job.published_at, "published", "the publisher's clock")
    yield from _at(job.enqueued_at, "enqueued", f"run {job.run}" if job.run else "")
    for attempt in job.history:
        yield from _attempt(attempt)
    yield from _at(job.claimed_at, "claimed", _words(_by(job.worker, job.version), f"fence {job.fence}"))
    yield from _at(job.effect_at, "effect", "the handler returned")
    yield from _at(job.recorded_at, "recorded", _words(job.state, job.reason))
    for letter in job.letters:
        yield from _letter(letter)
    for trial in job.redrives:
        yield from _trial(trial)
    yield from _at(job.settled_at, "settled", "acknowledged to the broker")
    if job.state in (State.WAITING, State.QUEUED):
        yield from _at(job.available_at, "due", "not started before this")
    yield from _at(job.deadline, "deadline", "not started after this")


def _attempt(attempt: AttemptView) -> Iterator[Moment]:
    name = f"attempt {attempt.attempt}"
    by = _words(_by(attempt.worker, attempt.version), f"fence {attempt.fence}")
    yield from _at(attempt.started_at, f"{name} started", by)
    yield from _at(attempt.ended_at, f"{name} {attempt.outcome}", _words(attempt.reason, attempt.detail))


def _letter(letter: LetterView) -> Iterator[Moment]:
    seen = f"seen {letter.seen} times" if letter.seen > 1 else None
    detail = _words(f"no. {letter.id}", letter.reason, letter.detail, seen)
    yield from _at(letter.last_failure_at, "dead letter", detail)


def _trial(trial: Trial) -> Iterator[Moment]:
    name = f"redrive {trial.redrive}"
    yield from _at(trial.released_at, f"{name} tries it", f"dead letter no. {trial.letter}")
    again = "as before" if trial.new_failure == trial.failure else None
    yield from _at(trial.settled_at, f"{name} found it", _words(trial.outcome, trial.new_reason, again))


def _at(at: datetime | None, what: str, detail: str) -> Iterator[Moment]:
    if at is not None:
        yield Moment(at, what, detail)


def _by(worker: str | None, version: str | None) -> str | None:
    return f"by {worker} ({version})" if worker else None


def _words(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)
