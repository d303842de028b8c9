"""Drains in virtual time: what a fleet does with a backlog while the world changes, half a second each step.

A job is started when a slot and a permit are there, takes a while, and is done, or fails and waits for its
next attempt. What a forecaster may see of it (``facts``) is what the ledger and the daemons' reports have;
what it may not see, when a lane is through with a run and what held it back, is ``ends`` and
``true_constraint``.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

from acklast.outlook.binding import Constraint
from acklast.outlook.facts import Daemon, Facts, Hold, LaneFacts, Minute, Open
from acklast.outlook.working import Span, Times, minutes_of
from acklast.reporter import Standing

TICK_S: Final = 0.5
EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
_WINDOW_S: Final = 5.0
_MINUTES: Final = 60
_DAEMONS: Final = 2
_ATTEMPTS: Final = 8
Over = Callable[[float], float]
"""Something that changes with the time."""


@dataclass(frozen=True, slots=True)
class LanePlan:
    """One lane. ``slots``, ``handler_s`` and ``fails`` (0 to 1) change with the time.

    ``arrivals``: when which run gets how many jobs.
    """

    name: str
    slots: Over
    handler_s: Over
    fails: Over
    arrivals: Sequence[tuple[float, str, int]]
    usual_handler_s: float
    retry_s: float = 5.0
    in_turns: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """A fleet. ``quota_per_s`` is the budget's, shared by all lanes; None without one.

    ``effective`` (0 to 1) is the part of it that is in force. ``quiet`` and ``paused`` are spans in which
    nothing starts: the downstream's wish, the operator's. In ``down`` every attempt fails. In ``absent`` no
    daemon lives; the spans do not overlap.
    """

    kind: str
    lanes: Sequence[LanePlan]
    quota_per_s: float | None
    effective: Over
    quiet: Sequence[tuple[float, float]] = ()
    paused: Sequence[tuple[float, float]] = ()
    down: Sequence[tuple[float, float]] = ()
    absent: Sequence[tuple[float, float]] = ()
    breaker: bool = False

    @property
    def period_s(self) -> float:
        """The quota's period: long enough for some calls in it."""
        return (
            60.0
            if self.quota_per_s is None or self.quota_per_s < 1
            else 10.0
            if self.quota_per_s < 5
            else 1.0
        )


def within(spans: Sequence[tuple[float, float]], at: float) -> float | None:
    """Seconds until the span is over that this moment lies in."""
    return next((end - at for begin, end in spans if begin <= at < end), None)


@dataclass(slots=True)
class _Lane:
    plan: LanePlan
    queues: dict[str, int] = field(default_factory=dict)
    """Of each run, in the order of their coming, jobs that may start."""
    retries: deque[str] = field(default_factory=deque)
    """Runs of the jobs that are due again: they come back behind what waits."""
    waits: list[tuple[float, int, str, int]] = field(default_factory=list)
    flying: list[tuple[float, int, str, int]] = field(default_factory=list)
    tries: dict[str, deque[int]] = field(default_factory=dict)
    ended: Counter[int] = field(default_factory=Counter)
    started: Counter[int] = field(default_factory=Counter)
    lately: deque[float] = field(default_factory=deque)
    why: deque[Constraint] = field(default_factory=lambda: deque(maxlen=int(30 / TICK_S)))
    open: Counter[str] = field(default_factory=Counter)
    ends: dict[str, float] = field(default_factory=dict)
    busy_since: float | None = None
    next_arrival: int = 0
    share: float = 0.0

    @property
    def ready(self) -> int:
        return sum(self.queues.values()) + len(self.retries)


class Fleet:
    """A world as it goes. Deterministic by its random numbers."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.now = 0.0
        self._random = random
        self._offset = random.uniform(0, 60)
        self._number = 0
        self._tokens = 0.0
        self.lanes = {plan.name: _Lane(plan) for plan in world.lanes}

    # --- going on -----------------------------------------------------------------------------------------

    def step(self) -> None:
        """Half a second more."""
        self.now += TICK_S
        for lane in self.lanes.values():
            self._arrive(lane)
            self._end(lane)
        self._start()

    def _arrive(self, lane: _Lane) -> None:
        arrivals = lane.plan.arrivals
        while lane.next_arrival < len(arrivals) and arrivals[lane.next_arrival][0] <= self.now:
            _, run, jobs = arrivals[lane.next_arrival]
            lane.next_arrival += 1
            lane.queues[run] = lane.queues.get(run, 0) + jobs
            lane.open[run] += jobs
        while lane.waits and lane.waits[0][0] <= self.now:
            _, _, run, attempt = heapq.heappop(lane.waits)
            lane.retries.append(run)
            lane.tries.setdefault(run, deque()).append(attempt)

    def _end(self, lane: _Lane) -> None:
        while lane.flying and lane.flying[0][0] <= self.now:
            _, _, run, attempt = heapq.heappop(lane.flying)
            down = within(self.world.down, self.now) is not None
            failed = down or self._random.random() < lane.plan.fails(self.now)
            if failed and attempt < _ATTEMPTS:
                cap_s = min(600.0, lane.plan.retry_s * 2**attempt)
                self._push(lane.waits, self._random.uniform(0.0, cap_s), run, attempt + 1)
                continue
            lane.ended[self._minute(self.now)] += 1
            lane.open[run] -= 1
            if not lane.open[run]:
                lane.ends[run] = self.now

    def _push(self, heap: list[tuple[float, int, str, int]], after_s: float, run: str, attempt: int) -> None:
        self._number += 1
        heapq.heappush(heap, (self.now + after_s, self._number, run, attempt))

    def _minute(self, at: float) -> int:
        return int((at + self._offset) // 60)

    def _closed(self) -> Constraint | None:
        if within(self.world.absent, self.now) is not None:
            return Constraint.NO_WORKER
        if within(self.world.paused, self.now) is not None or within(self.world.quiet, self.now) is not None:
            return Constraint.PAUSED
        if self.world.breaker and within(self.world.down, self.now) is not None:
            return Constraint.DOWNSTREAM_ERRORS
        return None

    def _start(self) -> None:
        closed = self._closed()
        rate = self.rate_per_s
        if rate is not None:
            self._tokens = min(max(1.0, rate), self._tokens + rate * TICK_S) if not closed else 0.0
        tokens = float("inf") if rate is None else self._tokens
        going = [lane for lane in self.lanes.values() if lane.ready]
        for lane in going:
            if lane.busy_since is None:  # who had nothing to do has saved up nothing
                lane.share = max(one.share for one in self.lanes.values())
        left = {lane.plan.name: self._room(lane) for lane in self.lanes.values()}
        while not closed and tokens >= 1 and going:
            lane = min(going, key=lambda one: one.share)
            if left[lane.plan.name] <= 0 or not lane.ready:
                going.remove(lane)
                continue
            self._start_one(lane)
            left[lane.plan.name] -= 1
            tokens -= 1
        if rate is not None:
            self._tokens = tokens
        for lane in self.lanes.values():
            lane.why.append(closed or self._why(lane, left[lane.plan.name]))
            if not lane.ready:
                lane.busy_since = None
            elif lane.busy_since is None:
                lane.busy_since = self.now

    def _room(self, lane: _Lane) -> float:
        return int(lane.plan.slots(self.now)) - len(lane.flying)

    def _start_one(self, lane: _Lane) -> None:
        run, attempt = self._next(lane)
        mean_s = lane.plan.handler_s(self.now)
        self._push(lane.flying, max(0.3, self._random.gammavariate(4.0, mean_s / 4.0)), run, attempt)
        lane.share += 1
        lane.started[self._minute(self.now)] += 1
        lane.lately.append(self.now)

    def _next(self, lane: _Lane) -> tuple[str, int]:
        # A retry comes back at the end of the queue: with many before it, mostly what is new goes.
        fresh = [run for run, jobs in lane.queues.items() if jobs]
        if lane.retries and (not fresh or self._random.random() < len(lane.retries) / lane.ready + 0.1):
            run = lane.retries.popleft()
            return run, lane.tries[run].popleft()
        run = self._random.choice(fresh) if lane.plan.in_turns else fresh[0]
        lane.queues[run] -= 1
        return run, 1

    def _why(self, lane: _Lane, room: float) -> Constraint:
        down = within(self.world.down, self.now) is not None
        if down or lane.plan.fails(self.now) > 0.5:
            return Constraint.DOWNSTREAM_ERRORS
        if not lane.ready:
            return Constraint.HANDLER_TIME if lane.flying else Constraint.NOT_DUE
        if room <= 0:
            longer = lane.plan.handler_s(self.now) >= 1.5 * lane.plan.usual_handler_s
            alone = lane.plan.slots(self.now) <= 1
            return Constraint.HANDLER_TIME if longer or alone else Constraint.CONCURRENCY
        return Constraint.BUDGET

    @property
    def rate_per_s(self) -> float | None:
        quota = self.world.quota_per_s
        return None if quota is None else quota * self.world.effective(self.now)

    # --- looking ------------------------------------------------------------------------------------------

    def left(self, lane: str, run: str) -> int:
        """Open jobs of a run."""
        return self.lanes[lane].open[run]

    def true_constraint(self, lane: str) -> Constraint:
        """What held it back for most of the last half minute."""
        return Counter(self.lanes[lane].why).most_common(1)[0][0]

    def facts(self) -> Facts:
        """What can be known at this moment."""
        quota = self.world.quota_per_s
        return Facts(
            at=EPOCH + timedelta(seconds=self.now),
            lanes={name: self._lane(lane) for name, lane in self.lanes.items()},
            budgets={} if quota is None else {"api": quota},
            open=[one for name, lane in self.lanes.items() for one in self._open(name, lane)],
        )

    def _open(self, name: str, lane: _Lane) -> list[Open]:
        waiting = Counter(run for _, _, run, _ in lane.waits)
        flying = Counter(run for _, _, run, _ in lane.flying)
        return [Open(name, run, jobs, waiting[run], flying[run]) for run, jobs in lane.open.items() if jobs]

    def _lane(self, lane: _Lane) -> LaneFacts:
        quiet, paused = within(self.world.quiet, self.now), within(self.world.paused, self.now)
        return LaneFacts(
            budget=None if self.world.quota_per_s is None else "api",
            in_turns=lane.plan.in_turns,
            daemons=self._daemons(lane),
            minutes=self._minutes(lane),
            paused=None if paused is None else Hold("paused", paused),
            quiet=None if quiet is None else Hold("asked for quiet", quiet),
            configured_slots=int(lane.plan.slots(0.0)),
            retry_s=lane.plan.retry_s,
            retry_cap_s=300.0,
        )

    def _minutes(self, lane: _Lane) -> list[Minute]:
        this = self._minute(self.now)
        known = [minute for minute in (*lane.ended, *lane.started) if minute > this - _MINUTES]
        agos = range(this - min(known, default=this + 1) + 1)
        counts = [(lane.ended[this - ago], lane.started[this - ago]) for ago in agos]
        return minutes_of(counts, (self.now + self._offset) % 60 or 60.0, self._times(lane))

    def _times(self, lane: _Lane) -> Times:
        def past(spans: Sequence[tuple[float, float]]) -> list[Span]:
            return [
                Span(begin - self.now, min(end, self.now) - self.now)
                for begin, end in spans
                if begin < self.now
            ]

        begins = [0.0, *(end for _, end in self.world.absent)]
        ends = [*(begin for begin, _ in self.world.absent), float("inf")]
        return Times(
            here=past(list(zip(begins, ends, strict=True))),
            stops=past(self.world.paused),
            busy_s=0.0 if lane.busy_since is None else self.now - lane.busy_since,
        )

    def _daemons(self, lane: _Lane) -> tuple[Daemon, ...]:
        if within(self.world.absent, self.now) is not None:
            return ()
        rate, quota = self.rate_per_s, self.world.quota_per_s
        period_s = self.world.period_s
        window_s = _WINDOW_S if quota is None else max(_WINDOW_S, period_s)
        while lane.lately and lane.lately[0] <= self.now - 60:
            lane.lately.popleft()
        started = sum(at > self.now - window_s for at in lane.lately)
        out = sum(at > self.now - period_s for one in self.lanes.values() for at in one.lately)
        permits = 0 if quota is None else round(quota * period_s)
        probe = within(self.world.down, self.now) if self._closed() is Constraint.DOWNSTREAM_ERRORS else None
        return tuple(
            Daemon(
                slots=_part(int(lane.plan.slots(self.now)), number),
                in_flight=_part(len(lane.flying), number),
                started=_part(started, number),
                window_s=window_s,
                state=self._state(),
                permits=_part(permits, number),
                busy=_part(min(permits, out), number),
                rate_per_s=None if rate is None else rate / _DAEMONS,
                left_s=None if probe is None else min(5.0, probe),
            )
            for number in range(_DAEMONS)
        )

    def _state(self) -> str:
        match self._closed():
            case Constraint.PAUSED:
                paused = within(self.world.paused, self.now) is not None
                return Standing.PAUSED if paused else Standing.QUIET
            case Constraint.DOWNSTREAM_ERRORS:
                return Standing.BREAKER
            case _:
                return Standing.OPEN if self.world.effective(self.now) >= 0.999 else Standing.SLOWED


def _part(whole: int, number: int) -> int:
    return whole // _DAEMONS + (number < whole % _DAEMONS)


# --- what changes -----------------------------------------------------------------------------------------


def steady(value: float) -> Over:
    return lambda _: value


def steps(values: Mapping[float, float]) -> Over:
    """From each moment on its value."""
    moments = sorted(values)

    def at(now: float) -> float:
        return values[max((moment for moment in moments if moment <= now), default=moments[0])]

    return at


def ramp(first: float, last: float, begin_s: float, end_s: float) -> Over:
    def at(now: float) -> float:
        part = min(1.0, max(0.0, (now - begin_s) / (end_s - begin_s)))
        return first + (last - first) * part

    return at


def waves(mean: float, part: float, period_s: float) -> Over:
    """Up and down by a part of the mean, in straight lines."""

    def at(now: float) -> float:
        phase = (now / period_s) % 1.0
        return mean * (1 + part * (4 * abs(phase - 0.5) - 1))

    return at
