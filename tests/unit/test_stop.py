"""What a stop does to a process that is not up yet."""

from __future__ import annotations

import asyncio

import pytest

from acklast.stop import Stop, Stopped, unless_stopped
from harness.virtual import elapse, turns, virtual


async def answer(after_s: float) -> int:
    await elapse(after_s)
    return 42


@virtual
async def test_what_is_done_is_the_answer() -> None:
    assert await unless_stopped(Stop(), answer(3)) == 42


@virtual
async def test_a_stop_cancels_it_and_waits_for_its_end() -> None:
    told: list[str] = []

    async def start() -> None:
        try:
            await elapse(3600)
        finally:
            await elapse(1)
            told.append("tidied up")

    stop = Stop()
    starting = asyncio.create_task(unless_stopped(stop, start()))
    await turns()
    stop.asked.set()
    with pytest.raises(Stopped):
        await starting
    assert told == ["tidied up"]


@virtual
async def test_what_fails_by_itself_says_so() -> None:
    async def start() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await unless_stopped(Stop(), start())


@virtual
async def test_whoever_is_cancelled_leaves_nothing_behind() -> None:
    work: list[asyncio.Task[None] | None] = []

    async def start() -> None:
        work.append(asyncio.current_task())
        await elapse(3600)

    starting = asyncio.create_task(unless_stopped(Stop(), start()))
    await turns()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    [task] = work
    assert task is not None
    assert task.cancelled()
