"""A lane's consumer: keeps one channel consuming, whatever the broker does to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import aio_pika
import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage

from acklast.acks import Prefix, nack_frame
from acklast.broker import Link
from acklast.receiver import BulkProtocol
from acklast.settle import ConsumeChannel, Delivery, nothing_to_repair
from acklast.telemetry.events import Emitter
from acklast_topology.calls import only_real_cancellation
from acklast_topology.contract import RawMessage

_REOPEN_S = (0.1, 0.5, 1.0, 2.0, 5.0)
_LOST = (OSError, aio_pika.exceptions.AMQPError, RuntimeError, TimeoutError)
"""What the client library raises on a channel or a connection that is gone."""


class _Channel:
    """The channel of one consuming session, as the settler sees it."""

    __slots__ = ("_channel",)

    def __init__(self, channel: AbstractChannel) -> None:
        self._channel = channel

    @property
    def alive(self) -> bool:
        return not self._channel.is_closed

    async def ack(self, tag: int) -> bool:
        return await self._send(self._channel.basic_ack(tag, wait=False))

    async def nack(self, tag: int) -> bool:
        return await self._send(self._channel.basic_nack(tag, requeue=True, wait=False))

    async def _send(self, call: Awaitable[None]) -> bool:
        """Whether the library took the frame.

        It takes a few and holds up the next. Once the connection is dead nobody makes room for those any
        more, and whoever waited on would wait for ever: with its delivery, and every drain with it.
        """
        sending, closing = asyncio.ensure_future(call), self._channel.closing
        try:
            await asyncio.wait({sending, closing}, return_when=asyncio.FIRST_COMPLETED)
            return sending.done() and _sent(sending)
        finally:
            sending.cancel()
            closing.cancel()  # ours alone: the library makes one for each who asks


def _sent(sending: asyncio.Future[None]) -> bool:
    try:
        sending.result()
    except (*_LOST, asyncio.CancelledError):
        return False
    return True


class _BulkChannel:
    """The same over the bulk receiver: the acks of one turn of the event loop go in one write."""

    __slots__ = ("_channel", "_prefix", "_protocol", "_tags")

    def __init__(self, channel: AbstractChannel, protocol: BulkProtocol) -> None:
        self._channel = channel
        self._protocol = protocol
        self._prefix = Prefix()
        self._tags: list[int] = []

    @property
    def alive(self) -> bool:
        return not self._channel.is_closed

    async def ack(self, tag: int) -> bool:
        if self._channel.is_closed:
            return False
        if not self._tags:
            asyncio.get_running_loop().call_soon(self._flush)
        self._tags.append(tag)
        return True

    async def nack(self, tag: int) -> bool:
        if self._channel.is_closed:
            return False
        # Written at once, so ahead of any multiple ack that covers it.
        self._prefix.settle([tag])
        self._protocol.write(nack_frame(self._channel.number, tag))
        return True

    def _flush(self) -> None:
        tags, self._tags = self._tags, []
        if not self._channel.is_closed:
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


class Consumer:
    """Consumes one queue and hands every delivery to ``deliver``, which only notes it.

    The jobs run in the daemon's own tasks: the library cancels the tasks of its callbacks when a channel
    closes, and an effect must not be cut because a channel died.
    """

    def __init__(
        self,
        lane: str,
        queue: str,
        prefetch: int,
        link: Link,
        deliver: Callable[[Delivery], None],
        emitter: Emitter,
        repair: Callable[[], Awaitable[None]] = nothing_to_repair,
    ) -> None:
        """``repair`` is asked where the queue itself is gone: declare again what is missing."""
        self._repair = repair
        self._lane = lane
        self._queue = queue
        self._prefetch = prefetch
        self._link = link
        self._deliver = deliver
        self._emitter = emitter
        self._channel: AbstractChannel | None = None
        self._tag: str | None = None
        self._stopping = False
        self.consuming = asyncio.Event()

    async def run(self) -> None:
        """Consume until ``cancel``: every end of a channel is followed by the next one."""
        failures = 0
        while not self._stopping:
            try:
                with only_real_cancellation():
                    connection = await self._link.connect_insisting()
                    if self._stopping:
                        return
                    reason = await self._consume(
                        connection.transport.connection,  # type: ignore[union-attr]
                        self._link.protocol,
                    )
                failures = 0
            except Exception as error:  # the library ends what waits with any exception, bare ones too
                reason = str(error) or type(error).__name__
                if isinstance(error, aiormq.exceptions.ChannelNotFoundEntity) and not self._stopping:
                    await self._repair()
            self.consuming.clear()
            if self._stopping:
                return
            if failures == 0:
                self._emitter.notice("lane.interrupted", "warning", lane=self._lane, reason=reason)
            pause_s = _REOPEN_S[min(failures, len(_REOPEN_S) - 1)]
            failures += 1
            await asyncio.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - spreads load, guards nothing

    async def _consume(self, connection: aiormq.abc.AbstractConnection, protocol: BulkProtocol | None) -> str:
        """Consume on a fresh channel until it ends; the reason why it did."""
        channel = await connection.channel(publisher_confirms=False)
        if protocol is None:
            return await self._consume_on(channel, _Channel(channel))
        session = _BulkChannel(channel, protocol)
        protocol.take(channel.number, lambda tag, raw: self._deliver(Delivery(raw, tag, session)))
        try:
            return await self._consume_on(channel, session)
        finally:
            protocol.leave(channel.number)

    async def _consume_on(self, channel: AbstractChannel, session: ConsumeChannel) -> str:
        cancelled: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_cancel(_: object) -> None:
            # The channel stays open with no consumer: without this nobody would notice.
            if not cancelled.done():
                cancelled.set_result("the broker cancelled the consumer")

        channel.on_consumer_cancel_callbacks.add(on_cancel)
        await channel.basic_qos(prefetch_count=self._prefetch)

        async def on_message(message: DeliveredMessage) -> None:
            assert message.delivery_tag is not None
            self._deliver(Delivery(raw_of(message), message.delivery_tag, session))

        answer = await channel.basic_consume(self._queue, on_message)
        self._channel, self._tag = channel, answer.consumer_tag
        if self._stopping:
            # Asked to cancel while the broker was still answering: there was no tag to cancel yet.
            await self.cancel()
        else:
            self.consuming.set()
            self._emitter.notice(
                "lane.consuming",
                lane=self._lane,
                prefetch=self._prefetch,
                receiver="library" if isinstance(session, _Channel) else "bulk",
            )
        await asyncio.wait({cancelled, channel.closing}, return_when=asyncio.FIRST_COMPLETED)
        return await self._ended(channel, cancelled)

    @staticmethod
    async def _ended(channel: AbstractChannel, cancelled: asyncio.Future[str]) -> str:
        if cancelled.done():
            # Close, so that what this channel holds is requeued now and not at some later death.
            await channel.close()
            return cancelled.result()
        error = channel.closing.exception() if not channel.closing.cancelled() else None
        return str(error) if error else "the channel was closed"

    async def cancel(self) -> None:
        """Stop consuming and wait for the broker's word. The channel stays open for the acks to come."""
        self._stopping = True
        channel, tag = self._channel, self._tag
        if channel is None or tag is None or channel.is_closed:
            return
        try:
            await channel.basic_cancel(tag, timeout=5.0)
        except _LOST:
            return
        finally:
            self.consuming.clear()
