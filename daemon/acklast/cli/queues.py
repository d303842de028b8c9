"""How many jobs wait in a lane's queues, as far as the broker tells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import AMQPChannelError, ChannelInvalidStateError, ChannelNotFoundEntity

from acklast.cli.servers import broker_of
from acklast.config import Config
from acklast.errors import AcklastError
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


async def look(config: Config, lanes: Iterable[str]) -> tuple[dict[str, Queues], str | None]:
    """The queues of these lanes, and why nothing can be said of them where the broker cannot be asked."""
    found: dict[str, Queues] = {lane: Queues() for lane in lanes}
    try:
        async with broker_of(config) as connection:
            for lane in found:
                found[lane] = await _look_at(connection, config, lane)
    except AcklastError as error:
        return {lane: Queues(unseen=[*chain(*names_of(config, lane))]) for lane in found}, error.what
    return found, None


async def work_of(connection: AbstractConnection, config: Config, lanes: Iterable[str]) -> dict[str, Queues]:
    """The lanes' work queues alone, which are few.

    Raises:
        ConnectionDied: the connection ended.
    """
    found = {lane: Queues() for lane in lanes}
    for lane, queues in found.items():
        queues.ready = await _sum(connection, names_of(config, lane)[0], queues)
    return found


async def ready_in(config: Config, queue: str) -> int | None:
    """How many messages are ready in one queue; None where that cannot be seen."""
    try:
        async with broker_of(config) as connection:
            return await _count(connection, queue, Queues())
    except AcklastError:
        return None


def names_of(config: Config, lane: str) -> tuple[list[str], list[str]]:
    """The queues in which a lane's jobs are ready, and those in which they wait for their time."""
    names, fair = config.names, [lane] if lane in config.fair_lanes else []
    queues = [queue.name for queue in plan_for(names, [lane], config.wait_buckets_s, fair=fair).queues]
    waits = [name for name in queues if name.startswith(names.wait(lane, 0).removesuffix("0"))]
    asides = [name for name in queues if name.startswith(names.fair(lane, 0).removesuffix("0"))]
    return [name for name in queues if name.startswith(names.work(lane))] + asides, waits


async def _look_at(connection: AbstractConnection, config: Config, lane: str) -> Queues:
    queues = Queues()
    work, waits = names_of(config, lane)
    queues.ready = await _sum(connection, work, queues)
    queues.delayed = await _sum(connection, waits, queues)
    return queues


async def _sum(connection: AbstractConnection, names: list[str], queues: Queues) -> int | None:
    counts = [await _count(connection, name, queues) for name in names]
    seen = [count for count in counts if count is not None]
    return sum(seen) if seen else None


async def _count(connection: AbstractConnection, name: str, queues: Queues) -> int | None:
    """On a channel of its own: the broker closes it where the queue is not there."""
    try:
        async with bounded(_ANSWER_S), connection.channel(publisher_confirms=False) as channel:
            under = await channel.get_underlay_channel()
            return (await under.queue_declare(name, passive=True)).message_count
    except ChannelNotFoundEntity:
        queues.missing.append(name)
    except AMQPChannelError:  # no permission, or an exclusive queue of somebody else's
        queues.unseen.append(name)
    except (ChannelInvalidStateError, RuntimeError) as error:
        raise ConnectionDied(f"the connection ended: {error}") from error
    return None
