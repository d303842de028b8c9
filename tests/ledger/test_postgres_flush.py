"""The flush against real Postgres: locks, races, poison, plans."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import asyncpg
import pytest

from acklast.errors import LedgerUnavailable
from acklast.ledger import batch
from acklast.ledger import statement as parts
from acklast.ledger.api import Fresh, Held, Kept, Recorded, Session, State
from acklast.ledger.batch import Batch, Item
from acklast.ledger.changes import change_for
from acklast.ledger.flush import SETTINGS, prepared
from acklast.ledger.notes import Notes
from acklast.ledger.postgres import PostgresLedger
from acklast.ledger.statement import statement
from acklast.outcome import Bury, Complete, Retry
from harness import eventually
from ledger.worlds import (
    LANE,
    PostgresWorld,
    a_claim,
    a_record,
    elsewhere,
    record,
    start,
    started,
    view,
)

QUEUED_K = f"insert into acklast.jobs (lane, key, state) values ('{LANE}', 'k', 'queued') returning key"
LOCK_K = "select from acklast.jobs where key = 'k' for update"


async def test_a_locked_job_holds_up_nobody_else(postgres: PostgresWorld) -> None:
    ledger = postgres.ledger
    session = await start(ledger)
    await postgres.sql(QUEUED_K)
    async with elsewhere(postgres, LOCK_K):
        claim = asyncio.ensure_future(ledger.claim(session, a_claim()))
        for n in range(5):
            other = await started(ledger, session, f"other{n}")
            assert await record(ledger, session, other, Complete(), f"other{n}") is Recorded.RECORDED
        assert not claim.done()
    fresh = await claim
    assert isinstance(fresh, Fresh)
    async with elsewhere(postgres, LOCK_K):
        told = asyncio.ensure_future(record(ledger, session, fresh, Complete()))
        await started(ledger, session, "yet another")
        assert not told.done()
    assert await told is Recorded.RECORDED


async def test_what_needs_no_writing_is_answered_though_the_job_is_locked(postgres: PostgresWorld) -> None:
    session = await start(postgres.ledger)
    await started(postgres.ledger, session)
    async with elsewhere(postgres, LOCK_K):
        assert isinstance(await postgres.ledger.claim(session, a_claim()), Held)


async def test_a_job_that_moves_under_a_claim_is_asked_again(
    postgres: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush has seen a queued job and waits for its row; then the row is another worker's."""
    monkeypatch.setattr(parts, "_PATIENCE", "")
    statement.cache_clear()
    session, other = await start(postgres.ledger), await start(postgres.ledger, "two")
    await postgres.sql(QUEUED_K)
    taken = f"""update acklast.jobs set state = 'claimed', fence = fence + 1, session = {other.id},
                attempts = attempts + 1, claims = claims + 1 where key = 'k'"""
    async with elsewhere(postgres, taken):
        claim = asyncio.ensure_future(postgres.ledger.claim(session, a_claim()))
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%inserted%'"
        await eventually(lambda: postgres.sql(waiting))
    assert isinstance(await claim, Held)
    statement.cache_clear()
    assert (await view(postgres.ledger)).attempts == 1


async def test_a_job_that_stays_locked_is_named(
    postgres: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "ASK_AGAIN_S", 0.05)
    session = await start(postgres.ledger)
    await postgres.sql(QUEUED_K)
    async with elsewhere(postgres, LOCK_K):
        with pytest.raises(LedgerUnavailable, match=f"keeps job {LANE}/k locked"):
            await postgres.ledger.claim(session, a_claim())


async def test_a_key_that_somebody_inserts_meanwhile_is_asked_again(postgres: PostgresWorld) -> None:
    ledger = postgres.ledger
    session = await start(ledger)
    insert = f"insert into acklast.jobs (lane, key, state) values ('{LANE}', 'k', 'queued')"
    async with elsewhere(postgres, insert):
        claim = asyncio.ensure_future(ledger.claim(session, a_claim()))
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%inserted%'"
        await eventually(lambda: postgres.sql(waiting))
    answer = await claim  # the row appeared after the flush's snapshot: neither inserted nor found
    assert isinstance(answer, Fresh)
    assert (answer.fence, answer.attempt) == (1, 1)
    assert (await view(ledger)).state is State.CLAIMED


async def test_a_race_for_a_new_key_is_lost_without_harm_to_the_others(
    postgres: PostgresWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parts, "_PATIENCE", "")  # it waits until the other is done, and then finds its key
    statement.cache_clear()
    session = await start(postgres.ledger)
    insert = f"insert into acklast.jobs (lane, key, state) values ('{LANE}', 'k', 'queued')"
    async with elsewhere(postgres, insert):
        claims = [asyncio.ensure_future(postgres.ledger.claim(session, a_claim(key))) for key in "akz"]
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%inserted%'"
        await eventually(lambda: postgres.sql(waiting))
    answers = await asyncio.gather(*claims)
    statement.cache_clear()
    assert [type(answer) for answer in answers] == [Fresh, Fresh, Fresh]
    assert [(await view(postgres.ledger, key)).attempts for key in "akz"] == [1, 1, 1]
    assert "one by one" not in caplog.text


async def test_a_locked_job_costs_no_connection(postgres: PostgresWorld) -> None:
    ledger = postgres.ledger
    session = await start(ledger)
    fresh = await started(ledger, session)
    flushing = "select pid from pg_stat_activity where pid <> pg_backend_pid() and query like '%inserted%'"
    before = await postgres.sql(flushing)
    async with elsewhere(postgres, LOCK_K):
        told = asyncio.ensure_future(record(ledger, session, fresh, Complete()))
        other = await started(ledger, session, "other")
        assert await record(ledger, session, other, Complete(), "other") is Recorded.RECORDED
    assert await told is Recorded.RECORDED
    await started(ledger, session, "third")
    assert await postgres.sql(flushing) == before
    assert len(before) == 1


async def test_a_renewal_that_commits_late_keeps_its_jobs(postgres: PostgresWorld) -> None:
    ledger = postgres.ledger
    session, heir = await start(ledger), await start(ledger, "two")
    await started(ledger, session)
    renewal = f"update acklast.workers set lease_until = now() + interval '1 minute' where id = {session.id}"
    async with elsewhere(postgres, renewal):
        # As the others see it the lease has run out, while its renewal is on the way to the disk.
        claim = asyncio.ensure_future(ledger.claim(heir, a_claim()))
        await postgres.ledger.claim(heir, a_claim("other"))
    assert isinstance(await claim, Held)
    assert await ledger.renew(session)


async def test_overlapping_batches_in_any_order_never_deadlock(postgres: PostgresWorld) -> None:
    stores: list[PostgresLedger] = [postgres.ledger, await postgres.another()]
    keys = [f"k{n:03}" for n in range(120)]
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    before = await postgres.sql(deadlocks)
    done: dict[str, int] = dict.fromkeys(keys, 0)

    async def work(store: PostgresLedger, session: Session, key: str, rng: random.Random) -> None:
        for _ in range(4):
            answer = await store.claim(session, a_claim(key))
            if isinstance(answer, Fresh):
                done[key] += 1
                await record(store, session, answer, Retry(answer.now, "again", spends=False), key)
            if rng.random() < 0.2:
                await store.settled(LANE, key, 1)

    async def daemon(store: PostgresLedger, n: int) -> None:
        session, rng = await start(store, f"daemon-{n}"), random.Random(n)
        await asyncio.gather(*(work(store, session, key, rng) for key in rng.sample(keys, len(keys))))

    await asyncio.gather(*(daemon(store, n) for n, store in enumerate(stores)))
    rows = await postgres.sql("select key, fence, claims, state from acklast.jobs order by key")
    assert {row["key"]: row["fence"] for row in rows} == done
    assert {row["state"] for row in rows} == {"waiting"}
    assert await postgres.sql(deadlocks) == before


async def test_a_poisonous_item_fails_alone(postgres: PostgresWorld) -> None:
    ledger = postgres.ledger
    session = await start(ledger)
    fresh = await started(ledger, session, "told")
    refused_here = a_claim("bad", run="\ud800")
    refused_there = a_claim("worse", type="\x00")
    calls: list[Awaitable[Any]] = [
        ledger.claim(session, a_claim("a")),
        ledger.claim(session, refused_here),
        record(ledger, session, fresh, Complete(), "told"),
        ledger.claim(session, refused_there),
        ledger.claim(session, a_claim("z")),
    ]
    first, here, recorded, there, last = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, Fresh)
    assert isinstance(last, Fresh)
    assert recorded is Recorded.RECORDED
    assert isinstance(here, UnicodeEncodeError | asyncpg.DataError | asyncpg.InterfaceError)
    assert isinstance(there, asyncpg.PostgresError)
    assert await ledger.jobs("bad", LANE) == await ledger.jobs("worse", LANE) == []


async def test_a_row_without_a_fingerprint_takes_that_of_its_first_delivery(postgres: PostgresWorld) -> None:
    ledger = postgres.ledger
    session = await start(ledger)
    await postgres.sql(
        "insert into acklast.jobs (lane, key, state) values ($1, 'k', 'queued') returning key", LANE
    )
    await started(ledger, session)
    stored = await postgres.sql("select fingerprint from acklast.jobs")
    assert stored[0][0] == a_claim().fingerprint


async def test_most_updates_are_hot(postgres: PostgresWorld) -> None:
    """Index entries for every version of a row would double the cost of a job: see 0001_ledger.sql."""
    ledger = postgres.ledger
    session = await start(ledger)

    async def life(key: str) -> None:
        fresh = await started(ledger, session, key, run=f"run-{key[:2]}")
        await record(ledger, session, fresh, Retry(fresh.now, "busy"), key)
        fresh = await started(ledger, session, key)
        await record(ledger, session, fresh, Complete({"sent": 1}), key)
        await ledger.settled(LANE, key, fresh.fence)

    await postgres.sql("select pg_stat_reset_single_table_counters('acklast.jobs'::regclass)")
    await asyncio.gather(*(life(f"{n:05}") for n in range(1500)))
    await ledger.close()
    counts = (
        "select n_tup_upd as updates, n_tup_hot_upd as hot"
        " from pg_stat_all_tables where relid = 'acklast.jobs'::regclass"
    )

    async def complete() -> Any:
        (row,) = await postgres.sql(counts)
        return row if row["updates"] >= 1500 * 3 else None

    row = await eventually(complete)
    assert row["hot"] / row["updates"] > 0.9, dict(row)


# --- the plan ------------------------------------------------------------------------------------------


def every_statement() -> list[str]:
    names = ("claims", "kept", "dones", "follow", "tells", "notes", "acked", "frees", "careful")
    choices = (dict(zip(names, chosen, strict=True)) for chosen in product((False, True), repeat=len(names)))
    # What is kept comes with a claim, and what follows with a completion.
    return [
        statement(**one)
        for one in choices
        if (one["claims"] or not one["kept"]) and (one["dones"] or not one["follow"])
    ]


async def test_postgres_understands_every_statement_that_can_be_put_together(postgres: PostgresWorld) -> None:
    connection = await asyncpg.connect(postgres.dsn)
    for sql in every_statement():
        await connection.prepare(sql)
    await connection.close()


@pytest.mark.parametrize(("careful", "lookups"), [(False, 7), (True, 10)])
async def test_a_plan_made_for_an_empty_ledger_is_right_for_a_full_one(
    unseen_postgres: PostgresWorld, careful: bool, lookups: int
) -> None:
    """The plan is kept: one that reads a whole table, fine while it is empty, would stay as it fills."""
    postgres = unseen_postgres
    connection = await asyncpg.connect(postgres.dsn, server_settings=dict(SETTINGS))
    session = await start(postgres.ledger)
    fresh = Fresh(1, 1, 0, ambiguous=False, now=await postgres.now())
    told = [a_record(fresh, Complete(), "b", frees=True), a_record(fresh, Bury("refused"), "c", frees=True)]
    items = [
        Item(n, session.id, (LANE, one.key), record=one, change=change_for(one)) for n, one in enumerate(told)
    ]
    batch = Batch(
        [Item(9, session.id, (LANE, "a"), claim=a_claim("a", kept=Kept(b"", b""))), *items],
        Notes(session.id, [1], {(LANE, "d"): 1}),
    )
    sql, arguments = prepared(batch, careful=careful)
    await connection.execute(f"prepare flush as {sql}")
    values = ", ".join("null" for _ in arguments)  # a plan that is kept does not depend on them
    plan = "\n".join(row[0] for row in await connection.fetch(f"explain execute flush({values})"))
    await connection.close()
    assert plan.count("using jobs_pkey on jobs") == lookups
    found = r"using jobs_pkey on jobs.*\n *Index Cond: \(\(lane = .* AND \(key = "
    assert len(re.findall(found, plan)) == lookups, plan
    assert plan.count("using custody_pkey on custody") == 2, plan
    assert not re.search(r"Seq Scan|Hash|Merge|Bitmap", plan), plan


READS = "select sum(idx_tup_read)::bigint as read from pg_stat_user_indexes where relname = 'jobs'"


async def test_plans_that_were_made_for_a_small_table_are_not_kept_as_it_grows(
    postgres: PostgresWorld,
) -> None:
    """Analysed while a few rows are there, the table is read whole by every plan that is made then."""
    ledger = postgres.ledger
    session = await start(ledger)
    for n in range(5):
        await record(ledger, session, await started(ledger, session, f"few{n}"), Complete(), f"few{n}")
    await postgres.sql("analyze acklast.jobs")
    jobs = 4_000

    async def one(key: str) -> None:
        await record(ledger, session, await started(ledger, session, key), Complete(), key)

    for wave in range(0, jobs, 20):
        await asyncio.gather(*(one(f"{n:05}") for n in range(wave, wave + 20)))

    async def read() -> int:
        [row] = await postgres.sql(READS)
        total: int = row["read"]
        return total

    await ledger.close()  # its statistics are told at the latest when its connection ends
    await eventually(lambda: at_least(read, jobs), what="the reads are counted")
    assert await read() < 20 * jobs


async def at_least(read: Callable[[], Awaitable[int]], count: int) -> bool:
    return await read() >= count


# --- what is sent once ---------------------------------------------------------------------------------


async def test_rows_are_told_apart_whatever_they_have_in_common(postgres: PostgresWorld) -> None:
    """A column that is the same in all rows travels as one value, NULL as none at all."""
    session = await start(postgres.ledger)
    types: list[list[str | None]] = [["t"], ["t", "u"], ["t", None]]
    runs: list[list[str | None]] = [["r"], [None], ["r", "s"]]
    for n, (kinds, names) in enumerate(product(types, runs)):
        keys = [f"{n}-{m}" for m in range(2)]
        wanted = [(kinds[m % len(kinds)], names[m % len(names)]) for m in range(2)]
        asked = (a_claim(key, type=kind, run=run) for key, (kind, run) in zip(keys, wanted, strict=True))
        found = await asyncio.gather(*(postgres.ledger.claim(session, claim) for claim in asked))
        fresh = [answer for answer in found if isinstance(answer, Fresh)]
        jobs = [await view(postgres.ledger, key) for key in keys]
        assert [(job.type, job.run) for job in jobs] == wanted
        results = [{"n": 1}, {"n": n}] if n % 2 else [None, {"n": n}]
        told = zip(keys, fresh, results, strict=True)
        await asyncio.gather(
            *(record(postgres.ledger, session, one, Complete(result), key) for key, one, result in told)
        )
        assert [(await view(postgres.ledger, key)).result for key in keys] == results
