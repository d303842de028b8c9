"""A job that ends the process which runs it: it stops at the cap, and nobody else is blamed for it."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from harness import eventually
from harness.daemon import Daemon
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

OTHERS = ["left", "right"]
NEVER = {"do": "wait", "gate": "never"}
AMONG_OTHERS = {"do": "kill", "after": OTHERS}
ALONE = {"do": "kill", "after": []}


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)  # five lives: once is enough
async def test_a_job_that_kills_its_process_is_buried_and_its_neighbours_are_not(new_site: NewSite) -> None:
    async with new_site(max_attempts=4, concurrency=3) as place:
        jobs = [scripted("poison", AMONG_OTHERS, AMONG_OTHERS, ALONE)]
        jobs += [scripted(key, NEVER, NEVER, "done") for key in OTHERS]
        await place.promise(jobs)
        await place.publish(*jobs)
        for _ in range(4):
            with place.daemon() as daemon:
                assert await daemon.ended() == -signal.SIGKILL
        with place.daemon() as last:
            await last.ready()
            await place.quiet()
            assert await last.drained() == Exit.OK
        poison = await place.job("poison")
        assert (poison.state, poison.reason) == (State.DEAD, "crashed")
        assert [attempt.outcome for attempt in poison.history].count("crashed") == 4
        assert len(place.log.calls("poison")) == 4
        for key in OTHERS:
            job = await place.job(key)
            assert job.state is State.DONE
            assert len(place.log.effects(key)) == 1
            # One whose claim was just on its way when the poison started alone stood in the ledger, too.
            assert [attempt.outcome for attempt in job.history].count("crashed") in (2, 3)


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_handler_that_runs_out_of_memory_and_is_told_so_fails_alone(new_site: NewSite) -> None:
    async with new_site(max_attempts=2, concurrency=3) as place:
        jobs = [scripted("greedy", {"do": "exhaust", "checked": True})]
        jobs += [scripted(key, "done") for key in OTHERS]
        await place.publish(*jobs)
        with place.daemon() as daemon:
            for key in OTHERS:
                assert (await place.reaches(key, State.DONE)).attempts == 1
            greedy = await place.reaches("greedy", State.DEAD)
            assert await daemon.drained() == Exit.OK
        assert [attempt.outcome for attempt in greedy.history] == ["unknown", "unknown"]
        assert greedy.reason == "exception:MemoryError"


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
@pytest.mark.soak
async def test_a_job_that_takes_all_memory_is_buried_though_two_daemons_restart_at_once(
    new_site: NewSite,
) -> None:
    """As the OOM killer or a C library that does not look ends them, and systemd starts them again."""
    others = [f"other-{n}" for n in range(20)]
    # A short lease: one finds the other's claim standing, and waits for its end before it asks again.
    async with new_site(max_attempts=4, concurrency=3, prefetch=10, lease_s=3) as place:
        jobs = [scripted(key, "done") for key in others]
        jobs.insert(7, scripted("poison", {"do": "exhaust", "checked": False}))
        await place.promise(jobs)
        await place.publish(*jobs)
        ends = await asyncio.gather(restarting(place, "one"), restarting(place, "two"))
        assert Counter(ends[0] + ends[1]) == {-signal.SIGSEGV: 4, Exit.OK: 2}
        poison = await place.job("poison")
        assert (poison.state, poison.reason) == (State.DEAD, "crashed")
        assert len(place.log.calls("poison")) == 4
        for key in others:
            job = await place.job(key)
            assert job.state is State.DONE
            # An effect that the crash caught before its record was committed is repeated, and only that one.
            crashes = [attempt.outcome for attempt in job.history].count("crashed")
            assert 1 <= len(place.log.effects(key)) <= 1 + crashes


async def restarting(place: Site, instance: str) -> list[int]:
    """Keep a daemon running, as ``Restart=always`` does, until the run is over; how each of them ended."""
    ends: list[int] = []
    while True:
        with place.daemon(instance) as daemon:

            async def over(daemon: Daemon = daemon) -> bool:
                return daemon.process.poll() is not None or (await place.run()).open == 0

            await eventually(over, 120, "it dies, or the run is over")
            if daemon.process.poll() is None:
                await daemon.ready()
                return [*ends, await daemon.drained()]
            ends.append(daemon.process.wait())
