"""An acknowledgement ends, whatever the client library makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import aiormq
import pytest
from aiormq.abc import AbstractChannel

from acklast.channels import BulkChannel, LibraryChannel
from acklast.receiver import BulkProtocol
from harness.virtual import turns


class FakeChannel:
    """A channel on a connection whose short queue of frames is full until ``room`` is set."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.observers: list[asyncio.Future[None]] = []

    @property
    def closing(self) -> asyncio.Future[None]:
        if self.over.done():
            return self.over
        observer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(_: object) -> None:
            if not observer.done():
                observer.set_result(None)

        self.over.add_done_callback(tell)
        self.observers.append(observer)
        return observer

    def basic_ack(self, tag: int, wait: bool) -> Coroutine[Any, Any, None]:
        return self._put()

    def basic_nack(self, tag: int, requeue: bool, wait: bool) -> Coroutine[Any, Any, None]:
        return self._put()

    async def _put(self) -> None:
        await self.room.wait()
        if self.over.done():
            raise aiormq.exceptions.ChannelInvalidStateError("closed")


@pytest.mark.parametrize("settle", [LibraryChannel.ack, LibraryChannel.nack])
async def test_what_waits_for_room_on_a_connection_that_dies_is_lost_and_not_stuck(settle: Any) -> None:
    library = FakeChannel()
    sending = asyncio.create_task(settle(LibraryChannel(cast("AbstractChannel", library)), 1))
    await turns()
    assert not sending.done()
    library.over.set_result(None)
    assert await asyncio.wait_for(sending, 10) is False


async def test_an_ack_waits_for_room_and_leaves_no_observer_behind() -> None:
    library = FakeChannel()
    sending = asyncio.create_task(LibraryChannel(cast("AbstractChannel", library)).ack(1))
    await turns()
    assert not sending.done()
    library.room.set()
    assert await asyncio.wait_for(sending, 10) is True
    assert all(observer.cancelled() for observer in library.observers)


async def test_either_channel_counts_what_it_has_settled() -> None:
    """The lane's pace is read from it."""
    library = FakeChannel()
    library.room.set()
    one = LibraryChannel(cast("AbstractChannel", library))
    other = BulkChannel(
        cast("AbstractChannel", SimpleNamespace(is_closed=False, number=1)),
        cast("BulkProtocol", SimpleNamespace(write=bytearray().extend)),
    )
    for channel in (one, other):
        assert await channel.ack(1)
        assert await channel.nack(2)
        assert await channel.ack(3)
        await turns()
        assert channel.settled == 3


async def test_an_ack_that_the_library_refuses_is_lost() -> None:
    library = FakeChannel()
    library.over.set_result(None)
    library.room.set()
    assert await LibraryChannel(cast("AbstractChannel", library)).ack(1) is False
