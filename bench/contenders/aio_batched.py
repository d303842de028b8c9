"""aio-pika with one ``multiple`` ack for all the messages of one turn of the event loop. No ledger."""

from __future__ import annotations

import asyncio

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.contenders.plain import declare, message, until_stopped
from bench.meter import hit
from bench.site import QUEUE, Site

__all__ = ["declare", "message"]


class Acks:
    """Right only because the handlers here end in the order of their messages."""

    def __init__(self) -> None:
        self._last: AbstractIncomingMessage | None = None
        self._sending: asyncio.Task[None] | None = None

    async def on_message(self, received: AbstractIncomingMessage) -> None:
        hit()
        self._last = received
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        await asyncio.sleep(0)
        last, self._last, self._sending = self._last, None, None
        assert last is not None
        await last.ack(multiple=True)


async def main(site: Site) -> None:
    async with await aio_pika.connect(site.broker_url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=site.prefetch)
        queue = await channel.get_queue(QUEUE)
        await queue.consume(Acks().on_message)
        await until_stopped()


if __name__ == "__main__":
    asyncio.run(main(Site.of()))
