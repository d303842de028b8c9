"""How fast lanes go, for a forecast: from what is configured, asked for, reported and measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from acklast.cli.lane_view import LaneView
from acklast.config import Config
from acklast.config.fair import parse_fair_by
from acklast.forecast import LanePace


@dataclass(frozen=True, slots=True)
class Paces:
    """What a forecast goes by, and what is to be said of it."""

    lanes: Mapping[str, LanePace]
    budgets: Mapping[str, float]
    """Starts a second, as the quota in force has it."""
    notes: tuple[str, ...]


def concerned(config: Config, lane: str) -> list[str]:
    """The lane, and those that share its budget."""
    budget = config.lanes[lane].budget
    return [name for name, one in config.lanes.items() if name == lane or (budget and one.budget == budget)]


def paces(config: Config, views: Iterable[LaneView]) -> Paces:
    """How fast these lanes go. Pure."""
    lanes: dict[str, LanePace] = {}
    budgets: dict[str, float] = {}
    notes: list[str] = []
    for view in views:
        lanes[view.lane], said = _lane(config, view)
        notes += [f"lane {view.lane}: {text}" for text in said]
        if view.budget is not None and view.in_force is not None:
            budgets[view.budget] = view.in_force.count / view.in_force.period_s
    return Paces(lanes, budgets, tuple(notes))


def _lane(config: Config, view: LaneView) -> tuple[LanePace, list[str]]:
    notes = []
    if not view.daemons:
        notes.append("no daemon serves it now; reckoned as if one did")
    most = _measured(view)
    if most is not None:
        notes.append(f"all {view.slots} handlers are busy: reckoned at the {most:.3g}/s of the last seconds")
    if most is None and view.budget is None:
        notes.append("it has no budget and none of its work was measured: its pace is not known")
    opens = _opens_s(view)
    if opens is None:
        notes.append("it is paused until somebody resumes it")
    settings = config.lanes[view.lane]
    turns = settings.fair_by == parse_fair_by("run")
    return LanePace(view.budget, settings.weight, most, opens, turns), notes


def _measured(view: LaneView) -> float | None:
    """Starts a second where the handlers are what bounds it, or nothing else is known."""
    busy = view.slots > 0 and view.in_flight >= view.slots
    return view.used_per_s if view.used_per_s > 0 and (busy or view.budget is None) else None


def _opens_s(view: LaneView) -> float | None:
    ends: list[datetime] = []
    if view.paused is not None:
        if view.paused.until is None:
            return None
        ends.append(view.paused.until)
    if view.quiet is not None:
        ends.append(view.quiet.until)
    return max(0.0, *((end - view.now).total_seconds() for end in ends), 0.0)
