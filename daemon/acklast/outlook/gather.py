"""What a forecast goes by, out of what the ledger, the daemons' reports, the broker and the configuration
say. ``facts_of`` is pure; ``read_outlook`` reads the first two and asks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from acklast.config import Config
from acklast.config.fair import parse_fair_by
from acklast.errors import LedgerUnavailable
from acklast.ledger.api import State
from acklast.ledger.backlog import OPEN, Asked, Backlog, Pace, read_backlog
from acklast.ledger.controls import Control, Target
from acklast.ledger.standing import DaemonView, Pause, Standing, read_standing
from acklast.outlook.cast import Outlook, outlook
from acklast.outlook.facts import Daemon, Facts, Hold, LaneFacts, Minute, Open
from acklast.outlook.working import Span, Times, joined, minutes_of
from acklast.pacing.controls import Controls
from acklast.policy import Policy

_POLICY: Final = Policy()
_MINUTE: Final = timedelta(minutes=1)
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


async def read_outlook(operations: Asked, config: Config, broker: Mapping[str, int] | None = None) -> Outlook:
    """Read what there is, and what is to be expected by it; ``broker`` as ``facts_of`` has it.

    Raises:
        LedgerUnavailable: the ledger does not answer, or its jobs are not counted yet.
    """
    backlog, standing = counted(await read_backlog(operations)), await read_standing(operations)
    return outlook(facts_of(config, backlog, standing, broker))


def counted(backlog: Backlog) -> Backlog:
    """The same, where everything is in it.

    Raises:
        LedgerUnavailable: it is not. Of a part of what is to be done no finish can be told.
    """
    if not backlog.complete:
        raise LedgerUnavailable(
            "the jobs from before the ledger counted any are not counted yet",
            "A running daemon does it by itself: see that one runs, and try again in a minute",
        )
    return backlog


def facts_of(
    config: Config, backlog: Backlog, standing: Standing, broker: Mapping[str, int] | None = None
) -> Facts:
    """Everything that is known, at the backlog's moment.

    ``broker``: messages in each lane's queues, those that wait for their time included. What is in them
    beyond the ledger's open jobs are jobs that no daemon has taken in yet; without it they count as none.
    """
    controls = Controls(standing.controls)
    budgets = {}
    for name, budget in config.budgets.items():
        quota = controls.quota(name, budget.ours(), 0.0)
        budgets[name] = quota.count / quota.period_s
    open_, seen, gone = _open(backlog), _seen(backlog), _gone(backlog.at, standing)
    lanes = {
        lane: _lane(config, lane, seen.get(lane, _Seen()), backlog.at, standing, controls, gone)
        for lane in dict.fromkeys([*config.lanes, *sorted(standing.lanes), *(one.lane for one in open_)])
    }
    return Facts(
        at=backlog.at,
        lanes=lanes,
        budgets=budgets,
        open=[*open_, *_unknown(open_, lanes, standing, broker or {})],
        deadlines={one.run: one.deadline for one in backlog.runs if one.deadline is not None},
    )


# --- what is open -----------------------------------------------------------------------------------------


def _open(backlog: Backlog) -> list[Open]:
    """By lane and run, in each lane the oldest run first; nothing of a run that is cancelled."""
    runs = {one.run: one for one in backlog.runs}
    counts: dict[tuple[str, str | None], dict[State, int]] = {}
    for depth in backlog.depths:
        if depth.state in OPEN and not (depth.run in runs and runs[depth.run].cancelled):
            states = counts.setdefault((depth.lane, depth.run), {})
            states[depth.state] = states.get(depth.state, 0) + depth.jobs

    def came(key: tuple[str, str | None]) -> tuple[datetime, str]:
        known = runs.get(key[1]) if key[1] is not None else None
        return (known.created_at if known and known.created_at else _EARLIEST), key[1] or ""

    return [
        Open(
            *(lane, run),
            jobs=sum(states.values()),
            waiting=states.get(State.WAITING, 0),
            in_flight=states.get(State.CLAIMED, 0),
        )
        for (lane, run), states in sorted(counts.items(), key=lambda one: came(one[0]))
    ]


def _unknown(
    open_: Sequence[Open], lanes: Iterable[str], standing: Standing, broker: Mapping[str, int]
) -> Iterator[Open]:
    """Messages of which the ledger has no job yet: they came last."""
    known = Counter[str]()
    for one in open_:
        known[one.lane] += one.jobs
    for lane in lanes:
        given = sum(view.held + view.in_flight for view in standing.lanes.get(lane, ()) if view.live)
        more = broker.get(lane, 0) + given - known[lane]
        if lane in broker and more > 0:
            yield Open(lane, None, more)


# --- lanes ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Seen:
    """What a backlog has of one lane: there may be thousands of rows, so they are sorted once."""

    pace: list[Pace] = field(default_factory=list)
    since: list[datetime] = field(default_factory=list)
    """Since when its oldest jobs may start."""
    due: int = 0
    """Jobs that may start and have not; ``queued`` of its jobs are in that state."""
    queued: int = 0
    came: set[datetime] = field(default_factory=set)
    """When the runs came of which something is open in it."""


def _seen(backlog: Backlog) -> dict[str, _Seen]:
    found: dict[str, _Seen] = {}
    came = {one.run: one.created_at for one in backlog.runs}
    for pace in backlog.pace:
        found.setdefault(pace.lane, _Seen()).pace.append(pace)
    for oldest in backlog.oldest:
        mine = found.setdefault(oldest.lane, _Seen())
        mine.since.append(oldest.since)
        mine.due += oldest.jobs
    for depth in backlog.depths:
        if depth.state is State.QUEUED:
            found.setdefault(depth.lane, _Seen()).queued += depth.jobs
        at = came.get(depth.run) if depth.run is not None and depth.state in OPEN else None
        if at is not None:
            found.setdefault(depth.lane, _Seen()).came.add(at)
    return found


def _gone(at: datetime, standing: Standing) -> list[Span]:
    """When the daemons lived whose sessions have ended."""
    return joined(_span(one.begin, one.end, at) for one in standing.sessions if one.end)


def _lane(
    config: Config,
    lane: str,
    seen: _Seen,
    at: datetime,
    standing: Standing,
    controls: Controls,
    gone: Sequence[Span],
) -> LaneFacts:
    settings = config.lanes.get(lane)
    budget = settings.budget if settings else None
    live = [one for one in standing.lanes.get(lane, ()) if one.live]
    slots = sum(one.concurrency for one in live)
    quiet = standing.pauses.get(budget) if budget is not None else None
    paused = controls.pause(lane, budget, 0.0)
    times = _times(lane, budget, seen, at, standing, paused, gone)
    return LaneFacts(
        budget=budget,
        weight=settings.weight if settings else 1.0,
        in_turns=settings is not None and settings.fair_by == parse_fair_by("run"),
        daemons=tuple(map(_daemon, live)),
        minutes=_minutes(seen.pace, at, times),
        paused=None if paused is None else Hold(_said(paused), paused.left_s),
        quiet=_quiet(quiet, at) if quiet is not None else None,
        configured_slots=max(slots, settings.concurrency * len(live)) if settings else slots,
        overdue=max(0, seen.due - seen.queued),
        retry_s=(settings.backoff_base_s if settings else _POLICY.backoff_base_s) / 2,  # jitter halves it
        retry_cap_s=(settings.backoff_cap_s if settings else _POLICY.backoff_cap_s) / 2,
    )


def _daemon(view: DaemonView) -> Daemon:
    left_s = None if view.until is None else max(0.0, (view.until - view.at).total_seconds())
    return Daemon(
        slots=view.concurrency,
        in_flight=view.in_flight,
        started=view.started,
        window_s=view.window_s,
        state=view.state,
        permits=view.permits or 0,
        busy=view.busy or 0,
        rate_per_s=view.rate_per_s,
        left_s=left_s,
    )


def _said(pause: Control) -> str:
    what = f"its budget {pause.name} was paused" if pause.target is Target.BUDGET else "paused"
    until = f"until {_clock(pause.until)}" if pause.until else "until it is resumed"
    return f"{what} by {pause.actor} {until}: {pause.reason}"


def _quiet(pause: Pause, now: datetime) -> Hold:
    why = f": {pause.reason}" if pause.reason else ""
    left_s = max(0.0, (pause.until - now).total_seconds())
    return Hold(f"the downstream asked for quiet until {_clock(pause.until)}{why}", left_s)


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def _minutes(pace: Iterable[Pace], now: datetime, times: Times) -> list[Minute]:
    """The newest first, back to the first one in which anything happened."""
    ended, started = Counter[datetime](), Counter[datetime]()
    for one in pace:
        ended[one.minute] += one.done + one.dead
        started[one.minute] += one.claimed
    this = now.replace(second=0, microsecond=0)
    begun = [minute for minute in ended if ended[minute] or started[minute]]
    count = 0 if not begun else round((this - min(begun)) / _MINUTE) + 1
    running_s = max(1.0, (now - this).total_seconds())
    moments = [this - number * _MINUTE for number in range(count)]
    return minutes_of([(ended[at], started[at]) for at in moments], running_s, times)


def _times(
    lane: str,
    budget: str | None,
    seen: _Seen,
    at: datetime,
    standing: Standing,
    paused: Control | None,
    gone: Sequence[Span],
) -> Times:
    """When somebody was there, and when something was to be done, as far as it is known."""
    live = {one.session for one in standing.lanes.get(lane, ()) if one.live}
    here = [_span(one.begin, None, at) for one in standing.sessions if not one.end and one.session in live]
    stops = [
        _span(one.begin, one.end, at)
        for one in standing.stops
        if (one.target, one.name) in ((Target.LANE, lane), (Target.BUDGET, budget))
    ]
    return Times(
        # Which lanes a session that has ended served is not known: it counts for every one.
        here=[*gone, *here],
        stops=stops if paused is None else [*stops, _span(paused.at, None, at)],
        busy_s=max(((at - one).total_seconds() for one in seen.since), default=0.0),
        came=[(one - at).total_seconds() for one in seen.came],
    )


def _span(begin: datetime | None, end: datetime | None, now: datetime) -> Span:
    begin_s = float("-inf") if begin is None else (begin - now).total_seconds()
    return Span(begin_s, 0.0 if end is None else min(0.0, (end - now).total_seconds()))
