"""Finds the jobs that the ledger says should be in the broker and are not; sends again what is kept of them.

A queue that was purged or deleted, a node that was lost with its disk: the broker says nothing, and a job
that was in there would wait for ever. What is sent again by mistake does no harm: the ledger lets one copy
through.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import AMQPError, ChannelNotFoundEntity

from acklast.absence import SLACK, Absence, Look
from acklast.chores import Pass
from acklast.config import Config
from acklast.custody import raw_of
from acklast.ledger.connect import Address
from acklast.ledger.missing import AlreadySearching, Overdue, Search
from acklast.pruner import pause_s
from acklast.settle import Send
from acklast.stuck import stuck
from acklast.telemetry.events import Emitter
from acklast_topology.carrier import carrier_properties
from acklast_topology.inspect import LOOKS_S
from acklast_topology.names import Names, work_key
from acklast_topology.plan import FAIR_QUEUES
from acklast_topology.sender import Status

LOOKS: Final = 5
LOOK_S: Final = 3.0
"""A daemon tells the ledger every second what it holds."""
_ANSWER_S: Final = 5.0
_EXAMPLES: Final = 5
_IN_VAIN: Final = 3
"""So many messages in a row without an answer are enough: under an alarm each waits for its whole time, and
nobody else may search meanwhile. The others are left to the next pass."""


@dataclass(slots=True)
class Found:
    """One lane's overdue jobs: those that are ``missing`` for certain, and what became of these.

    ``unproven`` may be in the broker still: the lane's queues were never seen empty since they were due.
    """

    unproven: int = 0
    missing: int = 0
    kept: int = 0
    """Of the missing ones: the ledger has their messages."""
    sent: int = 0
    unconfirmed: int = 0
    examples: list[str] = field(default_factory=list)
    """Keys of the first that are missing and were not sent."""

    def note(self, job: Overdue, status: Status | None) -> None:
        """A missing job; ``status`` is None where it was not sent."""
        self.missing += 1
        self.kept += job.kept
        self.sent += status is Status.CONFIRMED
        self.unconfirmed += status not in (None, Status.CONFIRMED)
        if status is not Status.CONFIRMED and len(self.examples) < _EXAMPLES:
            self.examples.append(job.key)


Lanes = Mapping[str, Absence]


class Holds(Protocol):
    """What tells what the daemons hold: ``ledger.missing.Search``, ``ledger.held.Holdings``."""

    async def held(self) -> tuple[datetime, Mapping[str, int]]: ...


def queues_of(config: Config) -> Mapping[str, Sequence[str]]:
    """Of each lane the queues in which a job may be that should have started."""
    names = config.names
    found = {}
    for lane, settings in config.lanes.items():
        fair = [names.fair(lane, number) for number in FAIR_QUEUES if settings.fair_by is not None]
        # What the broker set aside is there, and not filed yet. What is replaced has its jobs in a stand-in.
        queues = [names.work(lane), names.dead(lane), *fair]
        found[lane] = [*queues, *map(names.moving, queues)]
    return found


def absences_of(config: Config) -> Lanes:
    """Of each lane what looks at its queues prove: nothing yet."""
    # What waits for a slot goes back sooner; not so what waits for the broker to take its carrier in.
    hold = timedelta(seconds=config.broker.longest_unacked_s + LOOKS_S)
    return {lane: Absence(hold) for lane in config.lanes}


async def counts(connection: AbstractConnection, queues: Sequence[str]) -> tuple[int | None, int]:
    """How many messages are ready in all of these, None where that cannot be seen; and the fewest consumers.

    Raises:
        ConnectionError, TimeoutError: the broker is away.
    """
    ready, fewest = 0, 1 << 30
    try:
        for queue in queues:
            try:
                async with (
                    asyncio.timeout(_ANSWER_S),
                    connection.channel(publisher_confirms=False) as channel,
                ):
                    answer = await (await channel.get_underlay_channel()).queue_declare(queue, passive=True)
            except ChannelNotFoundEntity:
                continue  # and nothing is in it
            ready, fewest = ready + (answer.message_count or 0), min(fewest, answer.consumer_count or 0)
    except AMQPError:
        return None, 0
    except RuntimeError as error:  # how the library says that the connection is gone
        raise ConnectionError(str(error)) from error
    return ready, fewest


async def look(
    search: Holds, connection: AbstractConnection, queues: Mapping[str, Sequence[str]], lanes: Lanes
) -> AsyncGenerator[int, None]:
    """Look at the queues, as often as it takes to prove something of each lane, and a few times at most.

    Yields how often it has looked.

    Raises:
        LedgerUnavailable, ConnectionError, TimeoutError: one of both is away.
    """
    first: datetime | None = None
    for number in range(LOOKS):
        if number:
            await asyncio.sleep(LOOK_S)
        # The time first: what is ready is counted after it. What is held is of the look before.
        now, held = await search.held()
        for lane, absence in lanes.items():
            ready, consumers = await counts(connection, queues[lane])
            absence.saw(Look(now, ready, consumers, held.get(lane, 0)))
        yield number + 1
        first = first or now
        if all(absence.proven is not None and absence.proven >= first for absence in lanes.values()):
            return


async def sort_out(
    search: Search, lanes: Lanes, send_again: Callable[[Overdue], Awaitable[Status | None]]
) -> AsyncGenerator[tuple[Mapping[str, Found], int, int], None]:
    """Walk through the ledger; yields what was found so far, and how far the walk has come.

    ``send_again`` is called for each job that is missing.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    found = {lane: Found() for lane in lanes}
    began = time.monotonic()
    async with aclosing(search.overdue(list(lanes), SLACK.total_seconds())) as stretches:
        async for jobs, at, of in stretches:
            took_s = time.monotonic() - began
            for job in jobs:
                if lanes[job.lane].covers(job.due_at):
                    found[job.lane].note(job, await send_again(job))
                else:
                    found[job.lane].unproven += 1
            yield found, at, of
            await asyncio.sleep(pause_s(took_s, len(jobs)))
            began = time.monotonic()


class Again:
    """Sends the kept message of a job to its lane's work queue."""

    def __init__(self, search: Search, names: Names, send: Send) -> None:
        self._search = search
        self._names = names
        self._send = send
        self._vain = 0

    async def __call__(self, job: Overdue) -> Status | None:
        """None where nothing is kept of it, or it has moved meanwhile, or the broker takes nothing in.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        if not job.kept or self._vain == _IN_VAIN or (kept := await self._search.take(job)) is None:
            return None
        properties = carrier_properties(raw_of(kept), job.key)
        sent = await self._send(self._names.route, work_key(job.lane), kept.body, properties)
        self._vain = self._vain + 1 if sent.status is Status.UNKNOWN else 0
        return sent.status


class Reconciler(Pass):
    """The daemon's own: a pass over its lanes."""

    name = "reconcile"
    taken = AlreadySearching

    def __init__(
        self,
        config: Config,
        address: Address,
        brokers: Callable[[], Sequence[str]],
        connect: Callable[[], Awaitable[AbstractConnection]],
        send: Send,
        emitter: Emitter,
        *,
        chance: Callable[[], float],
    ) -> None:
        """``brokers`` says the broker's URLs of the moment."""
        super().__init__(emitter, config.ledger.reconcile_every_s, chance)
        self._brokers = brokers
        self._management = config.broker.management_url
        self._planned = {queue.name for queue in config.plan().queues}
        self._queues = queues_of(config)
        self._lanes = absences_of(config)
        self._address = address
        self._connect = connect
        self._names = config.names
        self._send = send
        self._told: dict[str, tuple[int, int]] = {}
        self._stuck: Mapping[str, int] = {}

    async def once(self) -> None:
        search = await Search.connect(self._address)
        try:
            looks = look(search, await self._connect(), self._queues, self._lanes)
            async with aclosing(looks):
                async for _ in looks:
                    pass
            found: Mapping[str, Found] = {}
            again = Again(search, self._names, self._send)
            async with aclosing(sort_out(search, self._lanes, again)) as steps:
                async for step in steps:
                    found = step[0]
            await search.sweep()
        finally:
            await search.close()
        for lane, what in found.items():
            self._tell(lane, what)
        self._tell_stuck(*await stuck(self._brokers, self._management, self._planned))

    def _tell_stuck(self, found: Mapping[str, int], unseen: str) -> None:
        """Once for each change; what cannot be seen here was told at the start."""
        if not unseen and found != self._stuck:
            self._stuck = found
            self._emitter.notice("jobs.stuck", "warning" if found else "info", queues=found)

    def _tell(self, lane: str, found: Found) -> None:
        """Once for each change: what nobody puts right is found again in every pass."""
        told, self._told[lane] = self._told.get(lane, (0, 0)), (found.missing, found.sent)
        if found.sent or told != self._told[lane]:
            self._emitter.notice(
                "jobs.missing",
                "warning" if found.missing else "info",
                lane=lane,
                count=found.missing,
                sent=found.sent,
                unconfirmed=found.unconfirmed,
                keys=found.examples,
            )
