"""Connections that are cut, answers that are lost, a server that goes and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from acklast.errors import LedgerUnavailable
from acklast.ledger import batch
from acklast.ledger.api import Fresh, Held, Ledger, Recorded, Session, State
from acklast.ledger.postgres import PostgresLedger
from acklast.outcome import Bury, Complete, Retry
from harness import eventually
from ledger.worlds import (
    LANE,
    PostgresWorld,
    a_claim,
    a_letter,
    a_record,
    elsewhere,
    is_fresh,
    record,
    start,
    started,
    view,
)

KILL = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and application_name like 'acklast/%'"
)


@dataclass
class Stubborn:
    """Asks and tells again, as a daemon does, what could not be asked or told."""

    ledger: Ledger
    session: Session
    started: dict[str, list[int]] = field(default_factory=dict)

    async def work(self, keys: Iterator[str]) -> None:
        for key in keys:
            fresh = await self.claim(key)
            self.started.setdefault(key, []).append(fresh.fence)
            while not await self.told(fresh, key):
                pass

    async def claim(self, key: str) -> Fresh:
        while True:
            try:
                answer = await self.ledger.claim(self.session, a_claim(key))
            except LedgerUnavailable:
                continue
            if isinstance(answer, Fresh):
                return answer
            # Our own claim, whose answer was lost on the way back, until its release has gone through.
            assert isinstance(answer, Held), answer

    async def told(self, fresh: Fresh, key: str) -> bool:
        try:
            answer = await record(self.ledger, self.session, fresh, Complete(), key)
        except LedgerUnavailable:
            return False
        assert answer is Recorded.RECORDED
        return True


async def test_connections_cut_in_the_middle_of_flushes_make_no_wrong_answer(postgres: PostgresWorld) -> None:
    stubborn = Stubborn(postgres.ledger, await start(postgres.ledger))
    keys = iter([f"k{n:04}" for n in range(1500)])
    work = asyncio.gather(*(stubborn.work(keys) for _ in range(60)))

    async def progress(known: int) -> None:
        await eventually(lambda: len(stubborn.started) > known or work.done(), timeout_s=30)

    cuts = 0
    while not work.done():
        cuts += len(await postgres.sql(KILL))
        await progress(len(stubborn.started))
    await work
    assert cuts >= 3
    rows = await postgres.sql("select key, fence, attempts, claims, state from acklast.jobs")
    assert {row["key"]: [row["fence"]] for row in rows} == stubborn.started
    assert len(rows) == 1500
    for row in rows:
        # A release takes its claim back: what was never started is not counted.
        assert (row["state"], row["attempts"], row["claims"]) == ("done", 1, 1)


def lose_answers(ledger: PostgresLedger, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next flushes are done, and their answers are lost on the way back."""
    link, left = ledger._flushes, times
    fetch = link.fetch

    async def fetch_and_lose(sql: str, *args: Any) -> list[asyncpg.Record]:
        nonlocal left
        rows = await fetch(sql, *args)
        if left > 0:
            left -= 1
            raise LedgerUnavailable("the connection was lost", "wait")
        return rows

    monkeypatch.setattr(link, "fetch", fetch_and_lose)


async def test_a_flush_whose_answer_was_lost_is_repeated_without_harm(
    postgres: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = postgres.ledger
    session = await start(ledger)
    lose_answers(ledger, 1, monkeypatch)
    new = await started(ledger, session)
    lose_answers(ledger, 1, monkeypatch)
    assert await record(ledger, session, new, Retry(new.now, "busy")) is Recorded.RECORDED
    lose_answers(ledger, 1, monkeypatch)
    again = await started(ledger, session)
    assert (new.fence, new.attempt, again.fence, again.attempt) == (1, 1, 2, 2)
    lose_answers(ledger, 1, monkeypatch)
    assert await record(ledger, session, again, Bury("refused")) is Recorded.RECORDED
    job = await view(ledger)
    assert (job.fence, job.attempts, len(job.history), len(job.letters)) == (2, 2, 2, 1)


async def test_a_claim_whose_answer_stays_lost_is_free_for_others(
    postgres: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LONELY_S", 0.01)
    ledger = postgres.ledger
    session, other = await start(ledger), await start(ledger, "two")
    lose_answers(ledger, 2, monkeypatch)
    with pytest.raises(LedgerUnavailable):
        await ledger.claim(session, a_claim())

    async def released() -> bool:
        return (await view(ledger)).state is State.QUEUED

    await eventually(released)
    fresh = await started(ledger, other)
    assert (fresh.fence, fresh.attempt, fresh.ambiguous) == (2, 1, False)


async def test_a_cancelled_claim_leaves_the_job_to_others(
    postgres: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LONELY_S", 0.01)
    ledger = postgres.ledger
    session, other = await start(ledger), await start(ledger, "two")
    async with elsewhere(
        postgres, f"insert into acklast.jobs (lane, key, state) values ('{LANE}', 'a', 'queued')"
    ):
        both = [asyncio.ensure_future(ledger.claim(session, a_claim(key))) for key in ("a", "k")]
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%inserted%'"
        await eventually(lambda: postgres.sql(waiting))
        both[1].cancel()

    async def again() -> bool:
        return is_fresh(await ledger.claim(other, a_claim()))

    await eventually(again)
    job = await view(ledger)
    assert (job.attempts, job.ambiguous, job.history) == (1, False, ())


async def test_handlers_that_hold_every_connection_stop_neither_lease_nor_claims(
    postgres: PostgresWorld,
) -> None:
    ledger: Ledger = postgres.ledger
    session = await start(ledger)
    made = [await started(ledger, session, f"k{n}") for n in range(4)]

    async def handler(n: int) -> None:
        async with ledger.transaction(session, a_record(made[n], Complete(), f"k{n}")):
            await release.wait()

    release = asyncio.Event()
    handlers = [asyncio.create_task(handler(n)) for n in range(4)]  # as many as the pool has connections
    await eventually(
        lambda: postgres.sql("select 1 from pg_stat_activity where state = 'idle in transaction'")
    )
    assert await ledger.renew(session)
    await started(ledger, session, "more")
    release.set()
    await asyncio.gather(*handlers)
    assert (await view(ledger, "k3")).state is State.DONE


async def test_a_killed_server_leaves_no_process_that_answers(ledger_cluster: Any, ledger_dsn: str) -> None:
    """One that computes asks nobody whether its server is still there."""
    session = await asyncpg.connect(ledger_dsn)
    pid = await session.fetchval("select pg_backend_pid()")
    work = asyncio.create_task(session.execute("select count(*) from generate_series(1, 1e12::int8)"))
    busy = f"select 1 from pg_stat_activity where pid = {pid} and state = 'active'"
    await eventually(lambda: ledger_cluster.sql(busy))
    ledger_cluster.kill()
    try:
        with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
            await asyncio.wait_for(work, 10)
    finally:
        session.terminate()
        ledger_cluster.start()


async def test_the_ledger_comes_back_with_its_server(
    ledger_cluster: Any, ledger_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await PostgresLedger.connect(ledger_dsn)
    session = await start(ledger)
    fresh = await started(ledger, session)
    ledger_cluster.kill()
    try:
        for call in (
            ledger.claim(session, a_claim("other")),
            record(ledger, session, fresh, Complete()),
            ledger.renew(session),
            ledger.jobs("k"),
            ledger.cancel(LANE, "k"),
            ledger.run("r1"),
            ledger.manifest("r1", []),
            ledger.bury_stray(a_letter(), worker="w", version="v"),
        ):
            with pytest.raises(LedgerUnavailable):
                await call
        with pytest.raises(LedgerUnavailable):
            async with ledger.transaction(session, a_record(fresh, Complete())):
                pytest.fail("there is no connection to lend")
    finally:
        ledger_cluster.start()
    assert await ledger.renew(session)
    assert await record(ledger, session, fresh, Complete()) is Recorded.RECORDED
    await started(ledger, session, "other")
    assert (await view(ledger)).state is State.DONE
    await ledger.close()
