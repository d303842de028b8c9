"""One lane as ``acklast lanes`` shows it: what is configured, asked for, reported and seen, put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from acklast.config import Config
from acklast.config.quota import Quota
from acklast.lane_queues import Queues
from acklast.ledger.controls import Control, Kind, Target
from acklast.ledger.standing import DaemonView, Pause, Standing
from acklast.pacing.controls import Controls


@dataclass(frozen=True, slots=True)
class LaneView:
    """Everything that is known of one lane at one moment."""

    lane: str
    budget: str | None
    configured: Quota | None
    """What of the budget's quota is ours by the configuration of this command; None without a budget."""
    in_force: Quota | None
    """The same, after what operators ask."""
    concurrency: int | None
    """Handlers at once in each daemon, by this configuration; None for a lane that is not in it."""
    daemons: tuple[DaemonView, ...]
    silent: tuple[DaemonView, ...]
    queues: Queues
    paused: Control | None
    """By an operator; the lane itself, or its budget."""
    quiet: Pause | None
    """By the downstream."""
    limits: tuple[Control, ...]
    """What operators have lowered."""
    now: datetime
    changed: int

    @property
    def effective_per_s(self) -> float | None:
        """What the whole fleet may start of the lane's budget, as things are; None without a budget."""
        if self.in_force is None:
            return None
        if self.paused is not None or self.quiet is not None:
            return 0.0
        told = sum(daemon.rate_per_s or 0.0 for daemon in self.daemons)
        return min(told, self.in_force.count / self.in_force.period_s)

    @property
    def used_per_s(self) -> float:
        """Starts of this lane a second, over the last period or a few seconds."""
        return sum(daemon.started / daemon.window_s for daemon in self.daemons)

    @property
    def in_flight(self) -> int:
        return sum(daemon.in_flight for daemon in self.daemons)

    @property
    def held(self) -> int:
        """Jobs that daemons were given and have not started."""
        return sum(daemon.held for daemon in self.daemons)

    @property
    def waiting(self) -> int | None:
        """Jobs that have not started, wherever they are; None where the broker's could not be seen."""
        if self.queues.ready is None or self.queues.delayed is None:
            return None
        return self.queues.ready + self.queues.delayed + self.held

    @property
    def slots(self) -> int:
        return sum(daemon.concurrency for daemon in self.daemons)


def views(config: Config, standing: Standing, queues: dict[str, Queues]) -> list[LaneView]:
    """Every lane that is configured here, and those that only others serve."""
    return [view_of(config, standing, lane, queues[lane]) for lane in lanes_of(config, standing)]


def lanes_of(config: Config, standing: Standing) -> list[str]:
    asked = {one.name for one in standing.controls if one.target is Target.LANE}
    return [*config.lanes, *sorted((standing.lanes.keys() | asked) - config.lanes.keys())]


def view_of(config: Config, standing: Standing, lane: str, queues: Queues) -> LaneView:
    """One lane, whether it is configured here or not."""
    settings = config.lanes.get(lane)
    budget = settings.budget if settings else None
    configured = config.budgets[budget].ours() if budget else None
    controls = Controls(standing.controls)
    reported = standing.lanes.get(lane, ())
    return LaneView(
        lane=lane,
        budget=budget,
        configured=configured,
        in_force=controls.quota(budget, configured, 0.0) if budget and configured else None,
        concurrency=settings.concurrency if settings else None,
        daemons=tuple(daemon for daemon in reported if daemon.live),
        silent=tuple(daemon for daemon in reported if not daemon.live),
        queues=queues,
        paused=controls.pause(lane, budget, 0.0),
        quiet=standing.pauses.get(budget) if budget else None,
        limits=tuple(_limits(standing.controls, lane, budget)),
        now=standing.now,
        changed=standing.changed,
    )


def _limits(controls: Iterable[Control], lane: str, budget: str | None) -> Iterator[Control]:
    for one in controls:
        mine = one.name == (lane if one.target is Target.LANE else budget)
        if mine and one.kind is not Kind.PAUSE:
            yield one


def document(view: LaneView, state: str, why: str) -> dict[str, Any]:
    """A lane as ``--json`` gives it."""
    return {
        "lane": view.lane,
        "budget": view.budget,
        "state": state,
        "why": why,
        "quota": str(view.configured) if view.configured else None,
        "quota_in_force": str(view.in_force) if view.in_force else None,
        "effective_per_s": view.effective_per_s,
        "used_per_s": round(view.used_per_s, 3),
        "in_flight": view.in_flight,
        "waiting": view.waiting,
        "ready": view.queues.ready,
        "delayed": view.queues.delayed,
        "held": view.held,
        "missing": view.queues.missing,
        "unseen": view.queues.unseen,
        "concurrency": view.concurrency,
        "paused": view.paused,
        "quiet": view.quiet,
        "limits": view.limits,
        "daemons": view.daemons,
        "silent": view.silent,
    }
