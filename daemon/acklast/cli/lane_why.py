"""Why a lane does or does not run, in plain words: pure, and the same for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from acklast.cli.lane_view import LaneView
from acklast.cli.spans import moment, span
from acklast.ledger.controls import Control, Kind, Target
from acklast.ledger.standing import DaemonView
from acklast.reporter import Standing


class State(StrEnum):
    """A lane in one word."""

    RUNNING = "running"
    """It starts what comes."""
    IDLE = "idle"
    """It would, and nothing waits."""
    PAUSED = "paused"
    """An operator has paused it."""
    WAITING = "waiting"
    """It goes on by itself: the downstream asked for quiet or is down, or every permit is in use."""
    STOPPED = "stopped"
    """Nothing happens until somebody does something."""


class Because(StrEnum):
    """Why a lane is in its state, as one word. Stable: programs read it."""

    QUEUE_MISSING = "queue_missing"
    LANE_PAUSED = "lane_paused"
    BUDGET_PAUSED = "budget_paused"
    STILL_RUN = "still_run"
    """Jobs that had started before the pause."""
    NOT_FOLLOWED = "not_followed"
    """A daemon has not heard of the pause."""
    NO_DAEMON = "no_daemon"
    SILENT = "silent"
    """A daemon has not renewed its lease."""
    BREAKER = "breaker"
    QUIET = "quiet"
    NO_PERMIT = "no_permit"
    NOT_CONSUMING = "not_consuming"
    LEASE_LOST = "lease_lost"
    PAUSED_THERE = "paused_there"
    """A daemon still follows a pause that is over."""
    SLOWED = "slowed"
    OPEN = "open"
    IDLE = "idle"
    NOT_DUE = "not_due"
    AT_QUOTA = "at_quota"
    BUSY = "busy"
    RUNNING = "running"
    LOWERED = "lowered"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason: its word, and what is told of it."""

    code: Because
    says: str


_RUNS = (Standing.OPEN, Standing.SLOWED)
_BY_ITSELF = (Standing.QUIET, Standing.BREAKER, Standing.NO_PERMIT)


def explain(view: LaneView) -> tuple[State, str]:
    """The lane's state, and why it is so: the first reason is the one to act on."""
    state, reasons = causes(view)
    return state, "; ".join(reason.says for reason in reasons)


def causes(view: LaneView) -> tuple[State, list[Cause]]:
    """The same, each reason by itself."""
    state, reasons = _cause(view)
    reasons += [Cause(Because.LOWERED, _limit(one, view.now)) for one in view.limits]
    if view.silent and (view.daemons or view.paused):
        reasons.append(_silent(view))
    return state, reasons


def _cause(view: LaneView) -> tuple[State, list[Cause]]:
    if view.queues.missing:
        says = f"{', '.join(view.queues.missing)} is not on the broker: run 'acklast topology apply'"
        return State.STOPPED, [Cause(Because.QUEUE_MISSING, says)]
    if view.paused is not None:
        return State.PAUSED, [*_paused(view, view.paused)]
    if not view.daemons:
        gone = [_silent(view)] if view.silent else []
        none = Cause(Because.NO_DAEMON, "no daemon serves it: start 'acklast run'")
        return State.STOPPED, [none, *gone]
    runs = [daemon for daemon in view.daemons if daemon.state in _RUNS]
    if not runs:
        return _blocked(view)
    others = [daemon for daemon in view.daemons if daemon not in runs]
    return _pace(view, runs, others)


# --- it does not run ------------------------------------------------------------------------------------


def _paused(view: LaneView, pause: Control) -> Iterator[Cause]:
    shared = pause.target is Target.BUDGET
    what = f"its budget {pause.name} was paused" if shared else "paused"
    until = f"until {moment(pause.until, view.now)}" if pause.until else "until it is resumed"
    says = f"{what} by {pause.actor} at {moment(pause.at, view.now)} {until}: {pause.reason}"
    yield Cause(Because.BUDGET_PAUSED if shared else Because.LANE_PAUSED, says)
    if view.in_flight:
        yield Cause(Because.STILL_RUN, f"{view.in_flight} that had started run on")
    late = [daemon.worker for daemon in view.daemons if daemon.state != Standing.PAUSED]
    if late:
        yield Cause(Because.NOT_FOLLOWED, f"not followed yet by {', '.join(late)}")


def _blocked(view: LaneView) -> tuple[State, list[Cause]]:
    counts = Counter(daemon.state for daemon in view.daemons)
    state = State.WAITING if any(name in _BY_ITSELF for name in counts) else State.STOPPED
    # What resolves itself comes first: it says when.
    order = [*_BY_ITSELF, *(one for one in Standing if one not in _BY_ITSELF)]
    names = sorted(counts, key=lambda name: order.index(Standing(name)))
    said = [_state(view, name) for name in names]
    if len(names) > 1:
        said = [
            Cause(one.code, f"{one.says} ({counts[name]} of {len(view.daemons)} daemons)")
            for name, one in zip(names, said, strict=True)
        ]
    return state, said


_OF_STANDING = {
    Standing.BREAKER: Because.BREAKER,
    Standing.QUIET: Because.QUIET,
    Standing.NO_PERMIT: Because.NO_PERMIT,
    Standing.NOT_CONSUMING: Because.NOT_CONSUMING,
    Standing.LEASE_LOST: Because.LEASE_LOST,
    Standing.PAUSED: Because.PAUSED_THERE,
    Standing.SLOWED: Because.SLOWED,
    Standing.OPEN: Because.OPEN,
}


def _state(view: LaneView, state: str) -> Cause:
    return Cause(_OF_STANDING[Standing(state)], _state_says(view, state))


def _state_says(view: LaneView, state: str) -> str:
    daemons = [daemon for daemon in view.daemons if daemon.state == state]
    ends = [daemon.until for daemon in daemons if daemon.until is not None]
    when = moment(min(ends), view.now) if ends else None
    names = ", ".join(daemon.worker for daemon in daemons)
    match Standing(state):
        case Standing.BREAKER:
            probe = f", probes it at {when}" if when else ", is probing it"
            return f"the downstream is down: the breaker of {names} is open{probe}"
        case Standing.QUIET:
            return f"the downstream asked for quiet until {when or 'now'} (429 or Retry-After)"
        case Standing.NO_PERMIT:
            return _no_permit(view, when)
        case Standing.NOT_CONSUMING:
            return f"{names} gets no deliveries from the broker: see its log for lane.interrupted"
        case Standing.LEASE_LOST:
            return f"{names} has lost its session in the ledger and opens another"
        case Standing.PAUSED:
            return f"{names} still pauses it"
        case Standing.SLOWED:
            return "starts come slower than the quota: after a pause, or because the downstream asks for it"
        case Standing.OPEN:
            return "open"


def _no_permit(view: LaneView, when: str | None) -> str:
    quota = f" of {view.in_force}" if view.in_force else ""
    if when:
        return f"every permit{quota} is in use: the next comes free at {when}"
    return f"no daemon that serves it holds a permit{quota}: they are cooling, or others hold them"


def _silent(view: LaneView) -> Cause:
    said = (f"{daemon.worker} has not answered for {span(daemon.silent_s)}" for daemon in view.silent)
    return Cause(Because.SILENT, ", ".join(said))


# --- it runs --------------------------------------------------------------------------------------------


def _pace(view: LaneView, runs: list[DaemonView], others: list[DaemonView]) -> tuple[State, list[Cause]]:
    said: list[Cause] = []
    waiting = view.queues.ready or view.held
    if not waiting and not view.in_flight:
        state = State.IDLE
        due = Cause(Because.IDLE, "nothing waits")
        said.append(due if not view.queues.delayed else Cause(Because.NOT_DUE, "what waits is not due yet"))
    else:
        state = State.RUNNING
        said += _bound(view, runs)
    if others and view.budget is None:
        said += [_state(view, name) for name in sorted({daemon.state for daemon in others})]
    elif others:
        # A daemon without a permit beside one that has some is how a small quota works.
        odd = {daemon.state for daemon in others} - {Standing.NO_PERMIT.value}
        said += [_state(view, name) for name in sorted(odd)]
    return state, said


def _bound(view: LaneView, runs: list[DaemonView]) -> Iterator[Cause]:
    """What keeps it from running faster."""
    effective = view.effective_per_s
    if any(daemon.state == Standing.SLOWED for daemon in runs):
        yield _state(view, Standing.SLOWED)
    elif effective and view.used_per_s >= 0.9 * effective:
        yield Cause(Because.AT_QUOTA, "at its quota")
    elif view.in_flight >= view.slots:
        yield Cause(Because.BUSY, f"all {view.slots} handlers are busy")
    else:
        yield Cause(Because.RUNNING, "running")


def _limit(one: Control, now: datetime) -> str:
    until = f" until {moment(one.until, now)}" if one.until else ""
    what = f"{one.amount} per {one.period_s:g} s" if one.kind is Kind.QUOTA else f"{one.amount} at once"
    whose = f"budget {one.name}" if one.target is Target.BUDGET else "each daemon"
    return f"lowered by {one.actor} to {what} ({whose}){until}: {one.reason}"
