"""Has this daemon follow what operators ask, and tells the ledger how its lanes stand.

Both are one task beside the work: it reads what is in force when the daemon starts, when a notice comes and
every few seconds, and sets gates, slots and budgets accordingly. No job asks it anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

from acklast.config.models import Config
from acklast.lane import Lane
from acklast.ledger.controls import DrainAsked, Report, Target, Wire
from acklast.ledger.lease import Lease
from acklast.pacing.controls import Controls
from acklast.pacing.exchange import Exchange
from acklast.pacing.prefetch import Prefetch
from acklast.progress import Part, Round
from acklast.telemetry.events import Emitter
from acklast.unquoted import unquoted

BEAT_S: Final = 1.0
"""How often to look whether there is something to tell."""
_READ_S: Final = 5.0
"""How often to read where no notice has come: a connection that is dead in silence brings none."""
_AGAIN_S: Final = 0.2
_CLOSE_S: Final = 1.0
_STILL_S: Final = 90.0
"""How long a round may take: its connection and its statements have time limits."""


class Steering:
    """Follows the controls until it is closed."""

    def __init__(
        self,
        config: Config,
        exchange: Exchange,
        lease: Lease,
        emitter: Emitter,
        *,
        on_paused: Callable[[list[str]], None] = lambda lanes: None,
    ) -> None:
        """``on_paused`` is told which lanes are paused, each time that it changes."""
        self._on_paused = on_paused
        self._paused: list[str] = []
        self._config = config
        self._exchange = exchange
        self._lease = lease
        self._emitter = emitter
        self._controls = Controls()
        self._lanes: Mapping[str, Lane] = {}
        self._prefetches: Mapping[str, Sequence[Prefetch]] = {}
        self._reports: Callable[[], Sequence[Report]] = list
        self._on_drain: Callable[[], None] = lambda: None
        self._draining = False
        self._drain_asked = False
        self._wire: Wire | None = None
        self._wake = asyncio.Event()
        self._due_at = 0.0
        self._told: tuple[object, ...] = ()
        self._failing = False
        self._task: asyncio.Task[None] | None = None
        self._round_made = Round()

    # --- from start to end --------------------------------------------------------------------------

    async def start(self, wire: Wire) -> None:
        """Read what is in force, before anything may start, and set the budgets by it.

        Raises:
            LedgerUnavailable: nobody could tell what is in force.
        """
        self._wire = wire
        await self._read(wire)
        self._limit_budgets()

    def steer(
        self,
        lanes: Mapping[str, Lane],
        prefetches: Mapping[str, Sequence[Prefetch]],
        reports: Callable[[], Sequence[Report]],
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        """Set the lanes, before they consume, and follow every change from now on.

        ``on_drain``: somebody asks this daemon to drain.
        """
        assert self._wire is not None, "start comes first"
        self._on_drain = on_drain
        self._lanes, self._prefetches, self._reports = lanes, prefetches, reports
        self._apply()
        self._task = asyncio.create_task(self._keep(self._wire), name="steering")

    def follow(self, config: Config) -> None:
        """Go by another configuration, of the same lanes and budgets: what operators ask goes over that."""
        self._config = config
        for name, prefetches in self._prefetches.items():
            settings = config.lanes[name]
            quota = config.budgets[settings.budget].ours() if settings.budget else None
            for prefetch in prefetches:
                prefetch.bound(settings.prefetch, quota.count / quota.period_s if quota else None)
        self._apply()

    def changed(self) -> None:
        """Something was changed, or a notice may have been missed: read at once."""
        self._due_at = 0.0
        self._wake.set()

    def pauses(self) -> dict[str, datetime]:
        """The lanes that are paused, and since when, by the ledger's clock."""
        now = time.monotonic()
        found = {
            name: self._controls.pause(name, self._config.lanes[name].budget, now) for name in self._paused
        }
        return {name: pause.at for name, pause in found.items() if pause is not None}

    def leave(self) -> None:
        """This daemon drains: tell it, as soon as the ledger can be told."""
        self._draining = True
        self._wake.set()

    def part(self, now: float) -> Part:
        """Whether it follows what operators ask, at a moment of the monotonic clock."""
        ended = self._task is not None and self._task.done()
        return Part("the steering", now - self._round_made.at, _STILL_S, ended)

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._wire is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._wire.close()

    # --- the rounds ---------------------------------------------------------------------------------

    async def _keep(self, wire: Wire) -> None:
        while True:
            self._round_made.again()
            self._wake.clear()
            try:
                await self._round(wire)
            except Exception as error:
                # Not only an outage: a defect that ended this task would leave operators unheard, in silence.
                self._complain(error)
                self._due_at, pause_s = 0.0, _AGAIN_S
            else:
                self._failing, pause_s = False, BEAT_S
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause_s, self._ends_s())):
                    await self._wake.wait()
            self._apply()  # the time of one may be up, whatever the ledger says

    def _complain(self, error: Exception) -> None:
        if not self._failing:
            self._emitter.notice("controls.unread", "warning", error=unquoted(error))
        self._failing = True

    async def _round(self, wire: Wire) -> None:
        if time.monotonic() >= self._due_at:
            asked = await self._read(wire)
            self._apply()
            self._heed(asked)
        await self._report(wire)

    def _heed(self, asked: DrainAsked | None) -> None:
        if asked is not None and not self._drain_asked:
            self._drain_asked = True
            self._emitter.notice("drain.asked", actor=asked.actor, reason=asked.reason)
            self._on_drain()

    async def _read(self, wire: Wire) -> DrainAsked | None:
        self._due_at = time.monotonic() + _READ_S
        read = await wire.read(self._lease.sessions)
        # Counted from when the answer came: so a pause never ends before its time.
        self._controls = Controls(read.controls, time.monotonic(), read.heard)
        return read.drain

    def _ends_s(self) -> float:
        ends_s = self._controls.next_end_s(time.monotonic())
        # A timer may be early by the clock's resolution.
        return BEAT_S if ends_s is None else max(0.0, ends_s) + 0.001

    async def _report(self, wire: Wire) -> None:
        if not self._lease.live:
            return
        session, reports = await self._lease.current(), self._reports()
        draining = self._draining
        told = (session.id, self._controls.heard, draining, *(_lasting(report) for report in reports))
        if told != self._told:
            await wire.report(session.id, self._controls.heard, reports, draining=draining)
            self._told = told

    # --- what follows -------------------------------------------------------------------------------

    def _apply(self) -> None:
        self._limit_budgets()
        for name, lane in self._lanes.items():
            self._set_lane(name, lane)
        paused = [name for name, lane in self._lanes.items() if lane.pacing.gate.paused]
        if paused != self._paused:
            self._paused = paused
            self._on_paused(paused)

    def _limit_budgets(self) -> None:
        now = time.monotonic()
        for name in self._exchange.names:
            budget = self._config.budgets[name]
            calls = budget.concurrency
            if calls is not None:
                calls = self._controls.concurrency(Target.BUDGET, name, calls, now)
            self._exchange.limit(name, self._controls.quota(name, budget.ours(), now), calls)

    def _set_lane(self, name: str, lane: Lane) -> None:
        settings, now = self._config.lanes[name], time.monotonic()
        pause = self._controls.pause(name, settings.budget, now)
        if (pause is not None) != lane.pacing.gate.paused:
            lane.pacing.pause(pause is not None)
            if pause is None:
                self._emitter.notice("lane.resumed", lane=name)
            else:
                self._emitter.notice(
                    "lane.paused", "warning", lane=name, actor=pause.actor, reason=pause.reason
                )
        count = self._controls.concurrency(Target.LANE, name, settings.concurrency, now)
        if count != lane.pacing.slots.count:
            self._emitter.notice(
                "lane.concurrency", lane=name, concurrency=count, configured=settings.concurrency
            )
            for prefetch in self._prefetches[name]:
                prefetch.concurrency = count
            lane.pacing.slots.resize(count)


def _lasting(report: Report) -> Report:
    """A report that stays the same while nothing changes: it has the time at which its state ends."""
    if report.left_s is None:
        return report
    return replace(report, left_s=round(time.monotonic() + report.left_s))
