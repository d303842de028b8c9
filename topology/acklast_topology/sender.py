"""One confirmed channel: every message persistent, mandatory, confirmed, limited in time."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast
from uuid import uuid4

import aiormq
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq import spec
from aiormq.exceptions import AMQPError, DeliveryError, PublishError

from acklast_topology.bulk import Batch, Outgoing
from acklast_topology.calls import ConnectionDied, bounded, only_real_cancellation, takes_nothing_in
from acklast_topology.culprit import Largest, is_culprit
from acklast_topology.message import PERSISTENT
from acklast_topology.value import value
from acklast_topology.wire import Properties

_FRAME_OVERHEAD_BYTES: Final = 8 + 12
"""Of a content header: the frame around it, and class, weight and body size before the properties."""
_CLOSE_S: Final = 3.0
_PATIENCE_S: Final = 1.0
_MOST_PATIENCE_S: Final = 60.0
_UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError, struct.error)


class Status(StrEnum):
    """What the broker said of one message."""

    CONFIRMED = "confirmed"
    """In every queue that it was routed to, on disk."""
    RETURNED = "returned"
    """In no queue: nothing is bound for its routing key."""
    REFUSED = "refused"
    """The broker said no (a full queue), or the message cannot be sent at all."""
    UNKNOWN = "unknown"
    """No answer: it may be in a queue or not. Sending again is safe, the ledger removes duplicates."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One message's status, and a sentence for people where it is not ``confirmed``."""

    status: Status
    detail: str = ""


@value
class Letter:
    """One message of many. ``properties`` encodes them, for a message id and the time in whole seconds.

    ``settled`` is called once, from within the event loop. It must not raise.
    """

    routing_key: str
    body: bytes
    properties: Callable[[str, int], bytes]
    settled: Callable[[Sent], None]


_CONFIRMED: Final = Sent(Status.CONFIRMED)


class Sender:
    """A channel for publishing. Once it is ``closed`` it stays closed: open another.

    One connection for publishing should be no other's: a broker under an alarm blocks the whole connection.
    """

    def __init__(
        self,
        channel: AbstractChannel,
        underlay: aiormq.abc.AbstractChannel,
        patience_s: float = _PATIENCE_S,
        largest: Largest | None = None,
    ) -> None:
        self._channel = channel
        self._underlay = underlay
        self._opened = time.monotonic()
        self._patience_s = patience_s
        self._largest = largest or Largest()
        self._refused_since: dict[str, float] = {}
        self._under_way = 0
        self._retired = False
        self._end: asyncio.Future[None] | None = None
        self.stale = False
        """The broker has refused what goes by one routing key for a while: another channel may fare better.

        On 3.x a channel that first publishes to a queue while its leader is being elected is refused for as
        long as the node of the old leader is away, and says nothing else.
        """
        self.mute = False
        """A publish was not confirmed in time, and none has been since: another node may fare better."""
        frame_max = underlay.connection.connection_tune.frame_max
        self._header_max = frame_max - _FRAME_OVERHEAD_BYTES if frame_max else None

    @classmethod
    async def open(
        cls,
        connection: AbstractConnection,
        *,
        timeout_s: float = 10,
        after: Sender | None = None,
        largest: Largest | None = None,
    ) -> Sender:
        """Open a confirmed channel. ``after`` is the one that it takes the place of.

        ``largest`` is what is known of the broker's limit beyond this channel.

        Raises:
            TimeoutError: the broker did not answer in time, as under a memory or disk alarm.
            ConnectionError: the connection is gone.
        """
        try:
            # Off by default in the library; without it a returned message counts as confirmed.
            channel = connection.channel(publisher_confirms=True, on_return_raises=True)
            async with bounded(timeout_s):
                await channel.initialize()
            patience_s = after.patience_after_s() if after is not None else _PATIENCE_S
            return cls(channel, await channel.get_underlay_channel(), patience_s, largest)
        except (AMQPError, RuntimeError) as error:
            raise ConnectionDied(f"no channel for publishing: {error}") from error

    @property
    def closed(self) -> bool:
        """Whether the channel has ended: nothing more can be sent by it."""
        return self._channel.is_closed

    @property
    def blocked(self) -> bool:
        """Whether the broker takes nothing in from this connection, as under an alarm."""
        return takes_nothing_in(self._underlay.connection)

    async def send(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: spec.Basic.Properties,
        timeout_s: float = 10,
    ) -> Sent:
        """Publish one message, wait for the broker's word. Many may be under way at once.

        The message is sent persistent, mandatory and with a message id of its own whatever ``properties``
        says: the library matches a return to its publish by the message id. Never raises for the message or
        for the connection; a real cancellation of the caller passes through.
        """
        try:
            self._largest.require(len(body))
            stamped = _stamped(properties, self._header_max)
        except _UNENCODABLE as error:
            return Sent(Status.REFUSED, f"cannot be sent: {error}")
        self._under_way += 1
        try:
            with only_real_cancellation():
                await self._underlay.basic_publish(
                    body,
                    exchange=exchange,
                    routing_key=routing_key,
                    properties=stamped,
                    mandatory=True,
                    timeout=timeout_s,
                )
        except Exception as error:  # the library ends a pending publish with any exception, bare ones too
            self._failed(routing_key, error)
            return _status_of(error, timeout_s, routing_key, len(body))
        finally:
            self._under_way -= 1
            await self._close_retired()
        self._succeeded(routing_key)
        return _CONFIRMED

    async def send_all(self, exchange: str, letters: Sequence[Letter], timeout_s: float = 10) -> None:
        """Publish many messages in one write; returns when they are written, not when they are confirmed.

        Each is sent as by ``send``, and ``settled`` within ``timeout_s``.
        """
        ids, now_s = uuid4().hex, int(time.time())
        outgoing: list[Outgoing] = []
        for number, letter in enumerate(letters):
            message_id = f"{ids}-{number}"
            try:
                self._largest.require(len(letter.body))
                encoded = letter.properties(message_id, now_s)
                _require_room(encoded, self._header_max)
            except _UNENCODABLE as error:
                letter.settled(Sent(Status.REFUSED, f"cannot be sent: {error}"))
                continue
            word = self._word_on(letter, timeout_s)
            outgoing.append(Outgoing(letter.routing_key, letter.body, message_id, encoded, word))
        if outgoing:
            self._under_way += len(outgoing)
            # Only a real channel has the table of confirms that this needs.
            await Batch(cast("aiormq.Channel", self._underlay), outgoing, timeout_s).send(exchange)

    def _word_on(self, letter: Letter, timeout_s: float) -> Callable[[Exception | None], None]:
        def word(error: Exception | None) -> None:
            self._under_way -= 1
            if self._retired and not self._under_way:
                self._end = asyncio.ensure_future(self._close_retired())
            if error is None:
                self._succeeded(letter.routing_key)
                letter.settled(_CONFIRMED)
            else:
                self._failed(letter.routing_key, error)
                letter.settled(_status_of(error, timeout_s, letter.routing_key, len(letter.body)))

        return word

    def _succeeded(self, routing_key: str) -> None:
        self.mute = False
        if self._refused_since:
            self._refused_since.pop(routing_key, None)

    def _failed(self, routing_key: str, error: Exception) -> None:
        self._largest.learn(error)
        match error:
            case PublishError():
                self.mute = False
            case DeliveryError():
                self.mute = False
                now = time.monotonic()
                since = self._refused_since.setdefault(routing_key, now)
                self.stale = self.stale or now - since >= self._patience_s
            case TimeoutError():
                self.mute = True

    def patience_after_s(self) -> float:
        """How long the next channel puts up with refusals: longer where this one was no better.

        A queue that is full refuses on every channel, and is not to be asked on a new one each second.
        """
        no_better = self.stale and time.monotonic() - self._opened < 10 * self._patience_s
        return min(_MOST_PATIENCE_S, 2 * self._patience_s) if no_better else _PATIENCE_S

    async def retire(self) -> None:
        """Close the channel once nothing waits for its confirm any more. Nothing more is sent by it."""
        self._retired = True
        await self._close_retired()

    async def _close_retired(self) -> None:
        if self._retired and not self._under_way:
            with suppress(AMQPError, OSError, RuntimeError):
                async with bounded(_CLOSE_S):
                    await self.close()

    async def close(self) -> None:
        """Close the channel; what still waits for a confirm becomes ``unknown``."""
        if not self.closed:
            await self._channel.close()


class _Stamped(spec.Basic.Properties):
    """Properties that are encoded already: their size was needed before they go out."""

    def __init__(self, message_id: str, encoded: bytes) -> None:
        super().__init__(message_id=message_id)
        self._encoded = encoded

    def marshal(self) -> bytes:
        return self._encoded


def _stamped(properties: spec.Basic.Properties, limit: int | None) -> _Stamped:
    """A copy with a fresh message id, persistent; refuses what would end the whole connection."""
    values: dict[str, Any] = dict(properties)
    message_id = uuid4().hex
    values |= {"message_id": message_id, "delivery_mode": PERSISTENT}
    encoded = Properties(**values).marshal()
    _require_room(encoded, limit)
    return _Stamped(message_id, encoded)


def _require_room(encoded: bytes, limit: int | None) -> None:
    if limit is not None and len(encoded) > limit:
        raise ValueError(
            f"its properties take {len(encoded)} bytes, and a frame holds {limit}: send less in headers"
        )


def _status_of(error: Exception, timeout_s: float, routing_key: str, size: int) -> Sent:
    match error:
        case PublishError():
            return Sent(
                Status.RETURNED, f"returned by the broker: {error.args[0]} for routing key {error.args[1]}"
            )
        case DeliveryError():
            return Sent(Status.REFUSED, "refused by the broker (nack): the queue is full, or lost its leader")
        case TimeoutError():
            return Sent(Status.UNKNOWN, f"no confirm within {timeout_s:g} s")
        case ValueError():
            return Sent(Status.REFUSED, f"cannot be sent: {error}")
        case _ if is_culprit(error, routing_key, size):
            return Sent(Status.REFUSED, f"refused by the broker: {error}")
        case _:
            return Sent(Status.UNKNOWN, f"no confirm: {str(error) or 'the channel ended'}")
