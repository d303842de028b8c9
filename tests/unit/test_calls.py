"""A cancellation that nobody asked for is a lost connection; a real one passes."""

from __future__ import annotations

import asyncio

import pytest

from acklast_topology.calls import ConnectionDied, bounded, only_real_cancellation


async def library_cancels() -> None:
    """What a dying connection does to whoever waits on it."""
    future = asyncio.get_running_loop().create_future()
    future.set_exception(asyncio.CancelledError())
    await future


async def test_the_librarys_own_cancellation_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionDied), only_real_cancellation():
        await library_cancels()


async def test_a_real_cancellation_passes() -> None:
    waiting = asyncio.Event()

    async def work() -> None:
        with only_real_cancellation():
            waiting.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_cancellation_that_the_library_loses_passes_as_well() -> None:
    """``asyncio.wait_for`` loses one that comes in the turn of the answer, before Python 3.12."""
    answer = asyncio.get_running_loop().create_future()
    waiting = asyncio.Event()

    async def call() -> None:
        waiting.set()
        try:
            await answer
        except asyncio.CancelledError:
            return  # lost

    async def work() -> str:
        async with bounded(30):
            await call()
        return "goes on for ever"

    task = asyncio.create_task(work())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_cleans_up_after_a_cancellation_is_not_cancelled_again() -> None:
    """A drain settles its last jobs in a task that was cancelled before: its count is not zero then."""
    waiting = asyncio.Event()

    async def work() -> str:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                with only_real_cancellation():
                    await library_cancels()
            except ConnectionDied:
                return "lost"
        return "not reached"

    task = asyncio.create_task(work())
    await waiting.wait()
    task.cancel()
    assert await task == "lost"


async def test_time_is_limited() -> None:
    with pytest.raises(TimeoutError):
        async with bounded(0.001):
            await asyncio.Event().wait()


async def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), only_real_cancellation():
        raise KeyError
