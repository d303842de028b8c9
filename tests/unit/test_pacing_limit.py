"""A quota that is lowered while a fleet runs, and given back: what the provider's own meter sees."""

from __future__ import annotations

import asyncio
import random

from acklast.config.quota import Quota
from harness.book import Server
from harness.fleet import Member, Meter, Provider
from harness.virtual import elapse, virtual

CONFIGURED, LOWERED = Quota(40, 1.0), Quota(10, 1.0)


async def fleet(count: int, chance: random.Random) -> tuple[list[Member], Meter]:
    server, meter = Server(chance.random), Meter()
    provider = Provider(chance, meter, slowest_s=0.05)
    members = [Member(server, provider, "api", CONFIGURED) for _ in range(count)]
    jobs: asyncio.Queue[int] = asyncio.Queue()
    for number in range(100_000):
        jobs.put_nowait(number)
    for member in members:
        await member.start()
        member.tasks.add(asyncio.create_task(member.consume(20, jobs)))
    return members, meter


def counted(meter: Meter, start: float, end: float) -> int:
    return sum(start <= at < end for at in meter.counted)


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_a_lowered_quota_holds_for_the_fleet_within_a_moment_and_the_full_one_comes_back() -> None:
    members, meter = await fleet(3, random.Random(5))
    await elapse(10)
    before = counted(meter, now() - 5, now())
    for member in members:
        member.exchange.limit("api", LOWERED, None)
    changed = now()
    await elapse(10)
    during = counted(meter, changed + 1.5, changed + 9.5)
    late = Meter([at for at in meter.counted if at > changed + 0.3])
    for member in members:
        member.exchange.limit("api", CONFIGURED, None)
    cleared = now()
    await elapse(10)
    after = counted(meter, cleared + 2, cleared + 10)
    for member in members:
        await member.kill()
    assert meter.worst(1.0) <= CONFIGURED.count
    assert late.worst(1.0) <= LOWERED.count, "what had started before cools first"
    assert before > 5 * CONFIGURED.count * 0.8
    assert 8 * LOWERED.count * 0.8 < during <= 8 * LOWERED.count + LOWERED.count
    assert after > 8 * CONFIGURED.count * 0.8


@virtual
async def test_a_daemon_that_has_not_heard_yet_is_held_to_the_lowered_quota_by_the_others() -> None:
    members, meter = await fleet(2, random.Random(7))
    await elapse(5)
    members[0].exchange.limit("api", LOWERED, None)
    await elapse(10)
    late = Meter([at for at in meter.counted if at > now() - 8])
    for member in members:
        await member.kill()
    assert late.worst(1.0) <= LOWERED.count
