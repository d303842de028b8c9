"""A consumer that is told to stop takes nothing more in, at whatever moment the word comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import aiormq

from acklast.broker import Link
from acklast.consumer import Consumer
from acklast.pacing.prefetch import Prefetch
from acklast.settle import Delivery
from acklast.telemetry.events import Emitter
from harness.virtual import turns


class FakeChannel:
    """A channel whose broker takes its time to answer."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_consumer_cancel_callbacks: set[Any] = set()
        self.is_closed = False
        self.calls: list[str] = []

    async def basic_qos(self, *, prefetch_count: int, **_: float) -> None:
        self.calls.append(f"qos {prefetch_count}")

    async def basic_consume(self, queue: str, on_message: Any, **_: float) -> Any:
        self.calls.append(f"consume {queue}")
        await self.answer.wait()
        return SimpleNamespace(consumer_tag="tag")

    async def basic_cancel(self, tag: str, **_: float) -> None:
        self.calls.append(f"cancel {tag}")


class FakeLink:
    """A broker that can be reached once ``up`` is set."""

    def __init__(self, channel: FakeChannel) -> None:
        self.up = asyncio.Event()
        self.protocol = None
        self.has_others = False
        self._channel = channel

    async def connect_insisting(self) -> Any:
        await self.up.wait()
        return SimpleNamespace(transport=SimpleNamespace(connection=self))

    async def channel(self, *, publisher_confirms: bool, **_: float) -> FakeChannel:
        return self._channel


def consumer_on(link: FakeLink) -> Consumer:
    def refuse(delivery: Delivery) -> None:
        raise AssertionError("nothing is delivered here")

    return Consumer(
        "rent", "rent.work", Prefetch(5, 5), cast("Link", link), refuse, lambda before: [], Emitter()
    )


async def test_stopping_while_the_broker_is_away_consumes_nothing_when_it_is_back() -> None:
    channel = FakeChannel()
    link = FakeLink(channel)
    consumer = consumer_on(link)
    running = asyncio.create_task(consumer.run())
    await turns()
    await consumer.cancel()
    link.up.set()
    await asyncio.wait_for(running, 10)
    assert channel.calls == []


async def test_stopping_while_the_broker_opens_the_consumer_cancels_it_at_once() -> None:
    channel = FakeChannel()
    link = FakeLink(channel)
    link.up.set()
    consumer = consumer_on(link)
    running = asyncio.create_task(consumer.run())
    await turns()
    stopping = asyncio.create_task(consumer.cancel())
    await turns()
    assert channel.calls == ["qos 5", "consume rent.work"]
    assert not stopping.done(), "what is given back now would come straight back"
    channel.answer.set()
    await asyncio.wait_for(stopping, 10)
    assert channel.calls[-1] == "cancel tag"
    assert not consumer.consuming.is_set()
    channel.closing.set_exception(aiormq.exceptions.ConnectionClosed(320, "closed"))
    await asyncio.wait_for(running, 10)


async def test_stopping_a_running_consumer_waits_for_the_brokers_word_and_keeps_the_channel() -> None:
    channel = FakeChannel()
    link = FakeLink(channel)
    link.up.set()
    channel.answer.set()
    consumer = consumer_on(link)
    running = asyncio.create_task(consumer.run())
    await asyncio.wait_for(consumer.consuming.wait(), 10)
    await consumer.cancel()
    assert channel.calls[-1] == "cancel tag"
    assert not running.done(), "what runs still has to be acked on this channel"
    channel.closing.set_exception(aiormq.exceptions.ConnectionClosed(320, "closed"))
    await asyncio.wait_for(running, 10)
