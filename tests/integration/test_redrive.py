"""Redrives by real daemons: a few at first, at a pace, by one at a time, whatever ends them meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from harness.redrives import begin, found, letters
from harness.scripted import LANE
from harness.site import Site, scripted
from harness.waiting import eventually

NewSite = Callable[..., AbstractAsyncContextManager[Site]]
pytestmark = [pytest.mark.broker, pytest.mark.ledger]


@pytest.fixture
def receiver() -> str:
    """What reads the deliveries has nothing to do with it."""
    return "bulk"


def sql_of(dsn: str) -> Any:
    async def sql(statement: str, *args: Any) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()

    return sql


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


KEYS = [f"job-{n}" for n in range(6)]


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
