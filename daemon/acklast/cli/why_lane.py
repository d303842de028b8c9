"""What of a lane keeps a job from starting, as reasons: pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from acklast.cli.lane_view import LaneView
from acklast.cli.lane_why import Because, Cause, causes
from acklast.cli.why_reason import Case, Code, Need, Reason
from acklast.ledger.workers import State

_ACT: Final = {
    Because.QUEUE_MISSING,
    Because.LANE_PAUSED,
    Because.BUDGET_PAUSED,
    Because.NO_DAEMON,
    Because.NOT_CONSUMING,
    Because.PAUSED_THERE,
}
"""What stays until somebody does something; a pause that ends by itself is none of them."""
_SMALL: Final = {
    Because.OPEN,
    Because.IDLE,
    Because.NOT_DUE,
    Because.RUNNING,
    Because.STILL_RUN,
}
"""What keeps nothing from starting."""
_PACE: Final = {Because.AT_QUOTA, Because.BUSY, Because.SLOWED, Because.LOWERED, Because.SILENT}
"""What only slows it."""


def lane_reasons(case: Case) -> Iterator[Reason]:
    """What keeps the whole lane from starting jobs, or slows it."""
    view = case.lane
    if case.rules is None:
        says = f"lane {view.lane} is not in this configuration: of its budget and rules nothing is known here"
        yield Reason(Code.NOT_CONFIGURED, Need.NOTHING, says)
    yield from _workers(case)
    for cause in causes(view)[1]:
        if cause.code not in _SMALL:
            yield _reason(view, cause)
    if case.blind is not None:
        says = f"what waits on the broker could not be seen: {case.blind}"
        yield Reason(Code.BROKER_UNSEEN, Need.ACT, says, {"error": case.blind}, "acklast check")


def _reason(view: LaneView, cause: Cause) -> Reason:
    return Reason(
        cause.code,
        _need(view, cause),
        _says(view, cause),
        _evidence(view, cause.code),
        _helps(view, cause.code),
    )


def _need(view: LaneView, cause: Cause) -> Need:
    timed = view.paused is not None and view.paused.until is not None
    if cause.code in (Because.LANE_PAUSED, Because.BUDGET_PAUSED) and timed:
        return Need.WAIT
    return Need.ACT if cause.code in _ACT else Need.WAIT


def _says(view: LaneView, cause: Cause) -> str:
    about = "" if cause.code in _PACE else f"lane {view.lane}: "
    return f"{about}{cause.says}"


def _helps(view: LaneView, code: Because) -> str | None:
    lane = view.lane
    match code:
        case Because.QUEUE_MISSING:
            return "acklast topology apply"
        case Because.LANE_PAUSED:
            return f"acklast lanes resume {lane}"
        case Because.BUDGET_PAUSED:
            return f"acklast lanes resume --budget {view.budget}"
        case Because.NO_DAEMON:
            return f"acklast run --lane {lane}"
        case Because.LOWERED:
            return f"acklast lanes history {lane}"
        case Because.SILENT | Because.NOT_FOLLOWED:
            return "acklast workers"
        case _:
            return "acklast lanes"


def _evidence(view: LaneView, code: Because) -> dict[str, Any]:
    match code:
        case Because.LANE_PAUSED | Because.BUDGET_PAUSED if view.paused is not None:
            pause = view.paused
            names = ("name", "actor", "reason", "at", "until")
            return {name: getattr(pause, name) for name in names} | {"in_flight": view.in_flight}
        case Because.QUEUE_MISSING:
            return {"missing": view.queues.missing}
        case Because.NO_DAEMON | Because.SILENT:
            silent = [{"worker": one.worker, "silent_s": round(one.silent_s)} for one in view.silent]
            return {"daemons": len(view.daemons), "silent": silent}
        case Because.QUIET if view.quiet is not None:
            return {
                "budget": view.budget,
                "until": view.quiet.until,
                "reason": view.quiet.reason,
                **_pace(view),
            }
        case Because.LOWERED:
            return {"limits": view.limits}
        case _:
            told = [{"worker": one.worker, "state": one.state, "until": one.until} for one in view.daemons]
            return {"daemons": told, **_pace(view)}


def _pace(view: LaneView) -> dict[str, Any]:
    return {
        "quota": str(view.in_force) if view.in_force else None,
        "effective_per_s": view.effective_per_s,
        "used_per_s": round(view.used_per_s, 3),
        "in_flight": view.in_flight,
        "slots": view.slots,
    }


def _workers(case: Case) -> Iterator[Reason]:
    alive = [one for one in case.workers if one.state in (State.LIVE, State.DRAINING)]
    draining = [one for one in alive if one.state is State.DRAINING]
    if alive and len(draining) == len(alive):
        names = ", ".join(one.worker for one in draining)
        by = next((f", asked by {one.drain_by}: {one.drain_reason}" for one in draining if one.drain_by), "")
        evidence = {"workers": [one.worker for one in draining], "since": draining[0].draining_at}
        says = f"every daemon that serves lane {case.lane.lane} drains and starts nothing more: {names}{by}"
        yield Reason(Code.DRAINING, Need.ACT, says, evidence, f"acklast run --lane {case.lane.lane}")
    versions = sorted({f"{one.version} (acklast {one.release or '?'})" for one in alive})
    if len(versions) > 1:
        says = f"daemons of several versions serve lane {case.lane.lane}: {', '.join(versions)}"
        yield Reason(Code.VERSIONS, Need.NOTHING, says, {"versions": versions}, "acklast workers")
