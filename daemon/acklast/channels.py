"""The channel of a consuming session, once for each receiver, and what the library's makes of a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import aio_pika
from aiormq.abc import AbstractChannel, DeliveredMessage

from acklast.acks import Prefix, nack_frame
from acklast.receiver import BulkProtocol
from acklast_topology.contract import RawMessage

LOST = (OSError, aio_pika.exceptions.AMQPError, RuntimeError, TimeoutError)
"""What the client library raises on a channel or a connection that is gone."""


class LibraryChannel:
    """The channel of one consuming session, as the settler sees it."""

    __slots__ = ("_channel", "gone", "settled", "taken")

    def __init__(self, channel: AbstractChannel) -> None:
        self._channel = channel
        self.taken = 0
        """Deliveries that came so far, and ``settled``: those that were acked or nacked."""
        self.settled = 0
        self.gone = False
        """It is being closed: nothing may be sent on it any more, even while it is not closed yet."""

    @property
    def alive(self) -> bool:
        return not (self.gone or self._channel.is_closed)

    def retire(self) -> None:
        """Send nothing more: the channel is about to be closed."""
        self.gone = True

    async def ack(self, tag: int) -> bool:
        if self.gone:
            return False
        return await self._send(self._channel.basic_ack(tag, wait=False))

    async def nack(self, tag: int) -> bool:
        if self.gone:
            return False
        return await self._send(self._channel.basic_nack(tag, requeue=True, wait=False))

    async def _send(self, call: Awaitable[None]) -> bool:
        """Whether the library took the frame.

        It takes a few and holds up the next. Once the connection is dead nobody makes room for those any
        more, and whoever waited on would wait for ever: with its delivery, and every drain with it.
        """
        sending, closing = asyncio.ensure_future(call), self._channel.closing
        try:
            await asyncio.wait({sending, closing}, return_when=asyncio.FIRST_COMPLETED)
            self.settled += 1
            return sending.done() and _sent(sending)
        finally:
            sending.cancel()
            closing.cancel()  # ours alone: the library makes one for each who asks


def _sent(sending: asyncio.Future[None]) -> bool:
    try:
        sending.result()
    except (*LOST, asyncio.CancelledError):
        return False
    return True


class BulkChannel:
    """The same over the bulk receiver: the acks of one turn of the event loop go in one write."""

    __slots__ = ("_channel", "_prefix", "_protocol", "_tags", "gone", "settled", "taken")

    def __init__(self, channel: AbstractChannel, protocol: BulkProtocol) -> None:
        self._channel = channel
        self._protocol = protocol
        self._prefix = Prefix()
        self._tags: list[int] = []
        self.taken = 0
        self.settled = 0
        self.gone = False

    @property
    def alive(self) -> bool:
        return not (self.gone or self._channel.is_closed)

    def retire(self) -> None:
        """Send what waits, and nothing more: the channel is about to be closed."""
        self._flush()
        self.gone = True

    def lost(self) -> None:
        """Send nothing more: the broker has closed the channel."""
        self.gone = True

    async def ack(self, tag: int) -> bool:
        if not self.alive:
            return False
        if not self._tags:
            asyncio.get_running_loop().call_soon(self._flush)
        self._tags.append(tag)
        return True

    async def nack(self, tag: int) -> bool:
        if not self.alive:
            return False
        # Written at once, so ahead of any multiple ack that covers it.
        self._prefix.settle([tag])
        self._protocol.write(nack_frame(self._channel.number, tag))
        self.settled += 1
        return True

    def _flush(self) -> None:
        tags, self._tags = self._tags, []
        self.settled += len(tags)
        if tags and self.alive:
            self._protocol.write(self._prefix.frames(self._channel.number, tags))


def raw_of(message: DeliveredMessage) -> RawMessage:
    """What the library made of a message, as the contract reads it."""
    deliver, properties = message.delivery, message.header.properties
    return RawMessage(
        body=message.body,
        exchange=text_of(getattr(deliver, "exchange", None)),
        routing_key=text_of(message.routing_key),
        redelivered=bool(message.redelivered),
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        headers=properties.headers or {},
        delivery_mode=properties.delivery_mode,
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        expiration=properties.expiration,
        message_id=properties.message_id,
        timestamp=properties.timestamp,
        type=properties.message_type,
        user_id=properties.user_id,
        app_id=properties.app_id,
    )


def text_of(value: str | bytes | None) -> str:
    """A name that the broker sent; what of it is not UTF-8 is escaped."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value or ""
