"""The broker's consumer timeout: what a daemon holds leaves in time, whatever it waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import aio_pika
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from dev.rabbitmq import Node
from harness import Broker, eventually
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

pytestmark = [pytest.mark.timeout(400), pytest.mark.parametrize("receiver", ["bulk"], indirect=True)]

LONG = {"do": "wait", "gate": "go", "patience_s": 300}


@contextmanager
def consumer_timeout(node: Node, timeout_s: float, looks_every_s: float) -> Iterator[None]:
    """Let the broker's channels that are opened from now on hold a delivery for so long."""
    setting = "application:set_env(rabbit, {}, {})."
    node.ctl("eval", setting.format("consumer_timeout", int(timeout_s * 1000)))
    node.ctl("eval", setting.format("channel_tick_interval", int(looks_every_s * 1000)))
    try:
        yield
    finally:
        node.ctl("eval", setting.format("consumer_timeout", 1_800_000))
        node.ctl("eval", setting.format("channel_tick_interval", 60_000))


@asynccontextmanager
async def held_too_long(broker: Broker) -> AsyncIterator[asyncio.Event]:
    """Set once the broker has had enough of another consumer, which holds a delivery from now on.

    It ends the channel, or from 4.3 on the consumer.
    """
    ended = asyncio.Event()
    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("held", durable=True, arguments={"x-queue-type": "quorum"})
        channel.close_callbacks.add(lambda *_: ended.set())
        underlay = await channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(lambda _: ended.set())
        held = asyncio.Event()

        async def hold(_: object) -> None:
            held.set()

        await queue.consume(hold)
        await channel.default_exchange.publish(aio_pika.Message(b"x"), "held")
        await asyncio.wait_for(held.wait(), 30)
        yield ended


@pytest.mark.soak
async def test_what_is_held_leaves_before_the_broker_ends_its_channel(
    new_site: NewSite, broker: Broker, broker_node: Node
) -> None:
    await outlives(new_site, broker, broker_node, timeout_s=5, looks_every_s=0.5, longest_s=1.5)


@pytest.mark.soak
async def test_what_is_held_in_fair_turns_does_too(
    new_site: NewSite, broker: Broker, broker_node: Node
) -> None:
    fair: dict[str, Any] = {"fair_by": "run"}
    await outlives(new_site, broker, broker_node, timeout_s=5, looks_every_s=0.5, longest_s=1.5, **fair)


@pytest.mark.soak
async def test_a_handler_of_two_and_a_half_minutes_outlives_a_timeout_of_one(
    new_site: NewSite, broker: Broker, broker_node: Node
) -> None:
    await outlives(
        new_site, broker, broker_node, timeout_s=60, looks_every_s=60, longest_s=20, runs_s=150, timeout=300
    )


async def outlives(
    new_site: NewSite,
    broker: Broker,
    node: Node,
    *,
    timeout_s: float,
    looks_every_s: float,
    longest_s: float,
    runs_s: float = 0,
    timeout: float = 300,  # noqa: ASYNC109 - the lane's
    **lane: Any,
) -> None:
    """A long handler, and what waits behind it, while a consumer that holds on loses its channel."""
    settings = {"longest_unacked_s": longest_s, "concurrency": 1, "timeout_s": timeout, **lane}
    with consumer_timeout(node, timeout_s, looks_every_s):
        async with new_site(**settings) as place:
            with place.daemon() as daemon:
                await place.publish(scripted("long", LONG))
                await eventually(lambda: place.log.calls("long"), what="the handler runs")
                await place.publish(*(scripted(f"behind-{n}", "done") for n in range(5)))
                async with held_too_long(broker) as ended:
                    await asyncio.wait_for(ended.wait(), 2 * (timeout_s + looks_every_s) + 30)
                [call] = place.log.calls()
                await eventually(lambda: time.monotonic() - call.at > runs_s, runs_s + 1)
                place.open_gate("go")
                for key in ("long", *(f"behind-{n}" for n in range(5))):
                    await place.reaches(key, State.DONE, 60)
                assert daemon.said("delivery.handed_on", key="long")
                assert daemon.said("lane.given_back")
                assert not daemon.said("lane.interrupted")
                assert await daemon.drained() == Exit.OK
            assert len(place.log.calls()) == len(place.log.effects()) == 6


@pytest.mark.soak
async def test_what_cannot_be_sent_on_during_an_alarm_goes_back_in_time(
    new_site: NewSite, broker: Broker, broker_node: Node
) -> None:
    with consumer_timeout(broker_node, 8, 0.5):
        async with new_site(longest_unacked_s=2) as place:
            await place.publish(scripted("again", "transient", "done"))
            async with held_too_long(broker) as ended:
                broker_node.ctl("set_vm_memory_high_watermark", "absolute", "10MB")
                try:
                    with place.daemon() as daemon:
                        await daemon.says("deliveries.given_back")
                        # Its time has come, and the alarm keeps nobody from delivering.
                        await place.reaches("again", State.DONE, 60)
                        await asyncio.wait_for(ended.wait(), 60)
                        broker_node.ctl("set_vm_memory_high_watermark", "absolute", "1GB")
                        await eventually(place.is_drained, what="a carrier that was sent after all")
                        assert not daemon.said("lane.interrupted")
                        assert await daemon.drained() == Exit.OK
                finally:
                    broker_node.ctl("set_vm_memory_high_watermark", "absolute", "1GB")
            assert len(place.log.calls()) == 2
            assert len(place.log.effects()) == 1


@pytest.mark.soak
async def test_who_holds_on_does_lose_the_channel_and_nothing_else(
    new_site: NewSite, broker: Broker, broker_node: Node
) -> None:
    """The same without the hand-on: what the other tests are there to prevent."""
    with consumer_timeout(broker_node, 3, 0.5):
        async with new_site(longest_unacked_s=86_400, timeout_s=300) as place:
            with place.daemon() as daemon:
                await place.publish(scripted("long", LONG))
                interrupted = await daemon.says("lane.interrupted")
                assert any(word in interrupted["reason"].lower() for word in ("timed out", "cancel"))
                await daemon.says("job.settled", key="long", disposition="held")
                place.open_gate("go")
                await place.reaches("long", State.DONE)
                assert await daemon.drained() == Exit.OK
            assert len(place.log.calls()) == len(place.log.effects()) == 1
