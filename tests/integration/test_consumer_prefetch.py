"""The prefetch is changed under load: nothing is lost, nothing is doubled, nothing comes after the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import aio_pika
import pytest

from acklast import consumer as consumers
from acklast.broker import Link
from acklast.consumer import Consumer
from acklast.pacing.prefetch import Prefetch
from acklast.settle import Delivery
from acklast.telemetry.events import Emitter, Event, Notice
from acklast_topology.calls import bounded
from harness import Broker, eventually
from harness.site import one_receiver_else_soak

QUEUE: Final = "jobs"
JOBS: Final = 2000


class Restless(Prefetch):
    """Wants another prefetch at every look."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(1000, 10)
        self._chance = chance

    def look(self, now: float, settled: int, held: int) -> int | None:
        return self._chance.choice([1, 2, 7, 50, 400, 1000])


class Works:
    """Takes deliveries in, acks them in no order, and has some that wait when they are recalled."""

    def __init__(self, chance: random.Random) -> None:
        self.waiting: list[Delivery] = []
        self.acked: Counter[bytes] = Counter()
        self.came: Counter[bytes] = Counter()
        self.recalled: Counter[bytes] = Counter()
        self.waits_for_recall = False
        self.prefetches: list[int] = []
        self._chance = chance
        self._more = asyncio.Event()

    def take(self, delivery: Delivery) -> None:
        self.came[delivery.raw.body] += 1
        self.waiting.append(delivery)
        self._more.set()

    def recall(self, before: float) -> list[Delivery]:
        old = [delivery for delivery in self.waiting if delivery.taken_at < before]
        self.waiting = [delivery for delivery in self.waiting if delivery.taken_at >= before]
        self.recalled.update(delivery.raw.body for delivery in old)
        return old

    def note(self, event: Event) -> None:
        if isinstance(event, Notice) and event.name == "lane.prefetch":
            self.prefetches.append(event.fields["prefetch"])

    async def work(self) -> None:
        """Ack what has come, a few at a time."""
        while True:
            await self._more.wait()
            self._more.clear()
            self._chance.shuffle(self.waiting)
            # A busy machine may work all off between two changes: the rest waits for what the test is about.
            enough = self.waits_for_recall and not self.recalled and len(self.acked) >= JOBS // 2
            few = 0 if enough else self._chance.randint(0, 20)
            now, self.waiting = self.waiting[:few], self.waiting[few:]
            for delivery in now:
                if await delivery.channel.ack(delivery.tag):
                    self.acked[delivery.raw.body] += 1
            await asyncio.sleep(0)
            if self.waiting:
                self._more.set()


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> Works:
    monkeypatch.setattr(consumers, "_LOOK_S", 0.01)
    return Works(random.Random(7))


async def fill(broker: Broker, bodies: Sequence[bytes]) -> None:
    async with await broker.connect() as connection, connection.channel() as channel:
        await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        exchange = channel.default_exchange
        for at in range(0, len(bodies), 500):
            messages = (aio_pika.Message(body) for body in bodies[at : at + 500])
            await asyncio.gather(*(exchange.publish(message, QUEUE) for message in messages))


async def left(broker: Broker) -> int:
    async with await broker.connect() as connection, connection.channel() as channel:
        found = await channel.declare_queue(QUEUE, passive=True)
        return found.declaration_result.message_count or 0


@asynccontextmanager
async def consuming(
    broker: Broker, works: Works, receiver: str, prefetch: Prefetch | None = None
) -> AsyncIterator[tuple[Consumer, Link]]:
    """A restless consumer at work; at the end it has been cancelled and its connection is closed."""
    emitter = Emitter(works.note)
    link = Link([broker.url], "test", emitter, bulk=receiver == "bulk")
    consumer = Consumer(
        "lane", QUEUE, prefetch or Restless(random.Random(3)), link, works.take, works.recall, emitter
    )
    running = [asyncio.create_task(consumer.run()), asyncio.create_task(works.work())]
    try:
        yield consumer, link
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await link.close()


@one_receiver_else_soak
async def test_every_delivery_is_there_once_across_every_change(
    broker: Broker, works: Works, receiver: str
) -> None:
    bodies = [b"%d" % number for number in range(JOBS)]
    await fill(broker, bodies)
    works.waits_for_recall = True
    async with consuming(broker, works, receiver) as (consumer, _):
        await eventually(lambda: len(works.acked) == JOBS, 60, "everything is acked")
        await eventually(lambda: len(works.prefetches) >= 20, what="the prefetch has changed often")
        async with bounded(10):
            await consumer.cancel()
    assert works.acked == Counter(bodies), "once each"
    # Again came only what had been given back.
    assert works.came == works.acked + works.recalled
    assert works.recalled.total() > 0
    assert await left(broker) == 0


@pytest.mark.parametrize("after", [1, 4])
async def test_nothing_comes_once_a_consumer_was_cancelled_however_busy_it_was_changing(
    broker: Broker, works: Works, receiver: str, after: int
) -> None:
    bodies = [b"%d" % number for number in range(JOBS)]
    await fill(broker, bodies)
    async with consuming(broker, works, receiver) as (consumer, _):
        await eventually(lambda: len(works.prefetches) >= after, what="it changes")
        async with bounded(10):
            await consumer.cancel()
        came = works.came.total()
        assert not consumer.consuming.is_set()
        # Given back now, nothing returns: the queue's own consumers are none.
        held = works.recall(float("inf"))
        for delivery in held:
            assert await delivery.channel.nack(delivery.tag)
        await eventually(
            lambda: _counted(broker, JOBS - works.acked.total()), what="all else is in the queue"
        )
        assert works.came.total() == came
    assert await left(broker) == JOBS - works.acked.total()


async def _counted(broker: Broker, count: int) -> bool:
    return await left(broker) == count


@one_receiver_else_soak
async def test_a_connection_that_dies_in_the_midst_of_changes_loses_nothing(
    broker: Broker, works: Works, receiver: str
) -> None:
    bodies = [b"%d" % number for number in range(JOBS)]
    await fill(broker, bodies)
    async with consuming(broker, works, receiver) as (consumer, link):
        for cut in range(1, 4):
            await eventually(lambda: len(works.prefetches) >= 3 * cut, what="it changes")  # noqa: B023
            connection = await link.connect()
            await connection.close()
        await eventually(lambda: len(works.acked) == JOBS, 60, "everything is acked")
        await eventually(lambda: _counted(broker, 0), what="the queue is empty")
        async with bounded(10):
            await consumer.cancel()
    assert set(works.acked) == set(bodies)
    assert await left(broker) == 0


async def test_a_queue_that_was_made_again_at_once_is_consumed_again(
    broker: Broker, works: Works, receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old consumers hear nothing of the deletion, and get nothing of what the new queue hands to them."""
    monkeypatch.setattr(consumers, "_IDLE_S", 0.5)
    await fill(broker, [])
    async with consuming(broker, works, receiver, Prefetch(1000, 10)) as (consumer, _):
        await eventually(consumer.consuming.is_set, 20, "it consumes")
        async with await broker.connect() as connection, connection.channel() as channel:
            await channel.queue_delete(QUEUE)
            await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        await fill(broker, [b"new"])
        await eventually(lambda: works.came[b"new"], 20, "the message has come")
