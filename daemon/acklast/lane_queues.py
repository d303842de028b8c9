"""A lane's queues: their names, and how many jobs wait in them as far as the broker tells."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import AMQPChannelError, ChannelInvalidStateError, ChannelNotFoundEntity

from acklast.config import Config
from acklast_topology.calls import ConnectionDied, bounded
from acklast_topology.plan import plan_for

_ANSWER_S: Final = 10.0


@dataclass(slots=True)
class Queues:
    """One lane's queues. What a daemon has been given already is in none of these numbers."""

    ready: int | None = None
    """In the work queue; None where it could not be seen."""
    delayed: int | None = None
    """In the wait queues that could be seen; None where none could."""
    missing: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


def messages_in(queues: Mapping[str, Queues]) -> dict[str, int]:
    """What is in each lane's queues, those that wait for their time included; without lanes that could not be
    seen.
    """
    return {lane: one.ready + (one.delayed or 0) for lane, one in queues.items() if one.ready is not None}


def names_of(config: Config, lane: str) -> tuple[list[str], list[str]]:
    """The queues in which a lane's jobs are ready, and those in which they wait for their time."""
    names, fair = config.names, [lane] if lane in config.fair_lanes else []
    queues = [queue.name for queue in plan_for(names, [lane], config.wait_buckets_s, fair=fair).queues]
    waits = [name for name in queues if name.startswith(names.wait(lane, 0).removesuffix("0"))]
    asides = [name for name in queues if name.startswith(names.fair(lane, 0).removesuffix("0"))]
    return [name for name in queues if name.startswith(names.work(lane))] + asides, waits


async def look_at(connection: AbstractConnection, config: Config, lanes: Iterable[str]) -> dict[str, Queues]:
    """How many messages are in the queues of each lane.

    Raises:
        ConnectionDied, TimeoutError: the broker is away.
    """
    found = {lane: Queues() for lane in lanes}
    async with _asking(connection) as counter:
        for lane, queues in found.items():
            work, waits = names_of(config, lane)
            queues.ready = await counter.sum(work, queues)
            queues.delayed = await counter.sum(waits, queues)
    return found


async def work_of(connection: AbstractConnection, config: Config, lanes: Iterable[str]) -> dict[str, Queues]:
    """The lanes' work queues alone, which are few.

    Raises:
        ConnectionDied, TimeoutError: the broker is away.
    """
    found = {lane: Queues() for lane in lanes}
    async with _asking(connection) as counter:
        for lane, queues in found.items():
            queues.ready = await counter.sum(names_of(config, lane)[0], queues)
    return found


async def count(connection: AbstractConnection, queue: str) -> int | None:
    """How many messages are ready in one queue; None where that cannot be seen.

    Raises:
        ConnectionDied, TimeoutError: the broker is away.
    """
    async with _asking(connection) as counter:
        return await counter.count(queue, Queues())


@asynccontextmanager
async def _asking(connection: AbstractConnection) -> AsyncIterator[_Counter]:
    counter = _Counter(connection)
    try:
        yield counter
    finally:
        with suppress(Exception):  # the connection may be gone, and its channels with it
            await counter.close()


class _Counter:
    """Asks for one queue after the other, on one channel as long as that stays open."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._channel: AbstractChannel | None = None

    async def close(self) -> None:
        if self._channel is not None:
            async with bounded(_ANSWER_S):
                await self._channel.close()

    async def sum(self, names: list[str], queues: Queues) -> int | None:
        counts = [await self.count(name, queues) for name in names]
        seen = [count for count in counts if count is not None]
        return sum(seen) if seen else None

    async def count(self, name: str, queues: Queues) -> int | None:
        """Where the queue is not there, or not ours to see, the broker closes the channel."""
        try:
            async with bounded(_ANSWER_S):
                under = await (await self._open()).get_underlay_channel()
                return (await under.queue_declare(name, passive=True)).message_count
        except ChannelNotFoundEntity:
            queues.missing.append(name)
        except AMQPChannelError:  # no permission, or an exclusive queue of somebody else's
            queues.unseen.append(name)
        except (ChannelInvalidStateError, RuntimeError) as error:
            raise ConnectionDied(f"the connection ended: {error}") from error
        self._channel = None
        return None

    async def _open(self) -> AbstractChannel:
        if self._channel is None:
            channel = self._connection.channel(publisher_confirms=False)
            await channel.initialize()
            self._channel = channel
        return self._channel
