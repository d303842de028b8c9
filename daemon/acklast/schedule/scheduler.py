"""The scheduler: decides every second what fires, and works firings off.

Any number may run and none leads. What fires is decided by each for itself, from the ledger's clock and the
configuration; that it fires once is the ledger's doing, whose firings are told apart by their run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from acklast.chores import Chore
from acklast.config import Config
from acklast.config.schedules import Schedule
from acklast.errors import LedgerUnavailable
from acklast.ledger.connect import Address, Link
from acklast.ledger.firings import Claimed, Firings
from acklast.ledger.schedules import Cause, Kind, Known, NewFiring, Schedules
from acklast.progress import Part, Round
from acklast.schedule.due import IN_TIME, Due, Rules, due
from acklast.schedule.firing import Worker
from acklast.telemetry.events import Emitter

AT_ONCE: Final = 4
"""How many firings one process works off at a time: a long one keeps no other waiting."""
_STILL_S: Final = 300.0
"""How long a look may take: each of its statements has a time limit."""
_LOOK_S: Final = 1.0
_AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0)
_MARK: Final = timedelta(seconds=15)
"""How old the ledger's word may be, up to when it is decided what fires, while nothing fires."""


class Scheduler(Chore):
    """Fires until it is closed."""

    name = "scheduler"

    def __init__(
        self,
        config: Config,
        address: Address,
        emitter: Emitter,
        worker: str,
        *,
        look_s: float = _LOOK_S,
        chance: Callable[[], float] = random.random,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``look_s``: how often to look. ``tell`` is told in one line how it is, whenever that changes."""
        self._tell = tell
        self._round = Round()
        self._schedules = config.schedules
        self._kinds = [kind_of(name, one) for name, one in config.schedules.items()]
        self._emitter = emitter
        self._look_s = look_s
        self._chance = chance
        self._link = Link(address)
        self._ledger = Schedules(self._link)
        lease_s = config.ledger.lease_s
        self._firings = Firings(self._link, worker, lease_s)
        self._worker = Worker(config, address, self._firings, emitter, lease_s=lease_s)
        self._last: datetime | None = None
        self._marked: datetime | None = None
        self._working = set[asyncio.Task[None]]()
        self._failing = False

    async def close(self) -> None:
        """Stop: a page that is being promised is given up, and its firing given back."""
        await super().close()
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._link.close()

    def part(self, now: float) -> Part:
        return replace(super().part(now), still_s=now - self._round.at, within_s=_STILL_S)

    async def run(self) -> None:
        """Fire for ever; while the ledger is away try again, and say so once."""
        tries = 0
        while True:
            self._round.again()
            try:
                await self.once()
                tries = self._well()
                await asyncio.sleep(self._look_s * (0.5 + self._chance()))
                continue
            except LedgerUnavailable as error:
                self._say(error)
            except Exception as defect:
                self._emitter.notice("scheduler.defect", "error", exc_info=defect)
            await asyncio.sleep(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)] * (0.5 + self._chance()))
            tries += 1

    def _well(self) -> int:
        if self._failing:
            self._emitter.notice("scheduler.resumed")
            self._tell(self.text())
            self._failing = False
        return 0

    def _say(self, error: LedgerUnavailable) -> None:
        if not self._failing:
            self._failing = True
            self._emitter.notice("scheduler.unavailable", "warning", error=error.what)
            self._tell(f"{error.what}; nothing fires")

    def text(self) -> str:
        """How it is while all is well."""
        return f"watching {len(self._schedules)} schedules"

    async def once(self) -> None:
        """One look: decide what fires, and begin with as many firings as there is room for.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        known = await self._ledger.look()
        await self.decide(known)
        await self.begin()

    async def begin(self) -> None:
        """Claim what is due, as far as there is room.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        while len(self._working) < AT_ONCE:
            claimed = await self._firings.claim(list(self._schedules))
            if claimed is None:
                return
            self._begin(claimed)

    # --- what fires ---------------------------------------------------------------------------------

    async def decide(self, known: Known) -> None:
        """Have everything fire whose time has come by ``known.now``."""
        if any(known.of(kind.name).decided_until is None for kind in self._kinds) or self._last is None:
            await self._ledger.enter(self._kinds, known.now)
        idle = []
        for name, schedule in self._schedules.items():
            last = self._last_of(name, known)
            found = due(known.now, last, schedule.when(), Rules.of(schedule)) if schedule.enabled else Due()
            if known.of(name).paused is None and found != Due():
                await self._fire(name, schedule, found, known.now)
            else:
                idle.append(name)
        if self._marked is None or known.now - self._marked >= _MARK:
            await self._ledger.decided(idle, known.now)
            self._marked = known.now
        self._last = known.now

    def _last_of(self, name: str, known: Known) -> datetime:
        """From when on it is to be decided.

        A scheduler that looks every second goes by its own last look: so it misses nothing where another,
        with another configuration, decides that nothing fires. One that was away goes by the ledger's word.
        """
        if self._last is not None and known.now - self._last < IN_TIME:
            return self._last
        return known.of(name).decided_until or known.now

    async def _fire(self, name: str, schedule: Schedule, found: Due, now: datetime) -> None:
        firings = firings_of(name, schedule, found, now)
        skip = found.skipped
        if skip is not None:
            told = {"count": skip.count, "first": skip.first.isoformat(), "last": skip.last.isoformat()}
            self._emitter.notice("schedule.skipped", "warning", schedule=name, **told)
        new = await self._ledger.decide(name, now, firings, skip)
        for firing in firings:
            if firing.run in new:
                late_s = round((now - firing.scheduled_at).total_seconds(), 1)
                self._emitter.notice("schedule.fired", schedule=name, run=firing.run, late_s=late_s)

    # --- working ------------------------------------------------------------------------------------

    def _begin(self, claimed: Claimed) -> None:
        task = asyncio.create_task(self._work(claimed), name=f"firing {claimed.run}")
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _work(self, claimed: Claimed) -> None:
        try:
            await self._worker.work(claimed)
        except LedgerUnavailable as error:
            self._say(error)

    async def settled(self) -> None:
        """Wait until what was begun has come to an end."""
        await asyncio.gather(*self._working)


def kind_of(name: str, schedule: Schedule) -> Kind:
    return Kind(name, schedule.lane, schedule.cron, schedule.time_zone, schedule.enabled)


def firings_of(name: str, schedule: Schedule, found: Due, now: datetime) -> list[NewFiring]:
    """What is due, with the runs that it makes."""
    return [
        NewFiring(at, schedule.run_of(name, at), Cause.TIME if now - at <= IN_TIME else Cause.LATE)
        for at in found.fire
    ]
