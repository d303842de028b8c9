"""The lanes of one daemon and what consumes for them, put together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from acklast.apart import apart
from acklast.broker import Link
from acklast.config.models import Config, Custody
from acklast.consumer import Consumer
from acklast.delivery import process
from acklast.drain import Tasks
from acklast.handlers.app import App
from acklast.inlets import Inlet, open_intake
from acklast.intake import Intake
from acklast.lane import Drain, Lane
from acklast.ledger.api import Ledger
from acklast.ledger.lease import Lease
from acklast.ledger.watch import LedgerWatch
from acklast.letterbox import Letterbox
from acklast.pacing.alone import Alone
from acklast.pacing.budgets import Budget, Limits
from acklast.pacing.circuit import Circuit, circuit_of
from acklast.pacing.lanes import LanePacing
from acklast.pacing.prefetch import Prefetch
from acklast.pacing.slots import Slots
from acklast.pacing.turn import Turn
from acklast.readiness import Readiness
from acklast.reporter import Observed
from acklast.settle import Delivery, Send, Settler
from acklast.telemetry.events import Emitter
from acklast.telemetry.tracer import Tracer
from acklast.upkeep import Upkeep
from acklast.vitals import Vitals

_REQUEUE_S: Final = 1.0
"""Pause before a delivery on which acklast itself failed is requeued, so that a defect does not spin."""


def budgets_of(config: Config) -> dict[str, Budget]:
    """The budgets that a lane uses, by name."""
    used = {lane.budget for lane in config.lanes.values()}
    return {name: _budget(config, name) for name in config.budgets if name in used}


def _budget(config: Config, name: str) -> Budget:
    settings = config.budgets[name]
    limits = Limits(settings.arrival_bound_s, settings.concurrency, settings.burst)
    return Budget(name, settings.ours(), limits, shared=True)


def circuits_of(config: Config, emitter: Emitter) -> dict[str, Circuit]:
    """The breaker of each budget."""
    return {
        name: circuit_of(name, settings.breaker.rules(), emitter) for name, settings in config.budgets.items()
    }


@dataclass(frozen=True, slots=True)
class Assembly:
    """Makes lanes, and their consumers, of what one daemon has once."""

    config: Config
    app: App
    ledger: Ledger
    lease: Lease
    emitter: Emitter
    drain: Drain
    tasks: Tasks
    watch: LedgerWatch
    send: Send
    consuming: Link
    upkeep: Upkeep
    readiness: Readiness
    vitals: Vitals
    worker: str
    budgets: Mapping[str, Budget]
    tracer: Tracer
    alone: Alone = field(default_factory=Alone)
    prefetches: dict[str, list[Prefetch]] = field(default_factory=dict)
    """Of each lane, those that follow its pace."""
    observed: list[Observed] = field(default_factory=list)
    """Each lane, once its consumers are made."""

    def lanes(self) -> list[Lane]:
        circuits = circuits_of(self.config, self.emitter)
        return [self._lane(name, circuits) for name in self.config.lanes]

    def _lane(self, name: str, circuits: Mapping[str, Circuit]) -> Lane:
        lane = self.config.lanes[name]
        budget = self.budgets[lane.budget] if lane.budget else None
        return Lane(
            name=name,
            app=self.app,
            policy=lane.policy(),
            ledger=self.ledger,
            lease=self.lease,
            pacing=LanePacing(
                Slots(lane.concurrency),
                budget,
                circuits[lane.budget] if lane.budget else None,
                budget.gate() if budget else None,
                self.alone,
                Turn(name, lane.weight),
            ),
            settler=self._settler(name),
            emitter=self.emitter,
            drain=self.drain,
            worker=self.worker,
            version=self.config.version,
            chance=random.random,
            custody=lane.custody is Custody.LEDGER,
            watch=self.watch,
            tracer=self.tracer,
        )

    def _settler(self, lane: str) -> Settler:
        return Settler(
            lane,
            self.config.names,
            self.send,
            self.emitter,
            abandoned=lambda: self.drain.abandoned,
            repair=self.upkeep.repair,
            buckets_s=self.config.wait_buckets_s,
        )

    def consumers(self, lanes: list[Lane]) -> list[Consumer]:
        """One for each queue of each lane, and of what the broker set aside."""
        made = [consumer for lane in lanes for consumer in self._consumers(lane)]
        return made + self._letterbox(lanes)

    def _consumers(self, lane: Lane) -> list[Consumer]:
        """One for each queue of the lane."""

        def start(delivery: Delivery) -> None:
            self.tasks.add(delivery, apart(self._process(lane, intake, delivery)))

        settings = self.config.lanes[lane.name]
        quota = self.config.budgets[settings.budget].ours() if settings.budget else None
        intake, inlets = open_intake(lane, settings, quota, self.config.names, self.tasks, start)
        for inlet in inlets:
            inlet.prefetch.stuck = lane.settler.stuck
        self.prefetches[lane.name] = [inlet.prefetch for inlet in inlets if inlet.follows]
        consumers = [self._consumer(lane, inlet) for inlet in inlets]
        self.observed.append(Observed(lane, intake, consumers[0]))
        intake.lane = lane.name
        self.vitals.add(intake)
        return consumers

    def _consumer(self, lane: Lane, inlet: Inlet) -> Consumer:
        return Consumer(
            lane.name,
            inlet.queue,
            inlet.prefetch,
            self.consuming,
            inlet.take,
            inlet.recall,
            self.emitter,
            partial(self.upkeep.fit, inlet.queue),
            longest_s=self.config.broker.longest_unacked_s / 3,
            gate=lane.pacing.gate,
            backlog=partial(lane.pacing.saw_backlog, inlet.queue),
            on_change=partial(self.readiness.lane, lane.name, inlet.queue),
        )

    def _letterbox(self, lanes: list[Lane]) -> list[Consumer]:
        """One for each queue of what the broker set aside."""
        fan_outs = self.config.fan_outs
        box = Letterbox(self.config.names, lanes, self.send, self._settler(""), self.tasks, fan_outs)
        return box.consumers(self.consuming, self.emitter, self.upkeep.fit, self.readiness.letterbox)

    async def _process(self, lane: Lane, intake: Intake, delivery: Delivery) -> None:
        intake.begun()
        try:
            await process(lane, delivery)
        except Exception as defect:
            # A defect of ours must neither vanish nor hold a prefetch slot for ever.
            said = {"lane": lane.name, "tag": delivery.tag, **delivery.told()}
            self.emitter.notice("delivery.defect", "error", **said, exc_info=defect)
            await asyncio.sleep(_REQUEUE_S)
            await lane.settler.give_back(delivery)
        finally:
            self.tasks.end(delivery)
            intake.go_on()
