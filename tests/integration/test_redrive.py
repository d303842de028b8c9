"""Redrives by real daemons: a few at first, at a pace, by one at a time, whatever ends them meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

import asyncpg
import pytest

from acklast import faults
from acklast.errors import Exit
from acklast.ledger.api import State
from harness.daemon import Fault
from harness.redrives import begin, found, letters, sql_of
from harness.scripted import LANE
from harness.site import Site, scripted
from harness.waiting import eventually

NewSite = Callable[..., AbstractAsyncContextManager[Site]]
pytestmark = [pytest.mark.broker, pytest.mark.ledger]


@pytest.fixture
def receiver() -> str:
    """What reads the deliveries has nothing to do with it."""
    return "bulk"


@pytest.fixture
def sql(ledger_dsn: str) -> Any:
    return sql_of(ledger_dsn)


async def all_dead(place: Site, *keys: str, then: str = "done", **more: Any) -> None:
    """Jobs that are refused at their first call, and do ``then`` at the next."""
    await place.publish(*(scripted(key, "permanent", then, **more) for key in keys))
    for key in keys:
        await place.reaches(key, State.DEAD)


async def comes_to(sql: Any, redrive: int, status: str, timeout_s: float = 60) -> asyncpg.Record:
    async def there() -> asyncpg.Record | None:
        row = await found(sql, redrive)
        return row if row["status"] == status else None

    return await eventually(there, timeout_s, f"redrive {redrive} is {status}")


async def done_of(sql: Any, redrive: int) -> int:
    """Wait until some are done."""

    async def begun() -> int:
        return int((await found(sql, redrive))["done"])

    return await eventually(begun, what="some are done")


KEYS = [f"job-{n}" for n in range(6)]


@pytest.mark.soak
async def test_it_goes_step_by_step_and_finishes(new_site: NewSite, sql: Any) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            await all_dead(place, *KEYS)
            number = await begin(sql, LANE, steps=(1, 3))
            row = await comes_to(sql, number, "finished")
            assert (row["released"], row["done"], row["step"]) == (6, 6, 2)
            assert [line["step"] for line in daemon.said("redrive.step")] == [2, 3]
            assert len(daemon.said("redrive.finished")) == 1
            assert await daemon.drained() == Exit.OK
        assert len(place.log.effects()) == 6
        assert {row["outcome"] for row in await letters(sql, number)} == {"done"}


async def test_a_downstream_that_is_still_broken_has_one_call_more(new_site: NewSite, sql: Any) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            await all_dead(place, *KEYS, then="permanent")
            number = await begin(sql, LANE, steps=(1, 3))
            row = await comes_to(sql, number, "stopped")
            await daemon.says("redrive.stopped", why="same_failure")
            assert await daemon.drained() == Exit.OK
        assert len(place.log.calls()) == len(KEYS) + 1
        assert (row["released"], row["same"], row["step"]) == (1, 1, 0)
        [entry] = await sql("select actor, action from acklast.audit where action like 'redrive.%'")
        assert entry["action"] == "redrive.stopped"
        assert entry["actor"].startswith("one@")


async def test_two_redrives_of_the_same_jobs_at_once_try_each_job_once(new_site: NewSite, sql: Any) -> None:
    async with new_site() as place:
        with place.daemon("one") as one, place.daemon("two") as two:
            await one.ready()
            await two.ready()
            await all_dead(place, *KEYS)
            numbers = [await begin(sql, LANE, status="planned") for _ in range(2)]
            # Both begin in the same moment, each in the hands of a daemon of its own.
            await sql(
                """update acklast.redrives r set status = 'running', session = (
                       select max(w.id) from acklast.workers w
                       where w.instance = case r.id when $1 then 'one' else 'two' end)""",
                numbers[0],
            )
            rows = [await comes_to(sql, number, "finished") for number in numbers]
            assert await one.drained() == await two.drained() == Exit.OK
        fates = [{row["key"]: row["refusal"] for row in await letters(sql, number)} for number in numbers]
        assert all((fates[0][key] is None) != (fates[1][key] is None) for key in KEYS), fates
        assert sum(row["done"] for row in rows) == sum(row["refused"] for row in rows) == len(KEYS)
        assert sorted(effect.key for effect in place.log.effects()) == KEYS


async def test_a_drain_does_not_wait_for_a_redrive_and_the_next_daemon_goes_on(
    new_site: NewSite, sql: Any
) -> None:
    keys = [f"job-{n:02}" for n in range(12)]
    async with new_site() as place:
        with place.daemon() as first:
            await all_dead(place, *keys)
            number = await begin(sql, LANE, rate_per_s=1)  # however late the drain comes, most are left

            await done_of(sql, number)
            assert await first.drained() == Exit.OK
            [receipt] = first.said("drain.receipt")
            assert receipt["seconds"] < receipt["deadline_s"]
        row = await found(sql, number)
        assert row["status"] == "running"
        assert row["released"] < len(keys), "the redrive was over before the drain: nothing is proved"
        await sql("update acklast.redrives set rate_per_s = 50")
        with place.daemon() as second:
            assert (await comes_to(sql, number, "finished"))["done"] == len(keys)
            assert await second.drained() == Exit.OK
        assert sorted(effect.key for effect in place.log.effects()) == keys


@pytest.mark.soak
async def test_two_daemons_keep_to_one_rate(new_site: NewSite, sql: Any) -> None:
    keys = [f"job-{n:02}" for n in range(17)]
    async with new_site() as place:
        with place.daemon("one") as one, place.daemon("two") as two:
            await one.ready()
            await two.ready()
            await all_dead(place, *keys)
            number = await begin(sql, LANE, rate_per_s=4)
            await comes_to(sql, number, "finished")
            assert await one.drained() == await two.drained() == Exit.OK
        times = sorted(row["released_at"] for row in await letters(sql, number))
        # A second's worth may come at once, and a timer may be early by its resolution.
        for n, at in enumerate(times):
            later = (times[-1] - at).total_seconds()
            assert len(times) - n <= 4 * (later + 0.3) + 4 + 1, [str(at) for at in times]


@pytest.mark.soak
async def test_a_paused_lane_gets_nothing_released(new_site: NewSite, sql: Any) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            await all_dead(place, *KEYS)
            await place.command("lanes", "pause", LANE, "--reason", "a test")
            await daemon.says("lane.paused")

            async def told() -> bool:
                rows = await sql("select state from acklast.lane_reports")
                return [row["state"] for row in rows] == ["paused"]

            await eventually(told, what="the daemon reports the pause")
            number = await begin(sql, LANE)

            async def owned() -> bool:
                return (await found(sql, number))["session"] is not None

            await eventually(owned, what="the daemon has the redrive")
            await place.command("lanes", "resume", LANE, "--reason", "a test")
            await comes_to(sql, number, "finished")
            resumed = await daemon.says("lane.resumed")
            first = min(row["released_at"] for row in await letters(sql, number))
            assert first > datetime.fromisoformat(resumed["timestamp"])
            assert await daemon.drained() == Exit.OK


@pytest.mark.soak
async def test_a_job_that_waits_for_its_retry_holds_up_its_step(new_site: NewSite, sql: Any) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            retried = scripted("job-0", "permanent", "transient", "transient", "done")
            await place.publish(retried, *(scripted(key, "permanent", "done") for key in KEYS[1:]))
            for key in KEYS:
                await place.reaches(key, State.DEAD)
            await sql("update acklast.dead_letters set id = default where key <> 'job-0'")
            number = await begin(sql, LANE, steps=(1,))
            row = await comes_to(sql, number, "finished")
            assert row["done"] == len(KEYS)
            rows = await letters(sql, number)
            assert rows[0]["key"] == "job-0"
            assert min(row["released_at"] for row in rows[1:]) > rows[0]["settled_at"]
            assert await daemon.drained() == Exit.OK
        history = (await place.job("job-0")).history
        assert [attempt.outcome for attempt in history] == ["permanent", "transient", "transient", "done"]


@pytest.mark.soak
async def test_in_the_ledgers_custody_a_redrive_leaves_nothing_there(new_site: NewSite, sql: Any) -> None:
    async with new_site(custody="ledger") as place:
        with place.daemon() as daemon:
            await all_dead(place, *KEYS)
            await comes_to(sql, await begin(sql, LANE, steps=(1,)), "finished")
            assert await daemon.drained() == Exit.OK
        assert await sql("select from acklast.custody") == []


# --- killed ------------------------------------------------------------------------------------------


def assert_accounted_for(place: Site, rows: list[asyncpg.Record], keys: list[str]) -> None:
    """Every job is done, by one effect, or by a second one that was told of the first."""
    assert {row["key"]: row["outcome"] for row in rows} == dict.fromkeys(keys, "done")
    for key in keys:
        _, *more = place.log.effects(key)
        assert all(effect.ambiguous for effect in more), key


async def test_a_redrive_comes_to_its_end_though_a_daemon_dies_at_each_of_its_points(
    new_site: NewSite, sql: Any
) -> None:
    async with new_site() as place:
        with place.daemon() as maker:
            await all_dead(place, *KEYS)
            assert await maker.drained() == Exit.OK
        number = await begin(sql, LANE, steps=(1, 3))
        for point in faults.REDRIVE_POINTS:
            with place.daemon(fault=Fault(point)) as dying:
                await dying.dies_at_fault()
        with place.daemon() as last:
            await last.ready()
            row = await comes_to(sql, number, "finished")
            await place.quiet_queues()
            assert await last.drained() == Exit.OK
        assert (row["released"], row["done"], row["refused"]) == (6, 6, 0)
        assert_accounted_for(place, await letters(sql, number), KEYS)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("hit", "custody", "successor"), [(1, "ledger", "two"), (2, "broker", "two"), (2, "ledger", "one")]
)
@pytest.mark.parametrize("point", faults.REDRIVE_POINTS)
async def test_a_redrive_survives_the_death_of_its_daemon(
    new_site: NewSite, sql: Any, point: str, hit: int, custody: str, successor: str
) -> None:
    if point == "finished" and hit > 1:
        pytest.skip("it is passed once")
    async with new_site(lease_s=2, custody=custody) as place:
        with place.daemon() as maker:
            await all_dead(place, *KEYS)
            assert await maker.drained() == Exit.OK
        number = await begin(sql, LANE, steps=(1, 3))
        with place.daemon(fault=Fault(point, hit)) as dying:
            await dying.dies_at_fault()
        with place.daemon(successor) as last:
            await last.ready()
            row = await comes_to(sql, number, "finished")
            await place.quiet_queues()
            assert await last.drained() == Exit.OK
        assert (row["released"], row["done"], row["refused"]) == (6, 6, 0)
        assert_accounted_for(place, await letters(sql, number), KEYS)
        assert await sql("select from acklast.custody") == []
