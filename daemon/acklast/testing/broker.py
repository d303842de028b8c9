"""A broker in memory: a work queue for each lane, wait queues, unacked deliveries that come back.

It lives in the running loop, and its wait queues go by that loop's clock.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
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
        content_encoding=properties.content_encoding,
        headers=dict(properties.headers or {}),
        message_id=properties.message_id,
        type=properties.message_type,
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        timestamp=properties.timestamp,
        app_id=properties.app_id,
    )


@dataclass(slots=True, eq=False)
class Message:
    raw: RawMessage
    label: Label
    lane: str


Deliver: TypeAlias = Callable[["Channel", int, RawMessage], None]


class Channel:
    """One consumer and the deliveries that it has not settled."""

    def __init__(self, broker: Broker, lane: str, deliver: Deliver, prefetch: int) -> None:
        self.lane = lane
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
        self.work: defaultdict[str, deque[Message]] = defaultdict(deque)
        self.waiting: set[Message] = set()
        self.channels: list[Channel] = []
        self._quiet = asyncio.Event()
        self._quiet.set()

    def publish(self, routing_key: str, raw: RawMessage) -> None:
        """Keep a message, for good: this is what a confirm says. ``routing_key`` is the internal router's."""
        lane, queue, *seconds = routing_key.split(".")
        message = Message(raw, label_of(raw), lane)
        if queue == "wait":
            self.waiting.add(message)
            asyncio.get_running_loop().call_later(int(seconds[0]), self._expire, message)
        else:
            self.work[lane].append(message)
        self.moved()

    def _expire(self, message: Message) -> None:
        self.waiting.discard(message)
        self.work[message.lane].append(message)
        self.moved()

    def requeue(self, messages: list[Message]) -> None:
        """Put them back at the head of their queue, in their order."""
        for message in reversed(messages):
            message.raw = replace(message.raw, redelivered=True)
            self.work[message.lane].appendleft(message)
        self.moved()

    def consume(self, lane: str, deliver: Deliver, prefetch: int) -> Channel:
        channel = Channel(self, lane, deliver, prefetch)
        self.channels.append(channel)
        self.moved()
        return channel

    def moved(self) -> None:
        """Deliver what can be delivered, in turn to each consumer that has room."""
        self.channels = [channel for channel in self.channels if channel.alive]
        for lane, queue in self.work.items():
            while queue and (free := [one for one in self.channels if one.lane == lane and one.has_room]):
                self.channels.append(self.channels.pop(self.channels.index(free[0])))
                free[0].take(queue.popleft())
        if self.empty:
            self._quiet.set()
        else:
            self._quiet.clear()

    def copies(self, label: Label) -> int:
        """How many copies of a message are anywhere in the broker."""
        return sum(message.label == label for message in self._everywhere())

    def _everywhere(self) -> list[Message]:
        unacked = [message for channel in self.channels for message in channel.unacked.values()]
        return [*(message for queue in self.work.values() for message in queue), *self.waiting, *unacked]

    @property
    def empty(self) -> bool:
        held = any(channel.unacked for channel in self.channels)
        return not held and not self.waiting and not any(self.work.values())

    async def quiet(self) -> None:
        """Wait until nothing is left."""
        await self._quiet.wait()
