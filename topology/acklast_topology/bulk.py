"""Many messages in one write of one confirmed channel, each settled by a plain call.

The client library spends a task, two futures and a write to the socket on each message. Here the frames of a
batch are put together and written at once, and what stands in the library's table of confirms is a small
object that passes the broker's word on. No private name of the library is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

import aiormq
from aiormq import spec
from aiormq.abc import ChannelFrame
from pamqp import frame as frames

from acklast_topology.calls import bounded
from acklast_topology.value import value

_METHOD_HEAD: Final = Struct(">BHI")
_HEADER_HEAD: Final = Struct(">BHIHHQ")
_BASIC: Final = 60
_END: Final = b"\xce"
_FRAME_OVERHEAD_BYTES: Final = 8
_HEADER_BYTES: Final = 12
"""Class, weight and body size, before the properties."""

Word = Callable[[Exception | None], None]
"""Is told what the broker said of a message, once: None for a confirm."""


@value
class Outgoing:
    """One message of a batch. ``properties`` are encoded; their message id is ``message_id``, a fresh one."""

    routing_key: str
    body: bytes
    message_id: str
    properties: bytes
    word: Word


class Waiting:
    """Stands where the library keeps the future of one message's confirm."""

    __slots__ = ("_batch", "_open", "_word")

    def __init__(self, batch: Batch, word: Word) -> None:
        self._batch = batch
        self._word = word
        self._open = True

    def done(self) -> bool:
        """Whether the word has been passed on."""
        return not self._open

    def cancelled(self) -> bool:
        """As of a future that nobody waits for any more: so the library passes over a late confirm."""
        return not self._open

    def set_result(self, _: object) -> None:
        """Called by the library for a confirm."""
        self.end(None)

    def set_exception(self, error: Exception) -> None:
        """Called by the library for a refusal or a return."""
        self.end(error)

    def end(self, error: Exception | None) -> None:
        if self._open:
            self._open = False
            self._batch.one_less()
            self._word(error)


class Batch:
    """The messages of one write, from the write to the last word on them."""

    def __init__(self, channel: aiormq.Channel, messages: Sequence[Outgoing], timeout_s: float) -> None:
        self._channel = channel
        self._messages = messages
        self._timeout_s = timeout_s
        self._waiting = [Waiting(self, message.word) for message in messages]
        self._left = len(messages)
        self._timer: asyncio.TimerHandle | None = None
        self._channel_end: asyncio.Future[None] | None = None

    async def send(self, exchange: str) -> None:
        """Write all of it. Returns once the socket has taken it; every ``word`` is called within the timeout.

        Raises:
            CancelledError: the caller was cancelled. What was not written is not waited for.
        """
        number, frame_max = self._channel.number, self._channel.connection.connection_tune.frame_max
        payload = b"".join(framed(number, frame_max, exchange, message) for message in self._messages)
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._end_all, TimeoutError())
        try:
            async with bounded(self._timeout_s), self._channel.lock:
                await self._write(payload)
        except Exception as error:  # the library ends what waits with any exception, bare ones too
            self._end_all(error)
        except asyncio.CancelledError as error:
            self._end_all(ConnectionError(f"cancelled {error}"))
            raise

    async def _write(self, payload: bytes) -> None:
        """Under the channel's lock: the broker numbers messages in the order of their writes."""
        before = self._channel.delivery_tag
        # Ended by the library where channel or connection end.
        drained = self._channel.create_future()
        self._channel_end = self._channel.create_future()
        self._channel_end.add_done_callback(self._channel_ended)
        self._enter()
        try:
            await self._channel.write_queue.put(ChannelFrame(payload, False, drained))
        except BaseException:
            # The broker has not seen them, and would give their numbers to the next ones.
            self._channel.delivery_tag = before
            for tag, message in enumerate(self._messages, before + 1):
                self._channel.confirmations.pop(tag, None)
                self._channel.message_id_delivery_tag.pop(message.message_id, None)
            raise
        await drained

    def _enter(self) -> None:
        table: dict[int, Any] = self._channel.confirmations
        tag = self._channel.delivery_tag
        for message, waiting in zip(self._messages, self._waiting, strict=True):
            tag += 1
            table[tag] = waiting
            self._channel.message_id_delivery_tag[message.message_id] = tag
        self._channel.delivery_tag = tag

    def one_less(self) -> None:
        """One more of them has its word."""
        self._left -= 1
        if self._left:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._channel_end is not None and not self._channel_end.done():
            self._channel_end.set_result(None)
        for message in self._messages:
            self._channel.message_id_delivery_tag.pop(message.message_id, None)

    def _channel_ended(self, future: asyncio.Future[None]) -> None:
        if self._left:
            error = None if future.cancelled() else future.exception()
            self._end_all(error if isinstance(error, Exception) else ConnectionError("the channel ended"))

    def _end_all(self, error: Exception) -> None:
        for waiting in self._waiting:
            waiting.end(error)


@lru_cache(256)
def _publish(channel: int, exchange: str, routing_key: str) -> bytes:
    method = spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)
    return frames.marshal(method, channel)


def framed(channel: int, frame_max: int, exchange: str, message: Outgoing) -> bytes:
    """A message's frames: the method, the content header, the body in pieces that a frame holds."""
    properties, body = message.properties, message.body
    head = _HEADER_HEAD.pack(2, channel, _HEADER_BYTES + len(properties), _BASIC, 0, len(body))
    start = b"%b%b%b\xce" % (_publish(channel, exchange, message.routing_key), head, properties)
    most = frame_max - _FRAME_OVERHEAD_BYTES if frame_max else len(body)
    pieces = (body[at : at + most] for at in range(0, len(body), most or 1))
    return start + b"".join(_METHOD_HEAD.pack(3, channel, len(piece)) + piece + _END for piece in pieces)
