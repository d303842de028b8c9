"""Moves what is in one queue to another, and knows when a queue holds nothing any more.

A message is published to its new place, confirmed, and acked in the old one then: a crash in between leaves
it in both, and the ledger lets one of the two through.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from aio_pika.abc import AbstractConnection
from aiormq import spec
from aiormq.abc import AbstractChannel, DeliveredMessage

from acklast.channels import raw_of
from acklast.errors import TopologyError
from acklast_topology import contract
from acklast_topology.calls import bounded
from acklast_topology.carrier import carrier_properties
from acklast_topology.contract import Malformed
from acklast_topology.declare import ready
from acklast_topology.message import KEY_HEADER, RawMessage
from acklast_topology.sender import Sender, Status
from acklast_topology.wire import Properties

GRACE_S: Final = 15.0
"""A queue is empty when it was for so long. Its statistics are up to ten seconds old: every five the queue
tells them, and for as long the management API keeps them."""
_STATISTICS_S: Final = 60.0
"""The longest that is waited for the statistics of a new queue."""
_LOOK_S: Final = 0.5
_GET_S: Final = 10.0
"""How long the broker may take to hand over a message, or to say that there is none."""
_BATCH: Final = 64
"""Messages that are published before their confirms are waited for."""
_BATCH_BYTES: Final = 16 * 2**20
"""Of their bodies; the last one may be beyond it. A queue of large messages would else fill the memory."""

Listed: TypeAlias = Callable[[], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""Asks the management API for the queues of the virtual host, by name."""
Tell: TypeAlias = Callable[[str, str, int], None]
"""Is told of each step: its name, the queue, and a count."""


def moved_properties(raw: RawMessage) -> Properties:
    """The properties by which a message moves: it means afterwards what it meant before.

    Its message id becomes a fresh one, so the key goes into its header. What had no key must not get one.
    """
    read = contract.parse(raw)
    properties = carrier_properties(raw, read.key or "")
    if isinstance(read, Malformed) and KEY_HEADER in raw.headers:
        assert properties.headers is not None
        properties.headers[KEY_HEADER] = raw.headers[KEY_HEADER]
    return properties


class Mover:
    """Moves messages over one connection, which is to declare, to read and to publish."""

    def __init__(self, connection: AbstractConnection, tell: Tell) -> None:
        self.connection = connection
        self.tell = tell

    async def move(self, source: str, exchange: str, key: str | None) -> int:
        """Move what is ready in ``source`` to where ``exchange`` routes ``key``; how many.

        ``key`` is None where each message keeps its own.

        Raises:
            TopologyError: the broker did not confirm one.
            ConnectionError: the connection ended.
        """
        sender = await Sender.open(self.connection)
        moved = 0
        try:
            async with self.connection.channel(publisher_confirms=False) as taking:
                channel = await taking.get_underlay_channel()
                while batch := await _taken(channel, source):
                    await self._publish(sender, batch, exchange, key)
                    self.tell("published", source, len(batch))
                    last = batch[-1].delivery
                    assert isinstance(last, spec.Basic.GetOk)
                    assert last.delivery_tag is not None
                    await channel.basic_ack(last.delivery_tag, multiple=True, wait=True)
                    moved += len(batch)
                    self.tell("moved", source, moved)
        finally:
            await sender.close()
        return moved

    @staticmethod
    async def _publish(sender: Sender, batch: list[DeliveredMessage], exchange: str, key: str | None) -> None:
        async def publish(message: DeliveredMessage) -> None:
            raw = raw_of(message)
            to = raw.routing_key if key is None else key
            sent = await sender.send(exchange, to, raw.body, moved_properties(raw))
            if sent.status is not Status.CONFIRMED:
                raise TopologyError(
                    f"a message could not be moved: {sent.detail}", "It stays where it is. Run this again"
                )

        await asyncio.gather(*map(publish, batch))


async def _taken(channel: AbstractChannel, queue: str) -> list[DeliveredMessage]:
    taken: list[DeliveredMessage] = []
    size = 0
    while len(taken) < _BATCH and size < _BATCH_BYTES:
        async with bounded(_GET_S):
            message = await channel.basic_get(queue)
        if not isinstance(message.delivery, spec.Basic.GetOk):
            break
        taken.append(message)
        size += len(message.body)
    return taken


class Emptiness:
    """Whether a queue that nothing comes into any more holds nothing: ready, held or on its way out."""

    def __init__(self, connection: AbstractConnection, listed: Listed, grace_s: float = GRACE_S) -> None:
        self._connection = connection
        self._listed = listed
        self._grace_s = grace_s

    async def seen(self, queue: str, *, unread: bool = False) -> bool:
        """Watch it for the grace; False as soon as it holds something. ``unread``: or is consumed.

        A queue that is new has no statistics yet: the grace begins when it has.
        """
        began = since = time.monotonic()
        while True:
            holds, now = await self.holds(queue, unread=unread), time.monotonic()
            if holds or now - began >= _STATISTICS_S + self._grace_s:
                return False
            if holds is None:
                since = now
            elif now - since >= self._grace_s:
                return True
            await asyncio.sleep(_LOOK_S)

    async def holds(self, queue: str, *, unread: bool = False) -> bool | None:
        """Whether it holds anything now; None where the API cannot tell yet."""
        messages, consumers = await ready(self._connection, queue)
        row = (await self._listed()).get(queue, {})
        listed = [row.get("messages"), row.get("messages_dlx", 0 if row.get("type") == "classic" else None)]
        if messages or any(listed) or (unread and consumers):
            return True
        return None if None in listed else False
