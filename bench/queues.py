"""Queues as the contenders need them: filled before the clock runs, looked at after it has stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import aio_pika
import aiormq
from aio_pika.abc import AbstractConnection
from aiormq import spec

from bench.site import QUEUE

QUORUM: Final = {"x-queue-type": "quorum"}
_ARRIVED_S: Final = 60.0
_POLL_S: Final = 0.05
_BURST: Final = 500


class BenchError(Exception):
    """A measurement that would not be one. The text says what went wrong."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message as its consumer wants it, persistent."""

    body: bytes
    properties: dict[str, Any] = field(default_factory=dict)
    routing_key: str = QUEUE
    exchange: str = ""


async def declare_queue(connection: AbstractConnection) -> str:
    """The plain quorum queue of the contenders that need no more than that."""
    async with connection.channel() as channel:
        await channel.declare_queue(QUEUE, durable=True, arguments=dict(QUORUM))
    return QUEUE


async def fill(connection: AbstractConnection, queue: str, messages: Iterable[Outgoing], count: int) -> None:
    """Publish ``count`` messages, and see that all are in the queue.

    Without confirms, at three times the speed: the broker's own count is the proof.

    Raises:
        BenchError: they did not all arrive.
    """
    assert connection.transport is not None
    channel = await connection.transport.connection.channel(publisher_confirms=False)
    assert isinstance(channel, aiormq.Channel)
    for number, message in enumerate(messages):
        await channel.basic_publish(
            message.body,
            exchange=message.exchange,
            routing_key=message.routing_key,
            properties=spec.Basic.Properties(delivery_mode=2, **message.properties),
            wait=False,
        )
        if number % _BURST == 0:
            await asyncio.sleep(0)
    await _reaches(connection, queue, count)
    await channel.close()


async def ready(connection: AbstractConnection, queue: str) -> int:
    """Messages that wait in a queue, those that a consumer holds not counted."""
    async with connection.channel() as channel:
        declared = await channel.declare_queue(queue, passive=True)
    return declared.declaration_result.message_count or 0


async def _reaches(connection: AbstractConnection, queue: str, count: int) -> None:
    until = monotonic() + _ARRIVED_S
    while (found := await ready(connection, queue)) != count:
        if monotonic() > until:
            raise BenchError(f"{found} of {count} messages arrived in {queue} within {_ARRIVED_S:g} s")
        await asyncio.sleep(_POLL_S)


async def fill_from(
    url: str,
    declare: Callable[[AbstractConnection], Any],
    message: Callable[[int], Outgoing],
    numbers: range,
) -> str:
    """Declare what a contender needs and fill its queue with these messages; the queue's name."""
    async with await aio_pika.connect(url) as connection:
        queue: str = await declare(connection)
        await fill(connection, queue, map(message, numbers), len(numbers))
    return queue
