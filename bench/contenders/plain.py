"""What the contenders without a framework share: a plain queue, a plain message, an end by SIGTERM."""

from __future__ import annotations

import asyncio
import signal

from bench.queues import Outgoing, declare_queue
from bench.site import body

declare = declare_queue


def message(number: int) -> Outgoing:
    """A job with an id, as any publisher would send it."""
    return Outgoing(body(number), {"content_type": "application/json", "message_id": f"bench:{number:08d}"})


async def until_stopped() -> None:
    """Wait for SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
