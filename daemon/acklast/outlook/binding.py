"""What keeps a lane from being done sooner, with the figures that show it. Pure.

The first that is true is named: what stands still altogether before what is slow, and of what is slow the
scarcest first. To change anything else brings nothing as long as that one holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final

from acklast.outlook.facts import LaneFacts, Open
from acklast.reporter import Standing


class Constraint(StrEnum):
    """What binds a lane."""

    PAUSED = "paused"
    """An operator has paused it, or its downstream asked for quiet."""
    NO_WORKER = "no_worker"
    """No daemon serves it, or none that can."""
    DOWNSTREAM_ERRORS = "downstream_errors"
    """Most of what is tried fails, or a breaker is open."""
    BUDGET = "budget"
    """Its budget's permits are in use all the time."""
    CONCURRENCY = "concurrency"
    """Every handler's slot is in use, and there are permits for more."""
    HANDLER_TIME = "handler_time"
    """How long a handler takes: it takes longer than it did, or more at once would bring nothing."""
    NOT_DUE = "not_due"
    """All that is open waits for its time."""
    ARRIVALS = "arrivals"
    """Nothing waits: it keeps up with what comes."""
    LEDGER = "ledger"
    """Slots and permits are free and jobs wait: it is as fast as broker, ledger and machine let it be."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A lane's constraint. ``said`` is the evidence in words, ``figures`` in numbers."""

    constraint: Constraint
    said: str
    figures: Mapping[str, float | None] = field(default_factory=dict)


_FULL: Final = 0.95
_NEAR: Final = 0.7
"""So much of a limit in use holds a lane back where nothing else does."""
_WITH_PERMIT: Final = 1.5
"""Starts beyond that part of a budget took none of it: jobs that were over before they began, such as those
whose deadline had passed.
"""
_RECENT: Final = 3
_ENOUGH: Final = 8
"""Attempts, before anything is said of how many fail."""
_LONGER: Final = 1.5
_CANNOT: Final = (Standing.LEASE_LOST, Standing.NOT_CONSUMING)
_SLOWED: Final = (Standing.NO_PERMIT, Standing.SLOWED)


def binding(
    lane: LaneFacts, of_budget: Sequence[LaneFacts], budget_per_s: float | None, open_: Sequence[Open]
) -> Binding:
    """``of_budget``: all lanes of its budget, itself among them; ``open_``: what is open in it."""
    jobs = sum(one.jobs for one in open_)
    if not jobs:
        return Binding(Constraint.ARRIVALS, "nothing is open")
    found = _still(lane) or _failing(lane)
    if found is not None:
        return found
    waiting = max(0, sum(one.waiting for one in open_) - lane.overdue)
    begun = max(lane.in_flight, sum(one.in_flight for one in open_))
    ready = max(0, jobs - waiting - begun)
    if not ready and waiting and not begun:
        return Binding(Constraint.NOT_DUE, f"all {waiting:,} wait for their time", {"waiting": waiting})
    return _slow(lane, _Budget.of(of_budget, budget_per_s), ready)


# --- it stands still --------------------------------------------------------------------------------------


def _still(lane: LaneFacts) -> Binding | None:
    if (hold := lane.paused) is not None:
        return Binding(Constraint.PAUSED, hold.said, {"left_s": hold.left_s})
    if not lane.daemons:
        return Binding(Constraint.NO_WORKER, "no daemon serves it", {"daemons": 0})
    if all(one.state in _CANNOT for one in lane.daemons):
        states = ", ".join(sorted({one.state for one in lane.daemons}))
        return Binding(
            Constraint.NO_WORKER,
            f"none of its {len(lane.daemons)} daemons can start anything: {states}",
            {"daemons": len(lane.daemons)},
        )
    broken = [one for one in lane.daemons if one.state == Standing.BREAKER]
    if 2 * len(broken) >= len(lane.daemons):
        left = min((one.left_s for one in broken if one.left_s is not None), default=None)
        when = "" if left is None else f", probed in {left:.0f} s"
        said = f"the breaker is open in {len(broken)} of {len(lane.daemons)} daemons{when}"
        return Binding(Constraint.DOWNSTREAM_ERRORS, said, {"breakers_open": len(broken), "probe_in_s": left})
    if (hold := lane.quiet) is not None:
        return Binding(Constraint.PAUSED, hold.said, {"left_s": hold.left_s})
    return None


def _failing(lane: LaneFacts) -> Binding | None:
    """Of the last whole minutes; what is in flight has not failed."""
    lately = list(islice((one for one in lane.minutes if one.length_s >= 60), _RECENT))
    started = sum(one.started for one in lately)
    ended = sum(one.ended for one in lately)
    over = started - lane.in_flight
    failed = over - ended
    if over < _ENOUGH or failed <= over / 2:
        return None
    return Binding(
        Constraint.DOWNSTREAM_ERRORS,
        f"{failed:,} of {over:,} attempts of the last {len(lately)} minutes did not end their job",
        {"attempts": over, "failed": failed},
    )


# --- it is slow -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Budget:
    """A budget as all of its lanes use it."""

    quota_per_s: float
    effective_per_s: float
    used_per_s: float
    permits: int
    busy: int

    @classmethod
    def of(cls, lanes: Sequence[LaneFacts], quota_per_s: float | None) -> _Budget | None:
        if quota_per_s is None:
            return None
        # Each lane of a daemon reports the same permits.
        held = max((sum(one.permits for one in lane.daemons) for lane in lanes), default=0)
        busy = max((sum(one.busy for one in lane.daemons) for lane in lanes), default=0)
        effective = min(quota_per_s, effective_per_s(lanes))
        return cls(quota_per_s, effective, sum(lane.starts_per_s for lane in lanes), held, busy)

    @property
    def share(self) -> float:
        """The part of it that is in use."""
        permits = self.busy / self.permits if self.permits else 0.0
        used = self.used_per_s / self.effective_per_s if self.effective_per_s else 0.0
        return max(permits, used if used <= _WITH_PERMIT else 0.0)

    @property
    def free_per_s(self) -> float:
        return max(0.0, self.effective_per_s - self.used_per_s)


def _slow(lane: LaneFacts, budget: _Budget | None, ready: int) -> Binding:
    if not ready:
        return _nothing_waits(lane)
    of_slots = lane.in_flight / lane.slots if lane.slots else 0.0
    of_budget = budget.share if budget else 0.0
    if budget and (of_budget >= max(_NEAR, of_slots) or of_budget >= _FULL):
        return _budget(budget)
    if of_slots >= _NEAR:
        return _slots(lane, budget)
    if budget and all(one.state in _SLOWED for one in lane.daemons):
        return _budget(budget)
    said = f"{ready:,} wait, and {lane.in_flight} of {lane.slots} slots are in use"
    return Binding(
        Constraint.LEDGER, said, {"ready": ready, "in_flight": lane.in_flight, "slots": lane.slots}
    )


def _nothing_waits(lane: LaneFacts) -> Binding:
    handler_s = handler_time_s(lane)
    if lane.in_flight >= _FULL * lane.slots:
        said = f"nothing waits for a slot, and {lane.in_flight} of {lane.slots} are in use"
        return Binding(Constraint.HANDLER_TIME, said + _each(handler_s), {"handler_s": handler_s})
    said = f"nothing waits, and {lane.in_flight} of {lane.slots} slots are in use"
    return Binding(Constraint.ARRIVALS, said + _each(handler_s), {"handler_s": handler_s})


def _budget(budget: _Budget) -> Binding:
    said = (
        f"{budget.used_per_s:.3g} starts/s of {budget.effective_per_s:.3g}/s;"
        f" {budget.busy} of {budget.permits} permits in use"
    )
    if budget.effective_per_s < 0.999 * budget.quota_per_s:
        said += f"; {budget.quota_per_s:.3g}/s are in force"
    figures = {
        "used_per_s": budget.used_per_s,
        "effective_per_s": budget.effective_per_s,
        "quota_per_s": budget.quota_per_s,
        "permits": budget.permits,
        "permits_busy": budget.busy,
    }
    return Binding(Constraint.BUDGET, said, figures)


def effective_per_s(of_budget: Sequence[LaneFacts]) -> float:
    """What the daemons say they may start of a budget; it is the same word in each of its lanes."""
    told = (sum(one.rate_per_s or 0.0 for one in lane.daemons) for lane in of_budget)
    return max(told, default=0.0)


def _slots(lane: LaneFacts, budget: _Budget | None) -> Binding:
    handler_s, before_s = handler_time_s(lane), _earlier_s(lane)
    more = 1 / handler_s if handler_s else None
    figures = {"in_flight": lane.in_flight, "slots": lane.slots, "handler_s": handler_s}
    figures |= {"handler_before_s": before_s, "more_per_slot_per_s": more}
    busy = f"{lane.in_flight} of {lane.slots} slots are in use{_each(handler_s)}"
    if handler_s and before_s and handler_s >= _LONGER * before_s:
        return Binding(Constraint.HANDLER_TIME, f"{busy}, {_s(before_s)} before", figures)
    lowered = lane.slots < lane.configured_slots
    if lane.slots == 1 and not lowered:
        return Binding(Constraint.HANDLER_TIME, f"{busy}: one job after the other", figures)
    if budget is not None:
        busy += f"; {budget.free_per_s:.3g} starts/s of the budget are free"
        figures["free_per_s"] = budget.free_per_s
    if more:
        busy += f"; one slot more would give {more:.3g}/s"
    if lowered:
        busy += f"; an operator lowered them from {lane.configured_slots}"
    return Binding(Constraint.CONCURRENCY, busy, figures)


def _each(handler_s: float | None) -> str:
    return "" if handler_s is None else f", {_s(handler_s)} each"


def _s(seconds: float) -> str:
    return f"{seconds:.3g} s"


def handler_time_s(lane: LaneFacts) -> float | None:
    """How long a handler takes now: what is in flight over what starts, or started in the last minute."""
    recent = next((one for one in lane.minutes if one.length_s >= 60 and one.started), None)
    per_s = lane.starts_per_s or (recent.started / recent.worked_s if recent and recent.worked_s else 0.0)
    return lane.in_flight / per_s if per_s and lane.in_flight else None


def _earlier_s(lane: LaneFacts) -> float | None:
    """How long a handler took at most in the hour before: its slots over what started in a usual minute."""
    rates = sorted(
        one.started / one.worked_s for one in lane.minutes[_RECENT:] if one.started and one.worked_s
    )
    return lane.slots / rates[len(rates) // 2] if rates else None
