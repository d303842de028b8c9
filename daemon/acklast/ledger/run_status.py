"""How a run stands against its deadline, and what may be expected of it. Pure.

A run's deadline is when it is to be finished: when none of its jobs is open. It stops nothing.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

from acklast.ledger.api import LATELY_S, RunView, State

_SHORT: Final = 0.1
"""Of the time from its beginning to its deadline: what is left when a run without a pace is at risk."""


class Status(StrEnum):
    """How a run stands."""

    EMPTY = "empty"
    """It has no job yet."""
    OPEN = "open"
    """Something is to be done, and nothing says that it will not be done in time."""
    AT_RISK = "at_risk"
    """At the pace of the last minute it is finished after its deadline; or it has none, and little time."""
    LATE = "late"
    """Its deadline is over, and something is still to be done."""
    CANCELLING = "cancelling"
    """It is cancelled, and something of it still runs or waits for its message."""
    FINISHED = "finished"
    """Nothing is to be done."""
    FINISHED_LATE = "finished_late"
    """The same, and the last job ended after the deadline."""
    CANCELLED = "cancelled"
    """It was cancelled, and nothing is to be done."""


ENDED: Final = frozenset({Status.FINISHED, Status.FINISHED_LATE, Status.CANCELLED})


def rate_per_s(view: RunView) -> float | None:
    """Jobs that end each second, of the last minute; None where none did."""
    if not view.ended_lately or view.at is None:
        return None
    age_s = (view.at - view.created_at).total_seconds() if view.created_at else LATELY_S
    return view.ended_lately / min(LATELY_S, max(age_s, 1.0))


def left_s(view: RunView) -> float | None:
    """Seconds until it is finished at this pace; None where there is none."""
    rate = rate_per_s(view)
    return None if rate is None or not view.open else view.open / rate


def status(view: RunView) -> Status:
    """How a run stands at the moment of the view."""
    if view.cancelled is not None:
        return Status.CANCELLING if view.open else Status.CANCELLED
    if not view.total:
        return Status.EMPTY
    deadline = view.about.deadline
    if view.open:
        return Status.OPEN if deadline is None or view.at is None else _against(view)
    late = deadline is not None and view.ended_at is not None and view.ended_at > deadline
    return Status.FINISHED_LATE if late else Status.FINISHED


def _against(view: RunView) -> Status:
    """How an open run stands against its deadline."""
    at, deadline = view.at, view.about.deadline
    assert at is not None
    assert deadline is not None
    if at >= deadline:
        return Status.LATE
    left = left_s(view)
    if left is not None:
        return Status.AT_RISK if at + timedelta(seconds=left) > deadline else Status.OPEN
    began = view.created_at or at
    short = (deadline - at) < _SHORT * (deadline - began)
    return Status.AT_RISK if short else Status.OPEN


def per_success(view: RunView) -> float | None:
    """Attempts for each job that is done; None where none is."""
    done = view.counts.get(State.DONE, 0)
    return view.attempts / done if done else None
