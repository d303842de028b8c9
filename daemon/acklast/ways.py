"""The ways by which messages come into a queue, to be opened and shut: its bindings, whoever made them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelClosed, ChannelLockedResource

from acklast.errors import AlreadyChanging, TopologyError
from acklast_topology.declare import throw_away_channel
from acklast_topology.names import Names
from acklast_topology.plan import bindings_of

Rows: TypeAlias = list[dict[str, Any]]

ALONE: Final[dict[str, Any]] = {"x-queue-type": "classic"}
"""Arguments of an exclusive queue. A virtual host may make others by default, which cannot be exclusive."""


@dataclass(frozen=True, slots=True)
class Way:
    """One binding of some queue."""

    source: str
    key: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def ways_of(names: Names, queue: str, bindings: Rows) -> list[Way]:
    """How a queue is to be reached: as planned for its name, and by the bindings that others made.

    What stands in for it while it is replaced has the same ones. ``bindings`` are as the API lists them.
    """
    ways = [Way(one.source, one.key) for one in bindings_of(names, queue)]
    for row in bindings:
        way = Way(row["source"], row["routing_key"], row["arguments"])
        to_it = row["destination_type"] == "queue" and row["destination"] in (queue, names.moving(queue))
        if to_it and way.source and way not in ways:
            ways.append(way)
    return ways


async def open_ways(connection: AbstractConnection, queue: str, ways: list[Way]) -> None:
    """Bind a queue.

    Raises:
        TopologyError: the broker refuses.
    """
    async with asking(connection) as channel:
        for way in ways:
            await channel.queue_bind(queue, way.source, way.key, arguments=dict(way.arguments))


async def shut_ways(connection: AbstractConnection, queue: str, ways: list[Way]) -> None:
    """Unbind a queue: after that nothing comes into it.

    Raises:
        TopologyError: the broker refuses.
    """
    async with asking(connection) as channel:
        for way in ways:
            await channel.queue_unbind(queue, way.source, way.key, arguments=dict(way.arguments))


async def bar_others(connection: AbstractConnection, names: Names) -> None:
    """See that nobody else replaces or removes queues of the namespace as long as this connection lives.

    Two would empty the same queue into each other's, or delete one that the other has just made. What bars
    the second is a queue that only one connection may use, and that ends with it.

    Raises:
        AlreadyChanging: somebody does.
        TopologyError: this user may not.
    """
    async with asking(connection) as channel:
        try:
            await channel.queue_declare(names.changing, exclusive=True, arguments=ALONE)
        except ChannelLockedResource as error:
            raise AlreadyChanging from error


@asynccontextmanager
async def asking(connection: AbstractConnection) -> AsyncIterator[AbstractChannel]:
    """A channel for what the broker may refuse.

    Raises:
        TopologyError: it does.
    """
    try:
        async with throw_away_channel(connection) as channel:
            yield channel
    except ChannelClosed as error:
        raise TopologyError(
            f"the broker refuses: {error}",
            "Use a user with the rights of acklast-declarer (`acklast topology export --permissions`)",
        ) from error
