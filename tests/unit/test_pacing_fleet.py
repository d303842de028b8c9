"""A quota holds for the whole fleet: at the provider's meter, in every window, whatever dies on the way."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.config.quota import Quota
from acklast.pacing.budgets import NO_LIMITS, Limits
from harness.book import Server
from harness.drawn import drawn
from harness.fleet import Member, Meter, Provider
from harness.virtual import elapse, run, virtual


def a_queue(jobs: int) -> asyncio.Queue[int]:
    queue: asyncio.Queue[int] = asyncio.Queue()
    for job in range(jobs):
        queue.put_nowait(job)
    return queue


class Fleet:
    """Daemons on one budget, one provider and one queue of jobs."""

    def __init__(self, quota: Quota, seed: int = 0, *, slowest_s: float = 0.2, loses: float = 0.0) -> None:
        self.chance = random.Random(seed)
        self.server = Server(self.chance.random)
        self.meter = Meter()
        self.provider = Provider(self.chance, self.meter, slowest_s=slowest_s, loses=loses)
        self.quota = quota
        self.members: list[Member] = []
        self.consumers: dict[asyncio.Queue[int], list[Member]] = {}

    async def join(
        self,
        queue: asyncio.Queue[int],
        workers: int = 20,
        former: Member | None = None,
        limits: Limits = NO_LIMITS,
        look_s: float = 1.0,
    ) -> Member:
        member = Member(self.server, self.provider, "api", self.quota, limits)
        await member.start(former)
        member.run(member.consume(workers, queue))
        self.members.append(member)
        member.run(self._look(member, queue, look_s))
        return member

    async def _look(self, member: Member, queue: asyncio.Queue[int], every_s: float) -> None:
        """As a lane's consumer does while it stands by."""
        self.consumers.setdefault(queue, []).append(member)
        while True:
            if not member.serves:
                served = any(other.serves for other in self.consumers[queue])
                member.budget.saw_backlog("lane", queue.qsize(), served)
            await elapse(every_s)

    async def end(self) -> None:
        for member in self.members:
            await member.kill()


@virtual
async def test_one_daemon_alone_has_the_whole_quota_and_uses_it() -> None:
    fleet = Fleet(Quota(50, 1.0), slowest_s=0.02)
    await fleet.join(a_queue(5000))
    await elapse(20)
    assert fleet.meter.worst(1.0) == 50
    assert len(fleet.meter.counted) >= 0.96 * 50 * 20
    await fleet.end()


@virtual
async def test_eight_daemons_share_the_quota_and_lose_little_of_it() -> None:
    fleet, queue = Fleet(Quota(100, 1.0), slowest_s=0.02), a_queue(10_000)
    await asyncio.gather(*(fleet.join(queue) for _ in range(8)))
    await elapse(20)
    assert fleet.meter.worst(1.0) <= 100
    assert len(fleet.meter.counted) >= 0.94 * 100 * 20
    assert min(member.started for member in fleet.members) >= 0.5 * 20 * 100 / 8
    await fleet.end()


@virtual
async def test_permits_go_to_where_the_work_is() -> None:
    fleet = Fleet(Quota(40, 1.0), slowest_s=0.02)
    busy, idle = await fleet.join(a_queue(10_000)), await fleet.join(a_queue(0))
    await elapse(3)
    before = busy.started
    await elapse(10)
    assert busy.started - before >= 0.92 * 40 * 10
    assert fleet.meter.worst(1.0) <= 40
    assert idle.budget.starts.held <= 1
    await fleet.end()


@virtual
async def test_settled_shares_cost_the_ledger_next_to_nothing() -> None:
    fleet, queue = Fleet(Quota(100, 1.0), slowest_s=0.02), a_queue(20_000)
    for _ in range(4):
        await fleet.join(queue)
    await elapse(10)
    before = fleet.server.statements
    await elapse(60)
    # Both ways of each statement are counted: less than one a second of each daemon, for 6,000 starts.
    assert fleet.server.statements - before < 4 * 60 * 2
    await fleet.end()


@virtual
async def test_one_permit_an_hour_goes_from_daemon_to_daemon_with_the_jobs() -> None:
    fleet = Fleet(Quota(1, 600.0))
    queues = [a_queue(3) for _ in range(8)]
    for queue in queues:
        await fleet.join(queue, workers=1, look_s=30)
    await elapse(8.2 * 600)
    assert fleet.meter.worst(600.0) == 1
    assert len(fleet.meter.counted) == 9
    assert [member.started for member in fleet.members].count(0) == 0, "each had its turn"
    assert sum(member.serves for member in fleet.members) <= 1
    await fleet.end()


@virtual
async def test_a_restart_within_the_period_does_not_begin_with_fresh_permits() -> None:
    fleet, queue = Fleet(Quota(10, 5.0)), a_queue(1000)
    first = await fleet.join(queue)
    await elapse(1)
    await first.kill()
    await fleet.join(queue, former=first)
    await elapse(5)
    assert len(fleet.meter.counted) == 10
    await elapse(1)
    assert len(fleet.meter.counted) == 20
    assert fleet.meter.worst(5.0) == 10
    await fleet.end()


@virtual
async def test_what_a_drained_daemon_had_not_used_is_free_at_once() -> None:
    fleet = Fleet(Quota(10, 600.0))
    first = await fleet.join(a_queue(4))
    await elapse(3)
    await first.drain()
    await fleet.join(a_queue(100), former=first)
    await elapse(3)
    assert len(fleet.meter.counted) == 10
    await fleet.end()


@virtual
async def test_an_idle_daemon_that_crashes_heats_few_permits_of_a_slow_quota() -> None:
    fleet = Fleet(Quota(100, 600.0))
    first = await fleet.join(a_queue(3))
    await elapse(30)
    await first.kill()
    await fleet.join(a_queue(1000), former=first)
    await elapse(30)
    assert len(fleet.meter.counted) >= 90
    await fleet.end()


@virtual
async def test_a_pause_stops_the_whole_fleet_and_ends_with_a_ramp() -> None:
    fleet, queue = Fleet(Quota(100, 1.0), slowest_s=0.02), a_queue(10_000)
    for _ in range(3):
        await fleet.join(queue)
    await elapse(5)
    now = asyncio.get_running_loop().time()
    fleet.members[0].budget.ask_for_quiet(4.0)
    await elapse(8)
    after = [at - now for at in fleet.meter.counted if at > now + 0.15]
    assert 4.0 <= after[0] <= 4.25
    ramp = [sum(4 + at <= when < 4 + at + 0.25 for when in after) for at in (0.0, 0.25, 0.5, 0.75)]
    assert ramp == sorted(ramp)
    assert ramp[0] <= 8
    assert sum(5 <= when < 7 for when in after) >= 170
    await fleet.end()


@virtual
async def test_the_lowest_quota_of_the_living_daemons_counts() -> None:
    fleet, queue = Fleet(Quota(50, 1.0), slowest_s=0.02), a_queue(10_000)
    await fleet.join(queue)
    fleet.quota = Quota(20, 2.0)
    lower = await fleet.join(queue)
    await elapse(4)
    fleet.meter.counted.clear()
    await elapse(10)
    assert fleet.meter.worst(2.0) <= 20
    await lower.kill()
    await elapse(10)
    assert fleet.meter.worst(1.0) == 50
    await fleet.end()


@virtual
async def test_calls_in_flight_are_bounded_over_the_fleet() -> None:
    fleet, queue = Fleet(Quota(1000, 1.0), slowest_s=2.0), a_queue(10_000)
    limits = Limits(concurrency=7)
    for _ in range(3):
        await fleet.join(queue, limits=limits)
    await elapse(5)
    out = [member.budget.calls.busy for member in fleet.members if member.budget.calls]
    assert sum(out) == 7
    assert max(out) <= 4
    await fleet.end()


@virtual
async def test_smoothed_starts_come_in_small_bursts() -> None:
    fleet = Fleet(Quota(100, 10.0), slowest_s=0.001)
    await fleet.join(a_queue(1000), workers=100, limits=Limits(burst=4))
    await elapse(9)
    assert fleet.meter.worst(0.1) <= 5
    assert len(fleet.meter.counted) >= 85
    await fleet.end()


@virtual
async def test_a_hint_lowers_the_rate_for_its_time_and_never_raises_it() -> None:
    fleet = Fleet(Quota(100, 1.0), slowest_s=0.001)
    member = await fleet.join(a_queue(10_000))
    await elapse(3)
    member.budget.slow(10.0, 5.0)
    await elapse(0.1)  # who was let in already goes
    fleet.meter.counted.clear()
    await elapse(4.8)
    assert 45 <= len(fleet.meter.counted) <= 53
    member.budget.slow(10_000.0, 5.0)
    fleet.meter.counted.clear()
    await elapse(5)
    assert fleet.meter.worst(1.0) <= 100
    await fleet.end()


EVENTS = ["kill", "restart", "join", "drain", "partition", "heal", "pause", "step"]
events = st.tuples(
    st.floats(0.05, 3.0),
    st.sampled_from(EVENTS),
    st.integers(0, 7),
)


@drawn(15, 200)
@given(
    st.integers(0, 2**32),
    st.integers(1, 12),
    st.sampled_from([0.3, 1.0, 2.5]),
    st.lists(events, max_size=12),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([0.0, 0.2]),
)
@virtual
async def test_no_window_holds_more_than_the_quota(
    seed: int, count: int, period_s: float, script: list[tuple[float, str, int]], loses: float, fails: float
) -> None:
    await survive(seed, Quota(count, period_s), script, loses, fails)


async def survive(
    seed: int,
    quota: Quota,
    script: list[tuple[float, str, int]],
    loses: float,
    fails: float,
    workers: int = 5,
) -> int:
    """A fleet lives through a script, and its provider never sees more than the quota; the calls it saw."""
    count, period_s = quota.count, quota.period_s
    fleet = Fleet(quota, seed, loses=loses)
    fleet.server.fails = lambda: (
        fleet.chance.choice(["lost", "unknown"]) if fleet.chance.random() < fails else None
    )
    queue = a_queue(100_000)
    running = [await fleet.join(queue, workers), await fleet.join(queue, workers)]
    gone: list[Member] = []
    for after_s, what, which in script:
        await elapse(after_s)
        assert fleet.server.held("api") <= count
        await act(fleet, queue, running, gone, what, which)
    await elapse(10)
    assert fleet.server.held("api") <= count
    assert fleet.meter.worst(period_s) <= count
    within_reach = count / period_s <= 50
    if running and within_reach and fails == 0 and any(member.lease.renews for member in running):
        # Nothing is lost for good: whatever happened, the rate comes back.
        for member in running:
            member.lease.renews = True
        await elapse(15)
        before = len(fleet.meter.counted)
        await elapse(10 * period_s)
        assert len(fleet.meter.counted) - before >= 5 * count * period_s / (period_s + 0.5)
        assert fleet.meter.worst(period_s) <= count
    await fleet.end()
    return len(fleet.meter.counted)


@pytest.mark.soak
def test_a_million_calls_never_exceed_their_quotas() -> None:
    calls = seed = 0
    while calls < 1_000_000:
        chance = random.Random(seed)
        quota = Quota(chance.choice([1, 7, 40, 300]), chance.choice([0.3, 1.0, 2.5, 10.0]))
        script = [
            (chance.uniform(0.05, 3), chance.choice(EVENTS), chance.randrange(8))
            for _ in range(chance.randrange(12))
        ]
        calls += run(survive(seed, quota, script, chance.choice([0, 0.1]), chance.choice([0, 0.2]), 40))
        seed += 1


async def act(
    fleet: Fleet, queue: asyncio.Queue[int], running: list[Member], gone: list[Member], what: str, which: int
) -> None:
    if what == "join" and len(running) < 5:
        running.append(await fleet.join(queue, workers=5))
    if what == "restart" and gone:
        running.append(await fleet.join(queue, workers=5, former=gone.pop()))
    if not running:
        return
    member = running[which % len(running)]
    match what:
        case "kill":
            running.remove(member)
            gone.append(member)
            await member.kill()
        case "drain" if member.lease.live:
            running.remove(member)
            gone.append(member)
            await member.drain()
        case "partition":
            member.lease.renews = False
        case "heal":
            member.lease.renews = True
        case "pause":
            member.budget.ask_for_quiet(0.7)
        case "step":
            fleet.server.step_s = 2.0 - fleet.server.step_s


@pytest.mark.parametrize("daemons", [1, 3])
@virtual
async def test_a_slow_quota_is_not_hoarded(daemons: int) -> None:
    fleet, queue = Fleet(Quota(6, 300.0), slowest_s=0.02), a_queue(60)
    for _ in range(daemons):
        await fleet.join(queue)
    await elapse(100)
    assert queue.qsize() == 54, "nobody holds a job that it cannot start for minutes"
    await elapse(220)
    assert len(fleet.meter.counted) == 12
    assert fleet.meter.worst(300.0) == 6
    await fleet.end()


@virtual
async def test_a_ledger_clock_that_is_set_forward_cools_no_permits() -> None:
    fleet, queue = Fleet(Quota(20, 1.0), slowest_s=0.02), a_queue(10_000)
    dying = await fleet.join(queue)
    await fleet.join(queue)
    await elapse(4)
    assert dying.budget.starts.held >= 8
    await dying.kill()
    await fleet.join(queue, former=dying)
    fleet.server.step_s = 2.0
    await elapse(10)
    assert fleet.meter.worst(1.0) == 20
    await fleet.end()
