"""Fair lanes on a real broker: a small run behind a large one, priorities, two lanes on one budget."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.names import Names
from acklast_topology.plan import FAIR_QUEUES
from acklast_topology.publish import Job
from harness import Broker, eventually
from harness.scripted import LANE
from harness.site import Site, one_receiver_else_soak, scripted, site
from harness.two_lanes import SIDE, SIDE_TYPE

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

BIG: Final = 1500
FEW: Final = 50


@pytest.fixture
def one_site(broker: Broker, ledger_dsn: str, tmp_path: Path) -> NewSite:
    """As ``new_site``, on one receiver alone: for what does not depend on it."""
    return partial(site, tmp_path, broker.url, ledger_dsn)


def jobs_of(run: str, count: int, **more: Any) -> list[Job]:
    return [scripted(f"{run}-{number:04}", "done", run=run, **more) for number in range(count)]


def order(place: Site) -> list[str]:
    """To what each start belonged, in order: the first part of its key."""
    return [call.key.partition("-")[0] for call in place.log.calls()]


async def started(place: Site, run: str, count: int, timeout_s: float = 60) -> None:
    """Wait until so many of a run have been started."""
    await eventually(lambda: order(place).count(run) >= count, timeout_s, f"{count} starts of {run}")


def before(first: str, starts: Iterable[str]) -> int:
    """How many starts came before the first of these."""
    return sum(1 for _ in takewhile(lambda run: run != first, starts))


async def in_queues(place: Site) -> int:
    return sum((await place.ready()).values())


async def test_a_small_run_behind_a_large_one_gets_its_share(one_site: NewSite) -> None:
    async with one_site(fair_by="run", quota="10 per 1 s", lookahead=100) as place:
        jobs = [*jobs_of("big", BIG), *jobs_of("few", FEW)]
        await place.publish(*jobs)
        with place.daemon() as daemon:
            await daemon.ready()
            for job in jobs[-FEW:]:
                await place.reaches(job.key, State.DONE, 60)
            starts = order(place)
            ahead = before("few", starts)
            last = len(starts) - 1 - starts[::-1].index("few")
            # It is seen when the large run is out of the way, and from then on every second start is its own.
            assert ahead <= BIG // 4
            assert last - ahead <= 2 * FEW + 5
            keys = [call.key for call in place.log.calls()]
            for run in ("big", "few"):
                own = [key for key in keys if key.startswith(run)]
                assert near(own), f"{run} keeps its order"
            assert await daemon.drained() == Exit.OK
        done = len(place.log.effects())
        await eventually(lambda: accounted(place, done), 30, "every job is done or in a queue")


def near(keys: list[str]) -> bool:
    """Whether a run started in its order, but for those that ran side by side."""
    numbers = [int(key.rpartition("-")[2]) for key in keys]
    return all(abs(number - place) <= 5 for place, number in enumerate(numbers))


async def accounted(place: Site, done: int) -> bool:
    return done + await in_queues(place) == BIG + FEW


@one_receiver_else_soak
@pytest.mark.soak
async def test_a_crash_while_jobs_are_set_aside_loses_none(new_site: NewSite) -> None:
    async with new_site(fair_by="run", lookahead=20, prefetch=20, lease_s=2) as place:
        jobs = [*jobs_of("big", 200), *jobs_of("few", 20)]
        runs = [scripted(job.key, "done") for job in jobs]
        await place.promise(runs)
        await place.publish(*runs)
        for _ in range(2):
            with place.daemon() as daemon:
                calls = len(place.log.calls())
                await eventually(lambda calls=calls: len(place.log.calls()) > calls + 20)  # type: ignore[misc]
                daemon.signal(signal.SIGKILL)
                await daemon.ended()
        with place.daemon() as daemon:
            await place.quiet(60)
            assert await daemon.drained() == Exit.OK
        assert {call.key for call in place.log.effects()} == {job.key for job in jobs}


@pytest.mark.soak
async def test_two_daemons_share_what_is_set_aside(one_site: NewSite) -> None:
    async with one_site(fair_by="run", lookahead=20, quota="200 per 1 s") as place:
        jobs = [scripted(f"k-{number:04}", "done") for number in range(300)]
        await place.promise(jobs)
        with place.daemon("one") as one, place.daemon("two") as two:
            for daemon in (one, two):
                await daemon.ready()  # else the first may be through before the second is up
            await place.publish(*jobs)
            await place.quiet(60)
            for daemon in (one, two):
                assert await daemon.drained() == Exit.OK
        calls = place.log.calls()
        assert sorted(call.key for call in calls) == sorted(job.key for job in jobs)
        shares = [sum(call.pid == daemon.process.pid for call in calls) for daemon in (one, two)]
        assert min(shares) >= 50, shares


async def test_a_high_priority_starts_more_often_and_a_low_one_starts(one_site: NewSite) -> None:
    async with one_site(fair_by="priority", quota="20 per 1 s", concurrency=1, lookahead=1000) as place:
        await place.publish(*jobs_of("low", 300, priority=0), *jobs_of("high", 60, priority=9))
        with place.daemon() as daemon:
            await started(place, "high", 60)
            starts = order(place)
            share = starts[before("high", starts) :].count("low")
            # 0.2 to 2: six of them beside sixty.
            assert 4 <= share <= 8
            assert await daemon.drained() == Exit.OK


async def test_two_lanes_share_a_budget_by_their_weights(one_site: NewSite) -> None:
    side = f'[lanes.{SIDE}]\nbudget = "api"\nconcurrency = 20\nweight = 2'
    settings: dict[str, Any] = {"quota": "20 per 1 s", "concurrency": 100, "more": side}
    async with one_site(app="harness.two_lanes:app", **settings) as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.publish(*jobs_of("many", 300))
            await started(place, "many", 20)
            payload = {"steps": [{"do": "done"}]}
            others = [Job.json(SIDE, f"side-{n:03}", payload, type=SIDE_TYPE) for n in range(60)]
            await place.publish(*others)
            await started(place, "side", 60)
            starts = order(place)
            share = starts[before("side", starts) :].count("many")
            # Two of it to one of the other, whatever that has waiting in its hundred slots.
            assert 25 <= share <= 35
            assert await daemon.drained() == Exit.OK


async def unserved(place: Site) -> bool:
    """Whether nobody consumes any queue of the lane."""
    names = (Names().work(LANE), *(Names().fair(LANE, number) for number in FAIR_QUEUES))
    async with place.connection.channel() as channel:
        queues = [await channel.declare_queue(name, passive=True) for name in names]
    return not any(queue.declaration_result.consumer_count for queue in queues)


async def test_a_fair_lane_that_stands_by_gives_back_all_that_it_holds(one_site: NewSite) -> None:
    async with one_site(fair_by="run", quota="1000 per 1 s", concurrency=1, lookahead=10) as place:
        with place.daemon() as daemon:
            await daemon.ready()
            asks = scripted("asks", {"do": "rate_limited", "retry_after": 600}, run="a")
            await place.publish(asks, *jobs_of("waits", 40))
            await place.reaches("asks", State.WAITING)
            queues = 1 + len(FAIR_QUEUES)
            await eventually(lambda: len(daemon.said("lane.standing_by")) >= queues, 30, "all stand by")

            async def given_back() -> bool:
                return await in_queues(place) == 41

            await eventually(given_back, 30, "nothing is held")
            await eventually(lambda: unserved(place), 30, "no queue has a consumer")
            assert await daemon.drained() == Exit.OK
        assert len(place.log.calls()) <= 41
