"""The ledger that is usually written: claim and complete each message in a statement of its own, then ack it.

Ten connections, as many messages at once. A key that is claimed already is not handled again.
"""

from __future__ import annotations

import asyncio

import aio_pika
import asyncpg
from aio_pika.abc import AbstractIncomingMessage

from bench.contenders.plain import declare, message, until_stopped
from bench.meter import hit
from bench.site import QUEUE, Site

__all__ = ["declare", "message"]

CLAIM = "INSERT INTO bench_naive (key) VALUES ($1) ON CONFLICT (key) DO NOTHING RETURNING key"
COMPLETE = "UPDATE bench_naive SET state = 'done', done_at = now() WHERE key = $1"


class Consumer:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def on_message(self, received: AbstractIncomingMessage) -> None:
        async with self._pool.acquire() as connection:
            if await connection.fetchval(CLAIM, received.message_id) is not None:
                hit()
                await connection.execute(COMPLETE, received.message_id)
        await received.ack()


async def main(site: Site) -> None:
    pool = asyncpg.create_pool(site.ledger_dsn, min_size=site.concurrency, max_size=site.concurrency)
    async with pool, await aio_pika.connect(site.broker_url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=site.prefetch)
        queue = await channel.get_queue(QUEUE)
        await queue.consume(Consumer(pool).on_message)
        await until_stopped()


if __name__ == "__main__":
    asyncio.run(main(Site.of()))
