"""A quota holds for daemons that know of each other by the ledger alone, whatever becomes of them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import TypeAlias

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.names import Names
from harness import eventually
from harness.scripted import LANE
from harness.site import Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

PAUSE_S = 5.0
"""Long enough for both daemons to be given jobs meanwhile."""


def worst(place: Site, period_s: float) -> int:
    """The most calls in any window of ``period_s``, by the clock of those who were called."""
    times = sorted(call.at for call in place.log.calls())
    return max(sum(at <= other < at + period_s for other in times) for at in times)


async def consumers(place: Site) -> int:
    """How many consume the lane's queue."""
    async with place.connection.channel() as channel:
        queue = await channel.declare_queue(Names().work(LANE), passive=True)
    return queue.declaration_result.consumer_count or 0


async def nobody_consumes(place: Site) -> bool:
    return await consumers(place) == 0


async def one_consumes(place: Site) -> bool:
    """For a moment, while the permit is handed on, it may be none or two."""
    return await consumers(place) == 1


@one_receiver_else_soak
async def test_three_daemons_of_which_one_is_killed_keep_one_quota(new_site: NewSite) -> None:
    async with new_site(quota="20 per 1 s", lease_s=2) as place:
        jobs = [scripted(f"k-{number:03}", "done") for number in range(150)]
        await place.promise(jobs)
        with ExitStack() as running:
            one, two, three = (running.enter_context(place.daemon(name)) for name in ("one", "two", "three"))
            for daemon in (one, two, three):
                await daemon.ready()  # else two of them may be through before the third is up
            await place.publish(*jobs)
            await eventually(lambda: len(place.log.calls()) >= 40)
            one.signal(signal.SIGKILL)
            await one.ended()
            again = running.enter_context(place.daemon("one"))
            await place.quiet(60)
            assert {call.pid for call in place.log.calls()} >= {two.process.pid, three.process.pid}
            for daemon in (two, three, again):
                assert await daemon.drained() == Exit.OK
        assert worst(place, 1.0) <= 20
        assert len(place.log.effects()) >= 150


@one_receiver_else_soak
async def test_a_restart_does_not_begin_with_a_fresh_quota(new_site: NewSite) -> None:
    async with new_site(quota="5 per 4 s") as place:
        await place.publish(*(scripted(f"k-{number}", "done") for number in range(10)))
        with place.daemon() as first:
            await eventually(lambda: len(place.log.effects()) == 5)
            first.signal(signal.SIGKILL)
            await first.ended()
        with place.daemon() as second:
            await second.ready()
            await eventually(lambda: len(place.log.effects()) >= 10)
            assert await second.drained() == Exit.OK
        assert worst(place, 4.0) <= 5


@one_receiver_else_soak
async def test_one_permit_has_one_consumer_and_no_job_waits_elsewhere(new_site: NewSite) -> None:
    async with new_site(quota="1 per 1 s") as place:
        with ExitStack() as running:
            daemons = [running.enter_context(place.daemon(name)) for name in ("one", "two", "three")]
            for daemon in daemons:
                await daemon.ready()
            await eventually(lambda: one_consumes(place), what="one consumes")
            await place.publish(*(scripted(f"k-{number}", "done") for number in range(4)))
            for number in range(4):
                await place.reaches(f"k-{number}", State.DONE)
            assert worst(place, 1.0) == 1
            # The permit and the consumer go on when their daemon ends.
            holder = next(daemon for daemon in daemons if daemon.said("lane.consuming"))
            assert await holder.drained() == Exit.OK
            await place.publish(scripted("after", "done"))
            await place.reaches("after", State.DONE)
            await eventually(lambda: one_consumes(place), what="one consumes")
        assert worst(place, 1.0) == 1


@one_receiver_else_soak
async def test_a_rate_limit_pauses_every_daemon_at_once(new_site: NewSite) -> None:
    async with new_site(quota="1000 per 1 s", concurrency=1) as place:
        with ExitStack() as running:
            daemons = [running.enter_context(place.daemon(name)) for name in ("one", "two")]
            for daemon in daemons:
                await daemon.ready()
            await place.publish(scripted("asks", {"do": "rate_limited", "retry_after": PAUSE_S}, "done"))
            await eventually(lambda: any(daemon.said("budget.paused") for daemon in daemons))
            await place.publish(*(scripted(f"k-{number}", "done") for number in range(20)))
            for number in range(20):
                await place.reaches(f"k-{number}", State.DONE)
            asked = place.log.calls("asks")[0].at
            others = [call for call in place.log.calls() if call.key != "asks"]
            assert min(call.at for call in others) >= asked + PAUSE_S
            assert len({call.pid for call in others}) == 2, "both had jobs, and both kept quiet"
            await place.reaches("asks", State.DONE)
            job = await place.job("asks")
            assert (job.attempts, job.rate_limited) == (1, 1)


async def test_a_pause_longer_than_a_delivery_may_wait_gives_the_deliveries_back(new_site: NewSite) -> None:
    async with new_site(quota="1000 per 1 s", concurrency=2) as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.publish(scripted("asks", {"do": "rate_limited", "retry_after": 600}))
            await daemon.says("lane.standing_by")
            await eventually(lambda: nobody_consumes(place), what="the queue is without a consumer")
            await place.publish(scripted("waits", "done"))
            assert await nobody_consumes(place)
            assert await daemon.drained() == Exit.OK
        assert [call.key for call in place.log.calls()] == ["asks"]
