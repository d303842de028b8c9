"""A broker in memory: one work queue, wait queues in virtual time, unacked deliveries that come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeAlias

from aiormq import spec

from acklast_topology.contract import KEY_HEADER, RawMessage

Label: TypeAlias = tuple[str, str, bytes, frozenset[tuple[str, str]]]
"""What a copy of a message is known by: its key (or message id), and all else that a carrier keeps."""


def label_of(raw: RawMessage) -> Label:
    headers = frozenset((name, str(value)) for name, value in raw.headers.items() if name != KEY_HEADER)
    return str(raw.headers.get(KEY_HEADER) or raw.message_id), str(raw.type), raw.body, headers


def arrived(body: bytes, properties: spec.Basic.Properties) -> RawMessage:
    """A carrier as a consumer gets it."""
    return RawMessage(
        body=body,
        content_type=properties.content_type,
        headers=dict(properties.headers or {}),
        message_id=properties.message_id,
        type=properties.message_type,
        priority=properties.priority,
    )


@dataclass(slots=True, eq=False)
class Message:
    raw: RawMessage
    label: Label


Deliver: TypeAlias = Callable[["Channel", int, RawMessage], None]


class Channel:
    """One consumer and the deliveries that it has not settled."""

    def __init__(self, broker: Broker, deliver: Deliver, prefetch: int) -> None:
        self.alive = True
        self.consuming = True
        self.unacked: dict[int, Message] = {}
        self._broker = broker
        self._deliver = deliver
        self._prefetch = prefetch
        self._tags = count(1)

    @property
    def has_room(self) -> bool:
        return self.alive and self.consuming and len(self.unacked) < self._prefetch

    def take(self, message: Message) -> None:
        tag = next(self._tags)
        self.unacked[tag] = message
        self._deliver(self, tag, message.raw)

    def ack(self, tag: int) -> None:
        """Raises ``KeyError`` for a tag that is settled already: the broker would close the channel."""
        del self.unacked[tag]
        self._broker.moved()

    def nack(self, tag: int) -> None:
        self._broker.requeue([self.unacked.pop(tag)])

    def cancel(self) -> None:
        """Take nothing more in; what is unacked can still be settled."""
        self.consuming = False

    def close(self) -> None:
        """End it, from whichever side: what was unacked goes back to the queue's head."""
        if self.alive:
            self.alive = self.consuming = False
            held, self.unacked = list(self.unacked.values()), {}
            self._broker.requeue(held)


class Broker:
    def __init__(self) -> None:
        self.work: deque[Message] = deque()
        self.waiting: set[Message] = set()
        self.channels: list[Channel] = []
        self._quiet = asyncio.Event()

    def publish(self, routing_key: str, raw: RawMessage) -> None:
        """Keep a message, for good: this is what a confirm says."""
        message = Message(raw, label_of(raw))
        _, queue, *seconds = routing_key.split(".")
        if queue == "wait":
            self.waiting.add(message)
            asyncio.get_running_loop().call_later(int(seconds[0]), self._expire, message)
        else:
            self.work.append(message)
        self.moved()

    def _expire(self, message: Message) -> None:
        self.waiting.discard(message)
        self.work.append(message)
        self.moved()

    def requeue(self, messages: list[Message]) -> None:
        for message in messages:
            message.raw = replace(message.raw, redelivered=True)
        self.work.extendleft(reversed(messages))
        self.moved()

    def consume(self, deliver: Deliver, prefetch: int) -> Channel:
        channel = Channel(self, deliver, prefetch)
        self.channels.append(channel)
        self.moved()
        return channel

    def moved(self) -> None:
        """Deliver what can be delivered, in turn to each consumer that has room."""
        self.channels = [channel for channel in self.channels if channel.alive]
        while self.work and (free := [channel for channel in self.channels if channel.has_room]):
            self.channels.append(self.channels.pop(self.channels.index(free[0])))
            free[0].take(self.work.popleft())
        if self.empty:
            self._quiet.set()
        else:
            self._quiet.clear()

    def copies(self, label: Label) -> int:
        """How many copies of a message are anywhere in the broker."""
        return sum(message.label == label for message in self._everywhere())

    def _everywhere(self) -> list[Message]:
        unacked = [message for channel in self.channels for message in channel.unacked.values()]
        return [*self.work, *self.waiting, *unacked]

    @property
    def empty(self) -> bool:
        return not self.work and not self.waiting and not any(channel.unacked for channel in self.channels)

    async def quiet(self) -> None:
        """Wait until nothing is left."""
        await self._quiet.wait()
