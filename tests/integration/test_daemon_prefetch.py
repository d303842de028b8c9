"""A lane holds what it can start soon: what is left in the queue is there for the neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

from acklast.errors import Exit
from acklast.pacing.prefetch import prefetch_for
from harness import eventually
from harness.daemon import Daemon
from harness.scripted import LANE
from harness.site import NAMES, Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

WORK: Final = NAMES.work(LANE)
WAIT: Final = {"do": "wait", "gate": "go"}
CONCURRENCY: Final = 5
FLOOR: Final = prefetch_for(1000, CONCURRENCY, 0.0, None)


async def calls_of(place: Site, daemon: Daemon, count: int) -> None:
    """Wait until this daemon has called its handler so often."""

    def calls() -> bool:
        return Counter(call.pid for call in place.log.calls())[daemon.process.pid] >= count

    await eventually(calls, what=f"{count} calls of one daemon")


async def ready(place: Site, fits: Callable[[int], bool], what: str) -> None:
    """Wait until the count of the jobs that nobody holds is right."""

    async def right() -> bool:
        return fits((await place.ready()).get(WORK, 0))

    await eventually(right, what=what)


@one_receiver_else_soak
async def test_a_second_daemon_gets_its_share_of_what_a_slow_first_one_could_hold(new_site: NewSite) -> None:
    total = 40
    async with new_site(concurrency=CONCURRENCY, prefetch=1000) as place:
        jobs = [scripted(f"job-{number}", WAIT) for number in range(total)]
        await place.promise(jobs)
        await place.publish(*jobs)
        with place.daemon("one") as first, place.daemon("two") as second:
            await calls_of(place, first, CONCURRENCY)
            await calls_of(place, second, CONCURRENCY)
            # Both work, nothing has been done yet, and the rest belongs to nobody.
            assert place.log.effects() == []
            await ready(place, lambda count: count == total - 2 * FLOOR, "each holds what its slots take")
            place.open_gate("go")
            await place.quiet()
            assert await first.drained() == Exit.OK
            assert await second.drained() == Exit.OK
        assert len(place.log.calls()) == len(place.log.effects()) == total


@one_receiver_else_soak
async def test_a_lane_that_turns_slow_gives_back_and_one_that_turns_fast_takes_more(
    new_site: NewSite,
) -> None:
    ceiling, fast, slow = 20, 200, 60
    async with new_site(concurrency=CONCURRENCY, prefetch=ceiling) as place:
        jobs = [scripted(f"fast-{number}", "done") for number in range(fast)]
        held_up = [scripted(f"slow-{number}", WAIT) for number in range(slow)]
        again = [scripted(f"again-{number}", "done") for number in range(fast)]
        await place.promise([*jobs, *held_up, *again])
        await place.publish(*jobs)
        with place.daemon("one") as first:
            await first.says("lane.consuming", prefetch=FLOOR)
            await first.says("lane.prefetch", prefetch=ceiling)
            await place.publish(*held_up, *again)
            # It held as many as it may, and now it finds that they take their time.
            down = await first.says("lane.prefetch", was=ceiling)
            assert down["given_back"] >= ceiling - 2 * FLOOR
            with place.daemon("two") as second:
                await calls_of(place, second, CONCURRENCY)
                place.open_gate("go")
                await eventually(lambda: len(first.said("lane.prefetch", prefetch=ceiling)) >= 2)
                await place.quiet(60)
                assert await second.drained() == Exit.OK
            assert await first.drained() == Exit.OK
        calls = Counter(call.key for call in place.log.calls())
        assert len(calls) == len(place.log.effects()) == 2 * fast + slow
        assert set(calls.values()) == {1}
