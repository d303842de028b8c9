"""A run is cancelled while daemons are at work on it: nothing more starts, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from harness import Broker, eventually
from harness.scripted import LANE, TYPE
from harness.site import RUN, Site, scripted, site

NewPlace: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
WHY = ("--why", "wrong template", "--as", "duty")

STARTED_LATER = "select key from acklast.jobs where run = $1 and claimed_at > $2 and not ambiguous"


@pytest.fixture
def new_place(broker: Broker, ledger_dsn: str, tmp_path: Path) -> NewPlace:
    """Makes the test's site. Once, on the usual receiver: a claim is the same on each."""
    return partial(site, tmp_path, broker.url, ledger_dsn, custody="ledger")


@pytest.fixture
async def sql(ledger_dsn: str) -> AsyncIterator[Sql]:
    connection = await asyncpg.connect(ledger_dsn)
    yield connection
    await connection.close()


async def test_a_run_that_is_cancelled_under_load_stops_and_its_account_holds(
    new_place: NewPlace, sql: Sql
) -> None:
    async with new_place(concurrency=5) as place:
        held = [scripted(f"held-{number}", {"do": "wait", "gate": "go"}) for number in range(2)]
        doubt = scripted("doubt", *["unknown"] * 8)
        rest = [scripted(f"k-{n:04}", *(["transient"] * (n % 5 == 0)), "done") for n in range(1200)]
        late = [scripted(f"late-{number}", "done") for number in range(40)]
        await place.promise([*held, doubt, *rest, *late])
        with place.daemon(), place.daemon("two"):
            await place.publish(*held, doubt, *rest)
            await eventually(lambda: len(place.log.effects()) >= 60)
            told = await place.command("runs", "cancel", RUN, *WHY)
            since = await sql.fetchval("select clock_timestamp()")
            assert (told["changed"], told["cancelled"]["actor"]) == (True, "duty")
            assert told["jobs"] > 100
            assert (told["in_flight"] >= 2, told["idle"]) == (True, 0)
            await place.publish(*late)
            again = await place.command("runs", "cancel", RUN)
            assert (again["changed"], again["cancelled"]) == (False, told["cancelled"])
            place.open_gate("go")
            await place.quiet()
        assert await sql.fetch(STARTED_LATER, RUN, since) == []
        run = await place.run()
        assert (run.balanced, run.total) == (True, 1243)
        assert set(run.counts) == {State.DONE, State.CANCELLED, State.UNRESOLVED}
        effects = [one.key for one in place.log.effects() if one.key != "doubt"]
        assert run.counts[State.DONE] == len(effects) == len(set(effects))
        uncertain = await place.job("doubt")
        assert (uncertain.state, uncertain.reason) == (State.UNRESOLVED, "run_cancelled")
        assert [letter.reason for letter in uncertain.letters] == ["run_cancelled"]
        assert (await place.job("late-0")).attempts == 0
        assert await sql.fetchval("select count(*) from acklast.custody") == 0


async def test_what_comes_for_a_cancelled_run_later_is_entered_and_not_started(
    new_place: NewPlace, sql: Sql
) -> None:
    """Its publishers are others: messages with its name in the header alone, and promises in the outbox."""
    async with new_place() as place:
        with place.daemon():
            await place.publish(scripted("first", "done", run="foreign"))
            await place.reaches("first", State.DONE)
            await place.command("runs", "cancel", "foreign")
            await place.publish(*(scripted(f"later-{number}", "done", run="foreign") for number in range(9)))
            await sql.execute(
                "select acklast.enqueue($1, 'promised', '{}', type => $2, run => 'foreign')", LANE, TYPE
            )
            await place.publish(scripted("other", "done"))
            await place.reaches("other", State.DONE)
            await place.reaches("promised", State.CANCELLED)
            for number in range(9):
                await place.reaches(f"later-{number}", State.CANCELLED)
            shown = await place.command("runs", "show", "foreign")
            assert (shown["manifest"], shown["counts"]["cancelled"], shown["open"]) == (None, 10, 0)
            assert sorted(call.key for call in place.log.calls()) == ["first", "other"]
            await eventually(place.is_drained)
            await eventually(lambda: is_relayed(sql), what="the outbox is empty")


async def is_relayed(sql: Sql) -> bool:
    return not await sql.fetchval("select count(*) from acklast.outbox")


async def test_jobs_that_somebody_locks_are_told_and_cancelled_by_a_repeat(
    new_place: NewPlace, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acklast.cli.run_cancel._LOCKED_S", 0.0)
    async with new_place() as place:
        await place.promise([scripted(key, "done") for key in "abc"])
        async with sql.transaction():
            await sql.execute("select from acklast.jobs where key = 'b' for update")
            told = await place.command("runs", "cancel", RUN, code=Exit.INCOMPLETE)
            assert (told["jobs"], told["idle"]) == (2, 1)
        told = await place.command("runs", "cancel", RUN)
        assert (told["jobs"], told["idle"], told["changed"]) == (1, 0, False)
        told = await place.command("runs", "cancel", RUN)
        assert (told["jobs"], told["changed"]) == (0, False)
        rows = await sql.fetch("select action, detail::jsonb->'jobs' as jobs from acklast.audit order by id")
        assert [tuple(row) for row in rows] == [
            ("runs.cancel", None),
            ("runs.cancelled", "2"),
            ("runs.cancelled", "1"),
        ]
        assert await place.exit_of("runs", "cancel", "nobody") == Exit.NOT_FOUND


async def test_a_run_that_is_in_the_outbox_alone_can_be_cancelled(new_place: NewPlace, sql: Sql) -> None:
    async with new_place() as place:
        await sql.execute("select acklast.enqueue($1, 'early', '{}', run => $2)", LANE, RUN)
        assert (await place.command("runs", "cancel", RUN))["changed"] is True
        with place.daemon() as daemon:
            await place.reaches("early", State.CANCELLED)
            assert await daemon.drained() == Exit.OK


async def test_a_promise_and_a_cancel_at_once_leave_nothing_that_could_start(
    new_place: NewPlace, sql: Sql
) -> None:
    """Whoever comes first, the other sees it: no job stays queued in a cancelled run."""
    async with new_place() as place:
        await place.promise([scripted("a", "done")])

        async def promise(number: int) -> bool:
            try:
                await place.promise([scripted(f"{number}-{n}", "done") for n in range(50)])
            except Exception as refused:
                return "is cancelled" in str(refused)
            return True

        told = await asyncio.gather(*map(promise, range(4)), place.command("runs", "cancel", RUN))
        assert told[:4] == [True] * 4
        run = await place.run()
        assert (set(run.counts), run.balanced) == ({State.CANCELLED}, True)
