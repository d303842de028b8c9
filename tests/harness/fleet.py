"""A fleet of daemons in virtual time, as far as pacing goes: budgets, exchanges, calls, and the provider's
meter.
"""

from __future__ import annotations

import asyncio
import random
from bisect import insort
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

from acklast.config.quota import Quota
from acklast.ledger.api import Session
from acklast.ledger.lease import Lease
from acklast.pacing.budgets import NO_LIMITS, Budget, Limits, StandBy
from acklast.pacing.exchange import Exchange
from acklast.pacing.gate import Gate
from acklast.pacing.permit import Permit
from acklast.pacing.slots import Draining
from acklast.telemetry.events import Emitter
from harness.book import MemoryBook, Server
from harness.virtual import elapse

LEASE_S = 3.0


def now() -> float:
    """What every daemon's monotonic clock says."""
    return asyncio.get_running_loop().time()


class FakeLease:
    """The lease of one daemon: renewed every second while the daemon runs and can reach the ledger."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.on_open: Any = None
        self.session: Session | None = None
        self.ends = 0.0
        self.renews = True
        self._live = asyncio.Event()

    @property
    def live(self) -> bool:
        return self.session is not None and now() < self.ends

    def open(self, former: int | None = None) -> None:
        number = self.server.open_session(LEASE_S, former)
        self.session, self.ends = Session(number, "i", LEASE_S), now() + LEASE_S
        self._live.set()
        if self.on_open:
            self.on_open()

    async def keep(self) -> None:
        while True:
            await elapse(LEASE_S / 3)
            if not self.renews:
                continue
            if self.session is not None and self.server.live(self.session.id):
                self.server.sessions[self.session.id].lease_until = self.server.now() + LEASE_S
                self.ends = now() + LEASE_S
            else:
                self.open(self.session.id if self.session else None)

    async def current(self) -> Session:
        while not self.live:
            self._live.clear()
            await self._live.wait()
        assert self.session is not None
        return self.session

    def lost(self, session: Session) -> None:
        if self.session is session:
            self.ends = 0.0


@dataclass
class Meter:
    """What the provider counts: times, in order."""

    counted: list[float] = field(default_factory=list)

    def count(self) -> None:
        insort(self.counted, asyncio.get_running_loop().time())

    def worst(self, period_s: float) -> int:
        """The most calls in any window of ``period_s``."""
        most = start = 0
        for end, at in enumerate(self.counted):
            # Sums of floats: a microsecond is the rounding of the clock, not a call too early.
            while self.counted[start] <= at - period_s + 1e-6:
                start += 1
            most = max(most, end - start + 1)
        return most


@dataclass
class Provider:
    """How calls behave: seconds until the meter counts one, and until its answer; None: there is none."""

    chance: random.Random
    meter: Meter
    slowest_s: float = 0.2
    bound_s: float = 0.25
    loses: float = 0.0

    def call(self) -> tuple[float, float | None]:
        takes_s = self.chance.random() * self.slowest_s
        if self.chance.random() < self.loses:
            return self.chance.random() * self.bound_s, None
        return self.chance.random() * takes_s, takes_s


class Member:
    """One daemon of the fleet."""

    def __init__(
        self, server: Server, provider: Provider, name: str, quota: Quota, limits: Limits = NO_LIMITS
    ) -> None:
        self.server = server
        self.provider = provider
        self.name = name
        self.lease = FakeLease(server)
        self.budget = Budget(name, quota, limits, shared=True)
        self.exchange = Exchange(
            [self.budget], cast("Lease", self.lease), Emitter(), chance=provider.chance.random
        )
        self.gate: Gate | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.started = 0
        self.alive = True

    async def start(self, former: Member | None = None) -> None:
        """As a new process; of the same instance as ``former``, where that is given."""
        session = former.lease.session if former else None
        self.lease.open(session.id if session else None)
        await self.exchange.start(MemoryBook(self.server, self.exchange.heard))
        self.gate = self.budget.gate()
        self.run(self.lease.keep())

    @property
    def serves(self) -> bool:
        """Whether its consumer takes jobs in."""
        return self.alive and self.gate is not None and self.gate.is_open

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def kill(self) -> None:
        """SIGKILL: everything stops, what is on its way arrives."""
        self.alive = False
        keeper = self.exchange.task
        dying = [*self.tasks, *self.exchange._telling, *([keeper] if keeper else [])]
        self.server.ears[:] = [ear for ear in self.server.ears if ear._on_heard != self.exchange.heard]
        self.budget.close()
        for task in dying:
            task.cancel()
        await asyncio.gather(*dying, return_exceptions=True)

    async def drain(self) -> None:
        """SIGTERM: nothing new starts, what runs ends, the rest is given back."""
        self.alive = False
        self.budget.close()
        await asyncio.gather(
            *(task for task in self.tasks if task.get_name() == "call"), return_exceptions=True
        )
        await self.exchange.close()
        for task in list(self.tasks):
            task.cancel()
        assert self.lease.session is not None
        self.server.sessions[self.lease.session.id].ended_at = self.server.now()

    async def consume(self, workers: int, jobs: asyncio.Queue[int]) -> None:
        """Do jobs of a shared queue, so many at a time; none is held while the gate is shut."""
        await asyncio.gather(*(self._work(jobs) for _ in range(workers)))

    async def _work(self, jobs: asyncio.Queue[int]) -> None:
        assert self.gate is not None
        while True:
            await self.gate.opened.wait()
            job = await jobs.get()
            try:
                permit = await self.budget.take()
            except StandBy:
                jobs.put_nowait(job)
                continue
            except Draining:
                jobs.put_nowait(job)
                return
            await self._call(permit, jobs, job)

    async def _call(self, permit: Permit, jobs: asyncio.Queue[int], job: int) -> None:
        await elapse(0.004 * self.provider.chance.random())  # the claim
        await permit.cooled()
        session = self.lease.session
        if not (self.lease.live and session is not None and permit.held_by(session.id)):
            permit.unspent()
            jobs.put_nowait(job)
            await elapse(0.02)
            return
        self.started += 1
        counted_s, takes_s = self.provider.call()
        # It is on its way, whatever becomes of us.
        asyncio.get_running_loop().call_later(counted_s, self.provider.meter.count)
        if takes_s is None:
            await elapse(0.1)
            permit.unanswered()
        else:
            await elapse(takes_s)
            permit.answered()
