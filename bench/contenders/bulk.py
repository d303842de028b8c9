"""acklast's own receiver and acks around a plain function. No ledger: the ceiling for the daemon."""

from __future__ import annotations

import asyncio

import aio_pika

from acklast.acks import Prefix
from acklast.receiver import BulkConnection, BulkProtocol
from acklast_topology.contract import RawMessage
from bench.contenders.plain import declare, message, until_stopped
from bench.meter import hit
from bench.site import QUEUE, Site

__all__ = ["declare", "message"]


class Acks:
    """The acks of one turn of the event loop, in one write."""

    def __init__(self, protocol: BulkProtocol, channel: int) -> None:
        self._protocol = protocol
        self._channel = channel
        self._prefix = Prefix()
        self._tags: list[int] = []
        self._loop = asyncio.get_running_loop()

    def take(self, tag: int, _: RawMessage) -> None:
        hit()
        if not self._tags:
            self._loop.call_soon(self._send)
        self._tags.append(tag)

    def _send(self) -> None:
        tags, self._tags = self._tags, []
        self._protocol.write(self._prefix.frames(self._channel, tags))


async def main(site: Site) -> None:
    connection = await aio_pika.connect(site.broker_url, connection_class=BulkConnection)
    async with connection:
        assert connection.transport is not None
        assert isinstance(connection.layer.protocol, BulkProtocol)
        channel = await connection.transport.connection.channel(publisher_confirms=False)
        await channel.basic_qos(prefetch_count=site.prefetch)
        protocol = connection.layer.protocol
        protocol.take(channel.number, Acks(protocol, channel.number).take)
        await channel.basic_consume(QUEUE, _unused)
        await until_stopped()


async def _unused(_: object) -> None:
    """The library wants a callback; the receiver takes the deliveries before it."""


if __name__ == "__main__":
    asyncio.run(main(Site.of()))
