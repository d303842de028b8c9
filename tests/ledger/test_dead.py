"""Dead letters read, counted, dropped and noted, on the real thing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from acklast.fingerprint import fingerprint
from acklast.ledger.api import Session, State
from acklast.ledger.connect import Address
from acklast.ledger.dead import (
    Entry,
    Wanted,
    groups,
    notes,
    one,
    page,
    page_arguments,
    page_sql,
    total,
)
from acklast.ledger.dead_changes import Dropped, drop, note
from acklast.ledger.dead_counts import sum_up
from acklast.ledger.migrate import migrate
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.prune import prune
from acklast.ledger.retention import Dues, Keep
from acklast.outcome import Bury, Hold
from ledger.worlds import LANE, PostgresWorld, a_letter, record, start, started

WHO = Operator("day-shift", "anna@desk")
DAY_S = 86_400.0


@pytest.fixture
async def operations(postgres: PostgresWorld) -> AsyncIterator[Operations]:
    made = await Operations.connect(Address.of(postgres.dsn))
    yield made
    made.close()


@pytest.fixture
async def session(postgres: PostgresWorld) -> Session:
    return await start(postgres.ledger)


async def bury(
    postgres: PostgresWorld, session: Session, key: str, reason: str, run: str | None = None
) -> None:
    fresh = await started(postgres.ledger, session, key, run=run)
    letter = a_letter(key, reason, run=run, detail=f"no house {key!r}")
    await record(postgres.ledger, session, fresh, Bury(reason), key, letter=letter)


async def counted(operations: Operations, wanted: Wanted = Wanted()) -> list[tuple[Any, ...]]:  # noqa: B008 - a value
    return [
        (one.run, one.reason, one.failure, one.letters, one.last_hour)
        for one in await groups(operations, wanted, 100)
    ]


@pytest.fixture
async def letters(postgres: PostgresWorld, session: Session) -> None:
    """Four that failed alike in two runs, one that failed otherwise."""
    for key, run in [("a", "r1"), ("b", "r1"), ("c", "r1"), ("d", None)]:
        await bury(postgres, session, key, "gone", run)
    await bury(postgres, session, "e", "shut", "r1")


GONE, SHUT = fingerprint("gone", "no house 'x'"), fingerprint("shut", "no house 'x'")


@pytest.mark.usefixtures("letters")
async def test_groups_are_letters_that_failed_alike_the_largest_first(operations: Operations) -> None:
    expected = [("r1", "gone", GONE, 3, 3), (None, "gone", GONE, 1, 1), ("r1", "shut", SHUT, 1, 1)]
    assert await counted(operations) == expected
    assert await counted(operations, Wanted(reason="shut")) == expected[2:]
    assert await counted(operations, Wanted(run="", lane=LANE, failure=GONE)) == expected[1:2]
    assert await counted(operations, Wanted(lane="other")) == []
    [largest, *_] = await groups(operations, Wanted(), 1)
    assert (largest.versions, largest.hour_before, largest.last_day) == (["1.2.3"], 0, 3)
    assert largest.first_at is not None
    assert largest.last_at is not None
    assert largest.first_at < largest.last_at


@pytest.mark.usefixtures("letters")
async def test_sums_are_the_same_numbers_in_fewer_rows(
    operations: Operations, postgres: PostgresWorld
) -> None:
    before = await counted(operations)
    async with operations.changing() as connection:
        assert not await sum_up(connection, 6)
        assert await sum_up(connection, 5)
    assert await counted(operations) == before
    assert len(await postgres.sql("select from acklast.dead_counts")) == len(before)


@pytest.mark.usefixtures("letters")
async def test_what_goes_is_no_longer_counted(operations: Operations, postgres: PostgresWorld) -> None:
    await postgres.sql("delete from acklast.dead_letters where run = 'r1' and reason = 'gone'")
    assert [row[:2] for row in await counted(operations)] == [(None, "gone"), ("r1", "shut")]
    async with operations.changing() as connection:
        assert await sum_up(connection, 1)
    assert len(await postgres.sql("select from acklast.dead_counts")) == 2


@pytest.mark.usefixtures("letters")
async def test_what_is_closed_waits_for_nobody_and_counts_again_once_it_is_opened(
    operations: Operations, postgres: PostgresWorld
) -> None:
    before = await counted(operations)
    close = "update acklast.dead_letters set closed_at = now(), closed_as = 'redriven' where reason = 'gone'"
    await postgres.sql(close)
    assert [row[1] for row in await counted(operations)] == ["shut"]
    for wanted in (Wanted(), Wanted(lane=LANE)):
        assert {entry.reason for entry in await page(operations, wanted, 9)} == {"shut"}
    assert await page(operations, Wanted(reason="gone"), 9) == []
    await postgres.sql("update acklast.dead_letters set closed_at = null, closed_as = null")
    assert [row[:4] for row in await counted(operations)] == [row[:4] for row in before]


@pytest.mark.usefixtures("letters")
async def test_what_goes_when_it_is_closed_is_not_counted_twice(
    operations: Operations, postgres: PostgresWorld
) -> None:
    await postgres.sql("update acklast.dead_letters set closed_at = now(), closed_as = 'done'")
    await postgres.sql("delete from acklast.dead_letters")
    assert await postgres.sql("select from acklast.dead_counts group by () having sum(letters) <> 0") == []


@pytest.mark.usefixtures("letters")
async def test_retention_is_counted_too(operations: Operations, postgres: PostgresWorld) -> None:
    await postgres.grow_old(50)
    keep = Keep(DAY_S, 100 * DAY_S, 40 * DAY_S)
    async for _ in prune(Address.of(postgres.dsn), {LANE: keep}, Dues(), dry_run=False):
        pass
    assert sum(row[3] for row in await counted(operations)) == 5  # emptied, and still there
    assert [entry.payload_bytes for entry in await page(operations, Wanted(), 9)] == [None] * 5
    keep = Keep(DAY_S, 40 * DAY_S, 40 * DAY_S)
    async for _ in prune(Address.of(postgres.dsn), {LANE: keep}, Dues(), dry_run=False):
        pass
    assert await counted(operations) == []


@pytest.mark.usefixtures("letters")
async def test_a_transaction_left_open_holds_up_no_letter_of_its_group(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    async with operations.changing() as connection:
        await connection.execute("delete from acklast.dead_letters where reason = 'gone'")
        # Waiting for the other's commit, it would never come to an end.
        await asyncio.wait_for(bury(postgres, session, "f", "gone", "r1"), 30)
        assert [row[3] for row in await counted(operations)] == [1, 1]
    assert [row[:2] for row in await counted(operations)] == [("r1", "gone"), ("r1", "shut")]


async def test_a_message_that_comes_again_is_one_letter_and_counts_for_the_trend(
    operations: Operations, postgres: PostgresWorld
) -> None:
    letter = replace(a_letter(None, "unrouted"), digest=b"d")
    for _ in range(3):
        await postgres.ledger.bury_stray(letter, worker="w", version="1")
    [(_, reason, _, count, last_hour)] = await counted(operations)
    assert (reason, count, last_hour) == ("unrouted", 1, 3)


async def test_older_letters_are_counted_in_batches_by_what_is_known_of_them(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    await bury(postgres, session, "raised", "gone")
    await postgres.ledger.bury_stray(replace(a_letter("m", "bad"), digest=b"d"), worker="w", version="1")
    await postgres.sql("update acklast.dead_letters set counted = false, failure = '0123456789abcdef'")
    assert await counted(operations) == []
    assert {entry.reason for entry in await page(operations, Wanted(), 9)} == {"gone", "bad"}
    await migrate(postgres.dsn)
    assert {row[2]: row[3] for row in await counted(operations)} == {
        # What its attempt raised was not kept: alike with what was alike with it, and with nothing new.
        "v0-0123456789abcdef": 1,
        fingerprint("bad", "what happened", "m"): 1,
    }


# --- page by page -------------------------------------------------------------------------------------


async def walk(operations: Operations, wanted: Wanted, limit: int) -> list[Entry]:
    """All of it, page by page."""
    found: list[Entry] = []
    while some := await page(operations, wanted, limit, found[-1].cursor if found else None):
        assert len(some) <= limit
        found += some
    return found


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize("limit", [1, 2, 9])
async def test_pages_have_every_letter_once_the_newest_first(
    operations: Operations, postgres: PostgresWorld, limit: int
) -> None:
    # Another lane, and letters of one moment: they are told apart by their ids.
    await postgres.sql("update acklast.dead_letters set lane = 'other' where key in ('b', 'e')")
    await postgres.sql("update acklast.dead_letters set last_failure_at = '2026-01-01Z' where key < 'c'")
    assert [entry.key for entry in await walk(operations, Wanted(), limit)] == ["e", "d", "c", "b", "a"]
    wanted = Wanted(lane=LANE)
    assert [entry.key for entry in await walk(operations, wanted, limit)] == ["d", "c", "a"]
    wanted = Wanted(reason="gone", run="r1")
    assert [entry.key for entry in await walk(operations, wanted, limit)] == ["c", "b", "a"]
    assert [entry.key for entry in await walk(operations, Wanted(run=""), limit)] == ["d"]


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize("kind", [Wanted(), Wanted(reason="gone")])
async def test_a_list_is_bounded_by_the_last_failure(operations: Operations, kind: Wanted) -> None:
    every = await walk(operations, kind, 9)
    second, third = every[1], every[2]
    between = replace(kind, since=third.last_failure_at, until=second.last_failure_at)
    assert await walk(operations, between, 9) == [third]
    assert await walk(operations, replace(kind, until=third.last_failure_at), 1) == every[3:]
    later = replace(kind, since=every[0].last_failure_at + timedelta(seconds=1))
    assert await walk(operations, later, 9) == []


# --- one of them --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("letters")
async def test_a_dropped_letter_leaves_its_account_and_its_job(
    operations: Operations, postgres: PostgresWorld
) -> None:
    [last, *_] = await page(operations, Wanted(reason="gone", run="r1"), 1)
    assert await note(operations, last.id, "seen by the provider", WHO)
    assert await note(operations, last.id, "and again", WHO)
    assert await drop(operations, [last.id, 10**12], "asked for", WHO) == Dropped(1, 0, 1)
    assert await one(operations, last.id) is None
    assert not await note(operations, last.id, "too late", WHO)
    told = [(note.actor, note.login, note.action, note.text) for note in await notes(operations, last.id)]
    assert told == [
        ("day-shift", "anna@desk", "dead.note", "seen by the provider"),
        ("day-shift", "anna@desk", "dead.note", "and again"),
        ("day-shift", "anna@desk", "dead.drop", "asked for"),
    ]
    [entry] = await postgres.sql(
        "select lane, key, run, detail from acklast.audit where action = 'dead.drop'"
    )
    was = json.loads(entry["detail"])["was"]
    assert (entry["lane"], entry["key"], entry["run"]) == (LANE, "c", "r1")
    assert (was["reason"], was["failure"], was["attempts"], was["payload_bytes"]) == ("gone", GONE, 1, 4)
    assert len(was["payload_sha256"]) == 64
    assert "no house" not in entry["detail"]  # what a person's name may be in is never put down for good
    [job] = await postgres.ledger.jobs("c")
    assert (job.state, job.reason, job.letters, len(job.history)) == (State.DEAD, "gone", (), 1)
    assert await total(operations, Wanted(run="r1", reason="gone")) == 2


async def test_the_letter_of_an_open_job_stays(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    fresh = await started(postgres.ledger, session)
    await record(postgres.ledger, session, fresh, Hold("unknown"))
    [held] = await page(operations, Wanted(), 1)
    assert await drop(operations, [held.id], "asked for", WHO) == Dropped(0, 1, 0)
    assert await one(operations, held.id) is not None
    assert await notes(operations, held.id) == []


async def test_a_whole_letter_has_its_message(operations: Operations, postgres: PostgresWorld) -> None:
    letter = replace(
        a_letter("k", headers={"tenant": "é"}, properties={"priority": 3}, payload=b"\xff\x00"), digest=b"d"
    )
    await postgres.ledger.bury_stray(letter, worker="w", version="1")
    [entry] = await page(operations, Wanted(), 1)
    found = await one(operations, entry.id)
    assert found is not None
    assert (found.payload, found.headers, found.properties) == (b"\xff\x00", {"tenant": "é"}, {"priority": 3})
    assert (found.entry, entry.payload_bytes) == (entry, 2)


# --- a million of them ----------------------------------------------------------------------------------

_FILL = """
insert into acklast.dead_letters (lane, key, fence, run, reason, failure, payload, first_failure_at,
                                  last_failure_at, worker, version)
select case when n % 10 = 0 then 'rare' else 'cleanup' end, 'key-' || n, 1, 'run-' || n % 5,
       'reason-' || n % 7, 'v1-000000000000000' || n % 7, 'payload', at, at, 'w', '1'
from generate_series($1::int, $2::int) as n
     cross join lateral (select timestamptz '2026-01-01Z' + n * interval '1 second') as t (at)
"""


async def filled(postgres: PostgresWorld, count: int, batch: int = 50_000) -> None:
    for first in range(0, count, batch):
        await postgres.sql(_FILL, first, min(first + batch, count) - 1)
    await postgres.sql("analyze acklast.dead_letters, acklast.dead_counts")


KINDS = [Wanted(), Wanted(lane="rare"), Wanted(run="run-3"), Wanted(lane="cleanup", reason="reason-2")]


async def buffers(operations: Operations, wanted: Wanted, rows: int, of: int) -> int:
    """Pages that the server reads for the page of a list that begins after ``of`` rows of it."""
    after = None
    if of:
        [*_, last] = await page(operations, wanted, of)
        after = last.cursor
    # As a process has it that asks often: the plan may not depend on what is asked for.
    await operations.fetch("select set_config('plan_cache_mode', 'force_generic_plan', false)")
    sql = f"explain (analyze, buffers, format json) {page_sql(wanted)}"
    [[text]] = await operations.fetch(sql, *page_arguments(wanted, after, rows))
    plan = json.loads(text)[0]["Plan"]
    assert plan["Actual Rows"] == rows
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_a_page_far_behind_costs_what_the_first_one_does(
    operations: Operations, postgres: PostgresWorld
) -> None:
    await filled(postgres, 20_000)
    for wanted in KINDS:
        first, far = await buffers(operations, wanted, 20, 0), await buffers(operations, wanted, 20, 500)
        assert far < 1.5 * first + 50


@pytest.mark.soak
@pytest.mark.timeout(500)
async def test_a_million_letters_list_as_fast_as_a_few(
    operations: Operations, postgres: PostgresWorld
) -> None:
    few = {str(wanted): 0 for wanted in KINDS}
    await filled(postgres, 20_000)
    for wanted in KINDS:
        few[str(wanted)] = await buffers(operations, wanted, 50, 0)
    await filled(postgres, 1_000_000)
    for wanted in KINDS:
        for of in (0, 10_000):
            assert await buffers(operations, wanted, 50, of) < 2 * few[str(wanted)] + 100
    async with operations.changing() as connection:
        await sum_up(connection, 1)
    assert sum(group.letters for group in await groups(operations, Wanted(), 1000)) == 1_020_000
    assert len(await postgres.sql("select from acklast.dead_counts")) <= 200
