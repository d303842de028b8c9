"""A connection that is supervised: which of several hosts it takes, and how soon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from acklast.broker import Link
from acklast.errors import BrokerUnavailable
from acklast.telemetry.events import Emitter, Event, Notice
from harness import Broker, eventually
from harness.proxy import Proxy


class Told:
    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.emitter = Emitter(self._note)

    def _note(self, event: Event) -> None:
        assert isinstance(event, Notice)
        self.notices.append(event)

    def of(self, name: str) -> list[Notice]:
        return [notice for notice in self.notices if notice.name == name]


@asynccontextmanager
async def silent_host() -> AsyncIterator[str]:
    """A port that takes connections, and says nothing."""
    over = asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    try:
        yield f"amqp://guest:guest@127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        over.set()
        server.close()


async def test_a_host_that_is_silent_does_not_hold_up_those_behind_it(broker: Broker) -> None:
    told = Told()
    async with silent_host() as silent:
        link = Link([silent, broker.url], "test", told.emitter, connect_timeout_s=60)
        began = monotonic()
        first = await link.connect()
        assert monotonic() - began < 30, "the silent host would have had its 60 seconds"
        assert first.transport is not None
        await first.transport.connection.close()
        began = monotonic()
        assert await link.connect() is not first, "the host that answered is asked first"
        await link.close()
    assert [notice.fields["generation"] for notice in told.of("broker.connected")] == [1, 2]


async def test_all_who_ask_share_one_failure_and_it_is_said_once(broker: Broker) -> None:
    told = Told()
    why: list[str] = []
    async with Proxy(broker.url) as proxy:
        link = Link(
            [proxy.url],
            "test",
            told.emitter,
            connect_timeout_s=1,
            chance=lambda: 0.5,
            on_change=lambda role, text: why.append(text),
        )
        proxy.swallow(True)
        with pytest.raises(BrokerUnavailable, match=r"no answer within 1 s"):
            await link.connect()
        asking = [asyncio.create_task(link.connect_insisting()) for _ in range(20)]
        await eventually(lambda: proxy.accepted >= 2)
        assert proxy.accepted < 20, "each try is everybody's"
        proxy.swallow(False)
        assert len({id(await one) for one in asking}) == 1
        await link.close()
    assert len(told.of("broker.unavailable")) == 1
    assert len(why) == 2, why
    assert "no answer" in why[0]
    assert why[1] == ""


@pytest.mark.parametrize("bulk", [True, False])
async def test_a_connection_that_is_silent_is_ended(broker: Broker, bulk: bool) -> None:
    told = Told()
    async with Proxy(broker.url) as proxy:
        link = Link([proxy.url], "test", told.emitter, heartbeat_s=1, bulk=bulk)
        connection = await link.connect()
        assert connection.transport is not None
        under = connection.transport.connection
        proxy.swallow(True)
        await eventually(lambda: under.is_closed)
        proxy.swallow(False)
        await link.connect_insisting()
        await link.close()
    assert len(told.of("broker.silent")) == 1


async def test_a_host_is_left_once_however_many_say_so(broker: Broker) -> None:
    told = Told()
    link = Link([broker.url, f"{broker.url}?heartbeat=60"], "test", told.emitter, connect_timeout_s=60)
    mute = await link.connect()
    for _ in range(4):  # an even number would come back to the first host
        link.leave(mute, "nothing is confirmed")
    assert len(told.of("broker.left")) == 1

    async def gone() -> bool:
        return await link.connect_insisting() is not mute

    await eventually(gone, 30, "the connection is seen to be gone, and another is there")
    link.leave(mute, "nothing is confirmed")
    assert len(told.of("broker.left")) == 1, "the connection that came after it stays"
    await link.close()
