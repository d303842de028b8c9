"""A consumer that changes its prefetch: in what order, and what else may come between."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import aiormq
import pytest

from acklast import consumer as consumers
from acklast.broker import Link
from acklast.channels import LibraryChannel
from acklast.consumer import Consumer
from acklast.pacing.prefetch import Prefetch
from acklast.settle import Delivery
from acklast.telemetry.events import Emitter, Event, Notice
from acklast_topology.contract import RawMessage
from harness.virtual import elapse, turns, virtual, virtual_clock

FLOOR = 12
FULL = 100


class FakeChannel:
    """A channel whose broker answers when it is let, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.held_up = ""
        """The call that waits, by its first word."""
        self.going_on = asyncio.Event()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_consumer_cancel_callbacks: set[Callable[[object], None]] = set()
        self.opened = 0

    @property
    def is_closed(self) -> bool:
        return self._closed.done()

    @property
    def closing(self) -> asyncio.Future[None]:
        """Another one for each who asks, as the library has it."""
        return asyncio.shield(self._closed)

    async def _call(self, call: str) -> None:
        self.calls.append(call)
        if call.split()[0] == self.held_up:
            await self.going_on.wait()

    async def basic_qos(self, *, prefetch_count: int, **_: float) -> None:
        await self._call(f"qos {prefetch_count}")

    async def basic_consume(self, queue: str, on_message: Any, **_: float) -> Any:
        self.opened += 1
        tag = f"tag-{self.opened}"
        await self._call(f"consume {tag}")
        return SimpleNamespace(consumer_tag=tag)

    async def basic_cancel(self, tag: str, **_: float) -> None:
        if self.held_up == "no answer":
            raise TimeoutError
        await self._call(f"cancel {tag}")

    async def basic_nack(self, tag: int, *, requeue: bool, wait: bool) -> None:
        await self._call(f"nack {tag}")

    async def close(self) -> None:
        self.calls.append("close")
        self._closed.cancel()


class Told(Prefetch):
    """Wants what the test says."""

    def __init__(self) -> None:
        super().__init__(1000, 10)
        self.next: int | None = None

    def look(self, now: float, settled: int, held: int) -> int | None:
        wanted, self.next = self.next, None
        return wanted


class Stage:
    """A consumer at work on a fake channel, in virtual time."""

    def __init__(self) -> None:
        self.channels: list[FakeChannel] = []
        self.prefetch = Told()
        self.waiting: list[Delivery] = []
        self.notices: list[Notice] = []
        self.consumer = Consumer(
            "rent",
            "rent.work",
            self.prefetch,
            cast("Link", self),
            self.waiting.append,
            self.recall,
            Emitter(self._note),
        )
        self.protocol = None
        self.has_others = False
        self.left: list[str] = []

    def leave(self, connection: object, why: str) -> None:
        """The link's: the connection is given up."""
        self.left.append(why)

    def _note(self, event: Event) -> None:
        assert isinstance(event, Notice)
        self.notices.append(event)

    def recall(self, before: float) -> list[Delivery]:
        recalled = [delivery for delivery in self.waiting if delivery.taken_at < before]
        self.waiting = [delivery for delivery in self.waiting if delivery.taken_at >= before]
        return recalled

    def hold(self, tag: int, taken_at: float) -> None:
        """Have a delivery of the first channel wait."""
        session = LibraryChannel(cast("Any", self.channels[0]))
        self.waiting.append(Delivery(RawMessage(b""), tag, session, taken_at))

    async def connect_insisting(self) -> Any:
        return SimpleNamespace(transport=SimpleNamespace(connection=self))

    async def channel(self, *, publisher_confirms: bool, **_: float) -> FakeChannel:
        self.channels.append(FakeChannel())
        return self.channels[-1]

    async def change(self, count: int) -> list[str]:
        """What the first channel was asked when the lane's pace asked for this."""
        before = len(self.channels[0].calls)
        self.prefetch.next = count
        await elapse(1)
        return self.channels[0].calls[before:]


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    with virtual_clock(consumers):
        made = Stage()
        running = asyncio.create_task(made.consumer.run())
        await turns()
        assert made.channels[0].calls == [f"qos {FLOOR}", "consume tag-1"]
        yield made
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@virtual
async def test_for_more_it_goes_on_with_another_consumer_and_gives_nothing_back() -> None:
    async with stage() as made:
        made.hold(1, taken_at=asyncio.get_running_loop().time())
        assert await made.change(FULL) == ["cancel tag-1", "qos 100", "consume tag-2"]
        assert len(made.waiting) == 1
        assert made.prefetch.count == FULL
        assert made.consumer.consuming.is_set()
        told = made.notices[-1]
        assert told.name == "lane.prefetch"
        wanted = {"lane": "rent", "prefetch": FULL, "was": FLOOR, "given_back": 0}
        assert wanted.items() <= told.fields.items()


@virtual
async def test_for_less_what_waits_goes_back_before_the_next_consumer_is_there() -> None:
    async with stage() as made:
        await made.change(FULL)
        for tag in (1, 2):
            made.hold(tag, taken_at=asyncio.get_running_loop().time())
        assert await made.change(20) == ["cancel tag-2", "nack 1", "nack 2", "qos 20", "consume tag-3"]
        assert made.waiting == []
        assert made.notices[-1].fields["given_back"] == 2


@virtual
@pytest.mark.parametrize("at", ["cancel", "nack", "qos", "consume"])
async def test_a_stop_in_the_midst_of_a_change_leaves_no_consumer(at: str) -> None:
    async with stage() as made:
        await made.change(FULL)
        made.hold(1, taken_at=asyncio.get_running_loop().time())
        channel = made.channels[0]
        channel.held_up = at
        await made.change(20)
        assert channel.calls[-1].startswith(at)
        stopping = asyncio.create_task(made.consumer.cancel())
        await turns()
        assert not stopping.done(), "what is given back now would come straight back"
        channel.going_on.set()
        await stopping
        opened = {call.split()[1] for call in channel.calls if call.startswith("consume")}
        ended = {call.split()[1] for call in channel.calls if call.startswith("cancel")}
        assert opened == ended
        assert ("tag-3" in opened) is (at in ("qos", "consume")), "none is opened once it is to stop"
        assert channel.calls.count("nack 1") == 1
        assert not made.consumer.consuming.is_set()
        before = list(channel.calls)
        made.prefetch.next = FULL
        await elapse(60)
        assert channel.calls == before
        assert len(made.channels) == 1, "the channel stays open for the acks to come"


@virtual
@pytest.mark.parametrize("at", ["cancel", "qos", "consume"])
async def test_a_cancel_of_the_broker_in_the_midst_of_a_change_makes_a_new_channel(at: str) -> None:
    async with stage() as made:
        channel = made.channels[0]
        channel.held_up = at
        await made.change(FULL)
        for callback in channel.on_consumer_cancel_callbacks:
            callback(None)
        channel.going_on.set()
        await elapse(5)
        assert channel.calls[-1] == "close"
        assert made.channels[1].calls == [f"qos {FLOOR}", "consume tag-1"]


@virtual
async def test_a_channel_that_dies_in_the_midst_of_a_change_is_replaced() -> None:
    async with stage() as made:

        async def refuse(tag: str, **_: float) -> None:
            raise aiormq.exceptions.ChannelClosed(406, "gone")

        made.channels[0].basic_cancel = refuse  # type: ignore[method-assign]
        assert await made.change(FULL) == []
        await elapse(5)
        assert made.channels[1].calls == [f"qos {FLOOR}", "consume tag-1"]
        assert await made.change(FULL) == []
        assert made.channels[1].calls[2:] == ["cancel tag-1", "qos 100", "consume tag-2"]


@virtual
async def test_what_waits_for_minutes_goes_back_though_the_prefetch_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumers, "_IDLE_S", math.inf)  # what is held here came over no channel
    async with stage() as made:
        now = asyncio.get_running_loop().time()
        made.hold(1, taken_at=now)
        made.hold(2, taken_at=now + 200)
        await elapse(299)
        assert made.channels[0].calls[2:] == []
        await elapse(3)
        assert made.channels[0].calls[2:] == ["nack 1"]
        assert made.notices[-1].name == "lane.given_back"
        assert [delivery.tag for delivery in made.recall(math.inf)] == [2]


@virtual
async def test_where_nothing_comes_the_broker_has_to_prove_that_it_still_would() -> None:
    async with stage() as made:
        made.has_others = True
        await elapse(10)
        assert made.channels[0].calls[2:] == []
        await elapse(10)
        assert made.channels[0].calls[-3:] == ["cancel tag-1", "qos 12", "consume tag-2"]
        made.channels[0].held_up = "no answer"
        await elapse(20)
        assert len(made.left) == 1, "a node that does not answer is left for another"
        assert len(made.channels) == 2


@virtual
async def test_where_nothing_comes_from_the_only_host_a_new_channel_is_opened_without_a_word() -> None:
    async with stage() as made:
        await elapse(10)
        assert len(made.channels) == 1
        told = len(made.notices)
        await elapse(10)
        assert made.channels[0].calls[-1] == "close"
        assert made.channels[1].calls == [f"qos {FLOOR}", "consume tag-1"]
        assert len(made.notices) == told
