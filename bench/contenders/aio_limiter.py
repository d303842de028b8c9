"""aio-pika with aiolimiter around the call, as its documentation has it; each process has its part of the
quota.

A refused call waits as long as it was told and is made again. No ledger.
"""

from __future__ import annotations

import asyncio
import os

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from aiolimiter import AsyncLimiter

from bench.caller import Caller
from bench.contenders.plain import declare, message, until_stopped
from bench.site import QUEUE, Site

__all__ = ["declare", "message"]


async def main(site: Site) -> None:
    part = int(os.environ["BENCH_QUOTA"]) / int(os.environ["BENCH_PROCESSES"])
    limiter = AsyncLimiter(part, float(os.environ["BENCH_PERIOD_S"]))
    caller = Caller()
    slots = asyncio.Semaphore(site.concurrency)

    async def on_message(received: AbstractIncomingMessage) -> None:
        async with slots:
            while True:
                async with limiter:
                    retry_after_s = await caller.call()
                if retry_after_s is None:
                    break
                await asyncio.sleep(retry_after_s)
        await received.ack()

    async with await aio_pika.connect(site.broker_url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=site.prefetch)
        queue = await channel.get_queue(QUEUE)
        await queue.consume(on_message)
        print("ready", flush=True)  # noqa: T201 - to whoever started it
        await until_stopped()


if __name__ == "__main__":
    asyncio.run(main(Site.of()))
