"""aio-pika as its documentation has it: a callback, an ack for each message. No ledger."""

from __future__ import annotations

import asyncio

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.contenders.plain import declare, message, until_stopped
from bench.meter import hit
from bench.site import QUEUE, Site

__all__ = ["declare", "message"]


async def on_message(received: AbstractIncomingMessage) -> None:
    hit()
    await received.ack()


async def main(site: Site) -> None:
    async with await aio_pika.connect(site.broker_url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=site.prefetch)
        queue = await channel.get_queue(QUEUE)
        await queue.consume(on_message)
        await until_stopped()


if __name__ == "__main__":
    asyncio.run(main(Site.of()))
