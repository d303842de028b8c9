"""One daemon of the simulation: the real lane, lease, settler and delivery path, on ports that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from acklast import drain
from acklast.config.quota import Quota
from acklast.consumer import Consumer
from acklast.delivery import process
from acklast.errors import LedgerUnavailable
from acklast.lane import Drain, Lane
from acklast.ledger.api import Ledger
from acklast.ledger.lease import Lease
from acklast.ledger.watch import LedgerWatch
from acklast.notify import Notify
from acklast.pacing.budgets import Budget
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Slots
from acklast.settle import Delivery, Settler
from acklast.telemetry.events import Emitter
from acklast_topology.contract import RawMessage
from acklast_topology.names import Names
from harness.virtual import elapse
from simulation.acts import HERE, app_for
from simulation.broker import Channel
from simulation.ports import ChannelPort, LedgerPort, SendPort
from simulation.scenario import LEASE_S

if TYPE_CHECKING:
    from simulation.world import World

DRAIN_S = 3.0
_REOPEN_S = 0.5


class Killed(BaseException):
    """This process is dead: whatever of it still runs does nothing any more."""


class Process:
    """A process from its start to its death. ``name`` is its own, ``instance`` may be its predecessor's."""

    def __init__(self, world: World, name: str, instance: str) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.dead = False
        self.draining = False
        self.moving = asyncio.Event()
        self.moving.set()
        self.channel: Channel | None = None
        self.tasks = drain.Tasks()
        self.tally = drain.Tally()
        self.emitter = Emitter(self.tally)
        ledger = cast("Ledger", LedgerPort(self))
        self.lease = Lease(
            ledger,
            self.emitter,
            instance=instance,
            worker=name,
            version="1",
            lease_s=LEASE_S,
            clock=asyncio.get_running_loop().time,
        )
        self.lane = self._lane(ledger)

    def _lane(self, ledger: Ledger) -> Lane:
        scenario, state = self.world.scenario, Drain()
        quota = scenario.quota
        settler = Settler("work", Names(), SendPort(self), self.emitter, abandoned=lambda: state.abandoned)
        return Lane(
            name="work",
            app=app_for(scenario),
            policy=scenario.policy,
            ledger=ledger,
            lease=self.lease,
            pacing=LanePacing(Slots(scenario.concurrency), Budget("api", Quota(*quota)) if quota else None),
            settler=settler,
            emitter=self.emitter,
            drain=state,
            worker=self.name,
            version="1",
            chance=self.world.random.random,
            watch=LedgerWatch(self.emitter),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def running(self) -> list[asyncio.Task[None]]:
        """The deliveries that it is at work on."""
        return list(self.tasks._tasks.values())

    def owns(self, session: int) -> bool:
        """Whether it is alive and by its own clock still holds this session's lease."""
        mine = self.lease._session
        return not self.dead and self.lease.live and mine is not None and mine.id == session

    async def breathe(self) -> None:
        """Pass only while the process is alive and moving."""
        await self.moving.wait()
        if self.dead:
            raise Killed(self.name)

    async def live(self) -> None:
        """Open a session, then consume until death."""
        while True:
            try:
                await self.lease.start()
                break
            except LedgerUnavailable:
                await elapse(1)
        self.consume()

    def consume(self) -> None:
        if self.dead or self.draining or (self.channel is not None and self.channel.alive):
            return
        if self.moving.is_set():
            self.channel = self.world.broker.consume(self._deliver, prefetch=10)

    def thaw(self) -> None:
        """Go on after standing still; what the broker ended meanwhile is opened again."""
        self.moving.set()
        if self.channel is not None:
            self.consume()

    def _deliver(self, channel: Channel, tag: int, raw: RawMessage) -> None:
        delivery = Delivery(raw, tag, ChannelPort(self, channel))
        self.tasks.add(delivery, self.world.spawn(partial(self._process, delivery)))

    async def _process(self, delivery: Delivery) -> None:
        HERE.set(self)
        try:
            await self.breathe()
            await process(self.lane, delivery)
        finally:
            self.tasks.end(delivery)

    def lose_channel(self) -> None:
        """The broker ends the channel; the process opens another a moment later."""
        if self.channel is not None:
            self.channel.close()
            asyncio.get_running_loop().call_later(_REOPEN_S, self.consume)

    def die(self) -> None:
        """At once, with everything in memory; the broker takes back what was unacked."""
        self.dead = True
        self.world.account.die(self)
        self.moving.set()
        current = asyncio.current_task()
        for task in [*self.running, *([self.lease._task] if self.lease._task else [])]:
            if task is not current:
                task.cancel()
        if self.channel is not None:
            self.channel.close()

    async def drain(self, then: Callable[[], None]) -> None:
        """Stop as SIGTERM asks; ``then`` starts a successor."""
        self.draining = True
        consumers = cast("list[Consumer]", [self])
        await drain.drain(
            self.lane.drain,
            [self.lane],
            consumers,
            self.tasks,
            self.tally,
            drain.Cutter(),
            Notify({}),
            self.emitter,
            DRAIN_S,
        )
        await self.lease.close()
        if not self.dead:
            self.die()
            then()

    async def cancel(self) -> None:
        """What the drain asks of a consumer."""
        if self.channel is not None:
            self.channel.cancel()
