"""One simulated daemon: the real lanes, lease, settlers and delivery path, on ports that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from acklast import drain
from acklast.consumer import Consumer
from acklast.delivery import process
from acklast.errors import LedgerUnavailable
from acklast.intake import Intake
from acklast.lane import Drain, Lane
from acklast.ledger.api import Ledger
from acklast.ledger.lease import Lease
from acklast.ledger.watch import LedgerWatch
from acklast.notify import Notify
from acklast.pacing.alone import Alone
from acklast.pacing.budgets import Budget
from acklast.pacing.circuit import Circuit, circuit_of
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Slots
from acklast.pacing.turn import Turn
from acklast.settle import Delivery, Settler
from acklast.telemetry.events import Emitter
from acklast.testing.broker import Channel
from acklast.testing.ports import ChannelPort, LedgerPort, SendPort
from acklast.testing.virtual import elapse
from acklast_topology.contract import RawMessage
from acklast_topology.names import Names

if TYPE_CHECKING:
    from acklast.testing.stage import Stage

HERE: Final[ContextVar[Here]] = ContextVar("HERE")

_REOPEN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Here:
    """The process, and the delivery of its, that some code runs for."""

    process: Process
    lane: str
    delivery: Delivery


class Killed(BaseException):
    """This process is dead: whatever of it still runs does nothing any more."""


class Process:
    """A process from its start to its death. ``name`` is its own, ``instance`` may be its predecessor's."""

    def __init__(self, stage: Stage, name: str, instance: str) -> None:
        self.stage = stage
        self.name = name
        self.instance = instance
        self.dead = False
        self.draining = False
        self.moving = asyncio.Event()
        self.moving.set()
        self.channels: dict[str, Channel] = {}
        self.tasks = drain.Tasks()
        self._state = Drain()
        self._tally = drain.Tally()
        self._emitter = Emitter(self._tally, partial(stage.said, self))
        self._ledger = cast("Ledger", LedgerPort(self))
        loop = asyncio.get_running_loop()
        self._watch = LedgerWatch(self._emitter, clock=loop.time)
        self.lease = Lease(
            self._ledger,
            self._emitter,
            instance=instance,
            worker=name,
            version="1",
            lease_s=stage.setting.lease_s,
            clock=loop.time,
        )
        self.budgets, self._circuits = self._pacing()
        self._alone = Alone()
        self.lanes = {lane: self._lane(lane) for lane in stage.setting.lanes}
        self._intakes = {
            name: Intake(lane.pacing.slots, self._starts(lane)) for name, lane in self.lanes.items()
        }

    def _pacing(self) -> tuple[dict[str, Budget], dict[str, Circuit]]:
        settings = self.stage.setting.budgets
        budgets = {name: Budget(name, one.quota, one.limits) for name, one in settings.items()}
        for name, budget in budgets.items():
            budget.on_quiet = partial(self._tell_others, name)
        return budgets, {name: circuit_of(name, one.breaker, self._emitter) for name, one in settings.items()}

    def _tell_others(self, budget: str, seconds: float) -> None:
        """A pause is the whole fleet's."""
        for other in self.stage.alive:
            if other is not self:
                other.budgets[budget].pause(seconds)

    def _lane(self, name: str) -> Lane:
        stage, state = self.stage, self._state
        setting = stage.setting.lanes[name]
        budget = setting.budget
        return Lane(
            name=name,
            app=stage.setting.app,
            policy=setting.policy,
            ledger=self._ledger,
            lease=self.lease,
            pacing=LanePacing(
                Slots(setting.concurrency),
                self.budgets[budget] if budget else None,
                self._circuits[budget] if budget else None,
                alone=self._alone,
                turn=Turn(name, setting.weight),
            ),
            settler=Settler(
                name,
                Names(),
                SendPort(self),
                self._emitter,
                abandoned=lambda: state.abandoned,
                buckets_s=stage.setting.buckets_s,
            ),
            emitter=self._emitter,
            drain=state,
            worker=self.name,
            version="1",
            chance=stage.random.random,
            watch=self._watch,
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

    # --- consuming ----------------------------------------------------------------------------------

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
        """Open a channel for each lane that has none."""
        if self.dead or self.draining or not self.moving.is_set():
            return
        for name, setting in self.stage.setting.lanes.items():
            if name not in self.channels or not self.channels[name].alive:
                self.channels[name] = self.stage.broker.consume(
                    name, partial(self._deliver, name), setting.prefetch
                )

    def thaw(self) -> None:
        """Go on after standing still; what the broker ended meanwhile is opened again."""
        self.moving.set()
        if self.channels:
            self.consume()

    def _deliver(self, lane: str, channel: Channel, tag: int, raw: RawMessage) -> None:
        taken_at = asyncio.get_running_loop().time()
        self._intakes[lane].take(Delivery(raw, tag, ChannelPort(self, channel), taken_at))

    def _starts(self, lane: Lane) -> Callable[[Delivery], None]:
        def start(delivery: Delivery) -> None:
            self.tasks.add(delivery, self.stage.spawn(partial(self._process, lane, delivery)))

        return start

    async def _process(self, lane: Lane, delivery: Delivery) -> None:
        HERE.set(Here(self, lane.name, delivery))
        intake = self._intakes[lane.name]
        intake.begun()
        try:
            await self.breathe()
            await process(lane, delivery)
        finally:
            self.tasks.end(delivery)
            if not self.dead:
                intake.go_on()

    def lose_channels(self) -> None:
        """The broker ends the channels; the process opens others a moment later."""
        for channel in self.channels.values():
            channel.close()
        if self.channels:
            asyncio.get_running_loop().call_later(_REOPEN_S, self.consume)

    # --- the end ------------------------------------------------------------------------------------

    def die(self) -> None:
        """At once, with everything in memory; the broker takes back what was unacked."""
        if self.dead:
            return
        self.dead = True
        self.stage.died(self)
        self.moving.set()
        current = asyncio.current_task()
        for task in [*self.running, *([self.lease._task] if self.lease._task else [])]:
            if task is not current:
                task.cancel()
        for channel in self.channels.values():
            channel.close()

    async def ended(self) -> None:
        """Wait until its lease is renewed no more."""
        if self.lease._task:
            await asyncio.gather(self.lease._task, return_exceptions=True)

    async def drain(self, then: Callable[[], None]) -> None:
        """Stop as SIGTERM asks; ``then`` starts a successor."""
        self.draining = True
        await drain.drain(
            self._state,
            self.lanes.values(),
            cast("list[Consumer]", [self]),
            self.tasks,
            self._tally,
            drain.Cutter(),
            Notify({}),
            self._emitter,
            self.stage.setting.drain_s,
        )
        await self.lease.close()
        if not self.dead:
            self.die()
            then()

    async def cancel(self) -> None:
        """What the drain asks of a consumer."""
        for channel in self.channels.values():
            channel.cancel()
