"""The daemon: puts the parts together, runs until it is told to stop, and drains."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from acklast.assembly import Assembly, budgets_of
from acklast.broker import Link
from acklast.carriers import CarrierSender
from acklast.chores import Chore
from acklast.config.models import Config
from acklast.config.rotation import Servers
from acklast.config.servers import Receiver
from acklast.consumer import Consumer
from acklast.drain import Receipt, Tally, Tasks, drain, left_of, nothing_begun, said
from acklast.errands import chores_of
from acklast.errors import Exit
from acklast.gauges import Gauges
from acklast.handlers.app import App
from acklast.health import Health, health_of
from acklast.instance import Instance
from acklast.lane import Drain, Lane
from acklast.leaving import Left
from acklast.ledger.budgets import PostgresBook
from acklast.ledger.connect import Address
from acklast.ledger.controls import PostgresWire
from acklast.ledger.lease import Lease
from acklast.ledger.postgres import PostgresLedger
from acklast.ledger.watch import LedgerWatch
from acklast.notify import Notify
from acklast.overlong import Overlong
from acklast.pacing.exchange import Exchange
from acklast.probes import Probes
from acklast.readiness import Readiness
from acklast.receiver import KNOWN_AIORMQ, knows_library, library_version
from acklast.reloading import Followers, Reloading, Source
from acklast.reporter import reports_of
from acklast.steering import Steering
from acklast.stop import Stop, Stopped, stop_signals, unless_stopped
from acklast.telemetry.events import Emitter
from acklast.telemetry.wiring import Telemetry
from acklast.telling import Telling, telling
from acklast.upkeep import Upkeep
from acklast.vitals import Vitals
from acklast.watchdog import Watchdog

_COLLECT_AFTER: Final = 20_000
"""More objects made than freed since the last look."""


async def run(config: Config, app: App, read: Callable[[], Config]) -> Exit:
    """Run the daemon until SIGTERM or SIGINT, drain, and tell how it ended. ``read``: the file as it is now.

    Raises:
        ConfigError, SchemaError, TopologyError, InstanceLocked: it must not start like this.
        BrokerUnavailable, LedgerUnavailable: it cannot start now.
    """
    tally = Tally()
    async with telling(config, os.environ, tally, scraped=config.health.listen is not None) as told:
        receipt = await _run(config, app, read, told, tally)
    return Exit.CUT if receipt.cut else Exit.OK


async def _run(config: Config, app: App, read: Callable[[], Config], told: Telling, tally: Tally) -> Receipt:
    emitter = told.emitter
    app.prepare({name: lane.concurrency for name, lane in config.lanes.items()})
    with Instance(config.state_dir, config.instance) as instance, stop_signals(emitter, reloads=True) as stop:
        servers = Servers(config, os.environ)
        try:
            ledger = await unless_stopped(stop, _ledger_of(config, servers, emitter))
        except Stopped:
            receipt = nothing_begun(config.drain.deadline_s)
        else:
            try:
                daemon = Daemon(config, app, ledger, emitter, instance.id, servers, told.telemetry)
                _collect_seldom()
                receipt = await daemon.run(stop, tally, Source(read, told.sink.set_level))
            finally:
                await app.stop()
                await ledger.close()
    emitter.notice("drain.receipt", **said(receipt))
    return receipt


async def _ledger_of(config: Config, servers: Servers, emitter: Emitter) -> PostgresLedger:
    return await PostgresLedger.connect(
        servers.ledger,
        pool_size=config.ledger.pool_size,
        allow_unsafe_server=config.ledger.allow_unsafe_server,
        emitter=emitter,
    )


def _collect_seldom() -> None:
    """Look for cyclic garbage when there may be some.

    A thousand jobs in flight are tens of thousands of objects that live for a moment and have no cycles. At
    the usual threshold of 700 the collector walks over them again and again: a sixth of a job's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 100)


class Daemon:
    """The parts of one running daemon."""

    def __init__(
        self,
        config: Config,
        app: App,
        ledger: PostgresLedger,
        emitter: Emitter,
        instance: str,
        servers: Servers,
        telemetry: Telemetry,
    ) -> None:
        self._config = config
        self._servers = servers
        self._app = app
        self._ledger = ledger
        self._emitter = emitter
        self._worker = f"{config.instance}@{socket.gethostname()}:{os.getpid()}"
        self._notify = Notify()
        self._readiness = Readiness(list(config.lanes), self._notify.status)
        self._vitals = Vitals()
        self._watchdog = Watchdog(self._notify, emitter, self._vitals.parts)
        self._registry = telemetry.registry
        self._probes = self._probed_by(telemetry)
        self._drain = Drain()
        self._tasks = Tasks()
        self._watch = LedgerWatch(emitter, self._readiness.ledger)
        self._lease = self._leased_to(instance)
        self._consuming = self._link("consumer", bulk=self._reads_in_bulk())
        self._publishing = self._link("publisher", bulk=False)
        self._upkeep = Upkeep(config, self._consuming, emitter)
        budgets = budgets_of(config)
        self._exchange = Exchange(budgets.values(), self._lease, emitter)
        self._steering = Steering(
            config, self._exchange, self._lease, emitter, on_paused=self._readiness.paused
        )
        self._send = CarrierSender(self._publishing, timeout_s=config.broker.publish_timeout_s)
        self._assembly = Assembly(
            config=config,
            app=app,
            ledger=ledger,
            lease=self._lease,
            emitter=emitter,
            drain=self._drain,
            tasks=self._tasks,
            watch=self._watch,
            send=self._send,
            consuming=self._consuming,
            upkeep=self._upkeep,
            readiness=self._readiness,
            vitals=self._vitals,
            worker=self._worker,
            budgets=budgets,
            tracer=telemetry.tracer,
        )

    def _leased_to(self, instance: str) -> Lease:
        return Lease(
            self._ledger,
            self._emitter,
            instance=instance,
            worker=self._worker,
            version=self._config.version,
            lease_s=self._config.ledger.lease_s,
            watch=self._watch,
        )

    def _probed_by(self, telemetry: Telemetry) -> Probes:
        at, directory = self._config.health.listen, self._config.state_dir
        return Probes(at, directory, self._emitter, self._watchdog.why, self._health, telemetry.snapshot)

    def _chores(self, lanes: list[Lane]) -> list[Chore]:
        return chores_of(
            self._config,
            lanes,
            ledger=self._ledger,
            address=self._address(),
            lease=self._lease,
            brokers=self._servers.brokers,
            connect=self._consuming.connect,
            send=self._send,
            tasks=self._tasks,
            emitter=self._emitter,
            worker=self._worker,
            registry=self._registry,
        )

    def _reads_in_bulk(self) -> bool:
        """The library's reader is always right; the bulk one only over a library that it knows."""
        if self._config.broker.receiver is Receiver.LIBRARY:
            return False
        if not knows_library():
            self._emitter.notice(
                "receiver.fallback", "warning", aiormq=library_version(), known=f"{KNOWN_AIORMQ}x"
            )
            return False
        return True

    def _link(self, role: str, *, bulk: bool) -> Link:
        broker = self._config.broker
        return Link(
            broker.addresses(),
            role,
            self._emitter,
            heartbeat_s=broker.heartbeat_s,
            connect_timeout_s=broker.connect_timeout_s,
            bulk=bulk,
            current=self._servers.brokers,
            on_change=self._readiness.link,
        )

    async def run(self, stop: Stop, tally: Tally, source: Source) -> Receipt:
        """Start, wait for the stop, drain, close. The lease ends last: until then our claims are ours."""
        consumers: list[asyncio.Task[None]] = []
        made: list[Consumer] = []
        lanes = self._assembly.lanes()
        chores = self._chores(lanes)
        followers = Followers(self._app, lanes, tuple(chores), self._steering)
        told = self._readiness, self._notify, self._emitter
        chores.append(reloading := Reloading(self._config, source, stop.reload, followers, *told))
        self._watch_gauges(lanes, lambda: reloading.config, tally)
        overlong = Overlong(lanes, self._tasks, self._config.broker.longest_unacked_s)
        try:
            with suppress(Stopped):
                await unless_stopped(stop, self._start())
                made = self._assembly.consumers(lanes)
                self._steering.steer(
                    {lane.name: lane for lane in lanes},
                    self._assembly.prefetches,
                    reports_of(self._assembly.observed),
                    stop.asked.set,
                )
                consumers = [asyncio.create_task(consumer.run(), name="consumer") for consumer in made]
                for chore in chores:
                    chore.start()
                overlong.start()
                self._vitals.task("the exchange of permits", self._exchange.task)
                self._vitals.add(self._ledger, self._lease, self._steering, overlong, *made, *chores)
                async with self._telling_when_ready(made):
                    await _first(stop.asked, *consumers)
            self._watchdog.ending = self._readiness.leaving = True
            self._steering.leave()
            for chore in chores:
                chore.stop()
            receipt = await drain(
                self._drain,
                lanes,
                made,
                self._tasks,
                tally,
                stop.cutter,
                self._notify,
                self._emitter,
                reloading.config.drain.deadline_s,
                self._readiness.away,
            )
            _raise_defect(consumers)
            return receipt
        finally:
            for task in consumers:
                task.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)
            await asyncio.gather(*(chore.close() for chore in chores))
            await overlong.close()
            await self._close()

    async def _start(self) -> None:
        """All that comes before the first consumer: a stop ends it wherever it is."""
        await self._probes.start()
        self._watchdog.start()
        await self._upkeep.start()
        await self._lease.start()
        await self._steering.start(PostgresWire(self._address(), self._steering.changed))
        await self._exchange.start(self._book())

    async def _close(self) -> None:
        # Side by side: a server that is silent is waited for by each, and the manager is not asked for more.
        links = (self._consuming, self._publishing, self._steering, self._exchange)
        await asyncio.gather(*(link.close() for link in links))
        # A thread that no drain could stop still works on its job: nobody may take that over before the lease
        # is out, and by then this process is gone.
        await self._lease.close(end=not self._drain.left)
        await self._watchdog.close()
        await self._probes.close()

    def _watch_gauges(self, lanes: list[Lane], config: Callable[[], Config], tally: Tally) -> None:
        if self._registry is None:
            return

        def left() -> Left | None:
            return left_of(self._drain, lanes, self._tasks, tally) if self._drain.started.is_set() else None

        self._registry.watch(
            Gauges(
                config=config,
                observed=self._assembly.observed,
                pauses=self._steering.pauses,
                budgets=self._assembly.budgets,
                lease=self._lease,
                links={"consumer": self._consuming, "publisher": self._publishing},
                watch=self._watch,
                draining=left,
            )
        )

    def _health(self) -> Health:
        return health_of(self._readiness, dict(one.state() for one in self._assembly.observed))

    def _address(self) -> Address:
        return Address.of(self._servers.ledger, allow_unsafe_server=self._config.ledger.allow_unsafe_server)

    def _book(self) -> PostgresBook:
        return PostgresBook(self._address(), self._exchange.heard, self._exchange.look_again)

    @asynccontextmanager
    async def _telling_when_ready(self, consumers: list[Consumer]) -> AsyncIterator[None]:
        telling = asyncio.create_task(self._tell_when_ready(consumers))
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell_when_ready(self, consumers: list[Consumer]) -> None:
        await asyncio.gather(*(consumer.ready.wait() for consumer in consumers))
        self._readiness.started = True
        self._notify.ready(self._readiness.text())
        self._emitter.notice("daemon.ready", lanes=list(self._config.lanes), worker=self._worker)


async def _first(stop: asyncio.Event, *consumers: asyncio.Task[None]) -> None:
    """Wait for the stop, or for a consumer that ends by itself: a defect, and a reason to drain."""
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({waiting, *consumers}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def _raise_defect(consumers: list[asyncio.Task[None]]) -> None:
    """What ended a consumer, now that all is drained."""
    for task in consumers:
        if task.done() and not task.cancelled():
            task.result()
