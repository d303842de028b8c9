"""Drains in the midst of things: jobs that run and jobs that wait, back-off, a pause, another daemon."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast.pacing.prefetch import prefetch_for
from harness import Broker, eventually
from harness.daemon import Daemon
from harness.proxy import Away
from harness.scripted import LANE
from harness.site import NAMES, Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

WORK = NAMES.work(LANE)
WAIT = {"do": "wait", "gate": "go"}
RUNNING = 5
BUFFERED = 200
SLOTS = 186
"""Of the buffered ones most have a slot and wait for a permit, and some wait for a slot."""
FIVE_AT_ONCE = f"""
[budgets.five]
quota = "1000 per 1 s"
concurrency = {RUNNING}
"""


@pytest.fixture
def receiver() -> str:
    """What reads the deliveries has nothing to do with it."""
    return "bulk"


def receipt(daemon: Daemon) -> dict[str, Any]:
    """The receipt, which must be the very last line."""
    last = daemon.log()[-1]
    assert last["event"] == "drain.receipt"
    return last


def counts(daemon: Daemon) -> tuple[int, ...]:
    told = receipt(daemon)
    return tuple(told[name] for name in ("completed", "given_back", "unknown", "left"))


def once_and_known(place: Site, keys: list[str]) -> None:
    """Every job had one call, its first attempt, and one effect."""
    assert sorted(effect.key for effect in place.log.effects()) == sorted(keys)
    assert [(call.attempt, call.ambiguous) for call in place.log.calls()] == [(1, False)] * len(keys)


async def calls_made(place: Site, count: int) -> None:
    await eventually(lambda: len(place.log.calls()) >= count, what=f"{count} calls")


async def none_ready(place: Site) -> bool:
    """Whether the lane's work queue holds no message that is ready."""
    return WORK not in await place.ready()


async def test_five_run_and_two_hundred_are_buffered(new_site: NewSite, ledger_dsn: str) -> None:
    assert prefetch_for(1000, SLOTS, 0.0, None) == RUNNING + BUFFERED
    running = [f"runs-{n}" for n in range(RUNNING)]
    others = [f"waits-{n:03}" for n in range(BUFFERED)]
    async with new_site(concurrency=SLOTS, budget="five", more=FIVE_AT_ONCE) as place:
        with place.daemon() as daemon:
            await place.publish(*(scripted(key, WAIT) for key in running))
            await calls_made(place, RUNNING)
            await place.publish(*(scripted(key, "done") for key in others))
            await eventually(place.is_drained, what="all are held")
            daemon.signal(signal.SIGTERM)
            assert (await daemon.says("drain.started"))["held"] == RUNNING + BUFFERED
            place.open_gate("go")
            assert await daemon.ended() == Exit.OK
        assert counts(daemon) == (RUNNING, BUFFERED, 0, 0)
        # The broker may forget the last acks with the connection: those deliveries find their verdicts.
        assert BUFFERED <= (await place.ready())[WORK] <= BUFFERED + RUNNING
        connection = await asyncpg.connect(ledger_dsn)
        try:
            started = await connection.fetch("select key, attempts from acklast.jobs where attempts > 0")
            assert {row["key"]: row["attempts"] for row in started} == dict.fromkeys(running, 1)
            with place.daemon() as successor:
                await eventually(lambda: len(place.log.effects()) == RUNNING + BUFFERED, 60)
                await place.quiet_queues()
                assert await successor.drained() == Exit.OK
            spent = "select min(attempts), max(attempts), count(*) from acklast.jobs where state = 'done'"
            [row] = await connection.fetch(spent)
            assert tuple(row) == (1, 1, RUNNING + BUFFERED)
        finally:
            await connection.close()
        once_and_known(place, running + others)


async def test_jobs_that_wait_for_their_retry_do_not_hold_it_up(new_site: NewSite) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            keys = [f"again-{n}" for n in range(5)]
            await place.publish(*(scripted(key, "transient", "done") for key in keys))
            for key in keys:
                await place.reaches(key, State.WAITING)
            assert await daemon.drained() == Exit.OK
        assert sum(counts(daemon)[2:]) == 0
        await _retried_once(place, keys)


@pytest.mark.parametrize(
    ("heard", "told"),
    [(True, (1, 0, 0, 0)), pytest.param(False, (0, 0, 0, 1), marks=pytest.mark.soak)],
    ids=["confirmed", "never-confirmed"],
)
async def test_a_retry_that_is_just_being_published(
    new_site: NewSite, broker: Broker, heard: bool, told: tuple[int, ...]
) -> None:
    """The verdict is recorded, the carrier on its way, and the broker's word is not heard yet."""
    rabbit = Away(broker.url)
    async with new_site(drain_s=60 if heard else 1) as place:
        with place.daemon(env={"ACKLAST_BROKER_URL": await rabbit.here()}) as daemon:
            await place.publish(scripted("again", {"do": "transient", "gate": "go"}, "done"))
            await calls_made(place, 1)
            assert rabbit.proxy is not None
            rabbit.proxy.hear(False)
            place.open_gate("go")
            await place.reaches("again", State.WAITING)
            daemon.signal(signal.SIGTERM)
            await daemon.says("drain.started")
            rabbit.proxy.hear(heard)
            assert await daemon.ended() == (Exit.OK if heard else Exit.CUT)
        assert counts(daemon) == told
        await rabbit.close()
        await _retried_once(place, ["again"])


async def _retried_once(place: Site, keys: list[str]) -> None:
    """The successor makes the second attempt at each, once."""
    with place.daemon() as successor:
        for key in keys:
            assert (await place.reaches(key, State.DONE)).attempts == 2
        await place.quiet()
        assert await successor.drained() == Exit.OK
    for key in keys:
        assert [(call.attempt, call.ambiguous) for call in place.log.calls(key)] == [(1, False), (2, False)]
    assert len(place.log.effects()) == len(keys)


@pytest.mark.parametrize(
    ("pause_s", "held"), [(29, 5), pytest.param(600, 0, marks=pytest.mark.soak)], ids=["short", "long"]
)
async def test_a_paused_budget_starts_nothing_and_ends_at_once(
    new_site: NewSite, ledger_dsn: str, pause_s: int, held: int
) -> None:
    """For a short pause deliveries are held, for a long one they wait in the queue."""
    keys = [f"waits-{n}" for n in range(5)]
    async with new_site(quota="1000 per 1 s", concurrency=4, drain_s=60) as place:
        with place.daemon() as daemon:
            await place.publish(scripted("asks", {"do": "rate_limited", "retry_after": pause_s}, "done"))
            await daemon.says("job.settled", key="asks")
            if not held:
                await daemon.says("lane.standing_by")
            await place.publish(*(scripted(key, "done") for key in keys))
            if held:
                await eventually(lambda: none_ready(place), what="all are held")
            assert await daemon.drained() == Exit.OK
        completed, given_back, *others = counts(daemon)
        assert (completed, others) == (0, [0, 0])
        assert given_back - held in (0, 1), "the one that asked may be back from a wait queue"
        assert receipt(daemon)["seconds"] < pause_s / 2
        assert [call.key for call in place.log.calls()] == ["asks"]
        await _lift_the_pause(ledger_dsn)
        with place.daemon() as successor:
            for key in keys:
                assert (await place.reaches(key, State.DONE)).attempts == 1
            assert await successor.drained() == Exit.OK
        assert [(call.attempt, call.ambiguous) for call in place.log.calls()] == [(1, False)] * 6
        job = await place.job("asks")
        assert (job.attempts, job.rate_limited) == (0, 1)


async def _lift_the_pause(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("update acklast.budgets set paused_until = null")
    finally:
        await connection.close()


async def test_another_daemon_takes_over_while_it_drains(new_site: NewSite) -> None:
    keys = [f"runs-{n}" for n in range(RUNNING)]
    others = [f"waits-{n:02}" for n in range(30)]
    async with new_site(concurrency=RUNNING, drain_s=60) as place:
        with place.daemon("one") as first:
            await place.publish(*(scripted(key, WAIT) for key in keys))
            await calls_made(place, RUNNING)
            await place.publish(*(scripted(key, "done") for key in others))
            first.signal(signal.SIGTERM)
            await first.says("drain.started")
            with place.daemon("two") as second:
                await eventually(lambda: len(place.log.effects()) == len(others), what="it does the others")
                assert first.process.poll() is None
                place.open_gate("go")
                assert await first.ended() == Exit.OK
                await place.quiet()
                assert await second.drained() == Exit.OK
        assert counts(first)[0] == RUNNING
        assert counts(first)[2:] == (0, 0)
        once_and_known(place, keys + others)
        assert {call.pid for call in place.log.calls() if call.key in others} == {second.process.pid}
