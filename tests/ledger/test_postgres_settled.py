"""Acknowledgements in Postgres: noted by ranges of tickets, found again by each job's own."""

from __future__ import annotations

import asyncio

from acklast.ledger.api import Decided
from acklast.outcome import Complete
from ledger.keeping import whole_pass
from ledger.worlds import LANE, PostgresWorld, a_claim, record, start, started, view


async def test_acknowledgements_of_many_jobs_are_one_row(postgres: PostgresWorld) -> None:
    ledger = postgres.ledger
    session = await start(ledger)
    keys = [f"k{n}" for n in range(10)]
    fresh = await asyncio.gather(*(started(ledger, session, key) for key in keys))
    told = zip(keys, fresh, strict=True)
    await asyncio.gather(*(record(ledger, session, one, Complete(), key) for key, one in told))
    for key in (*keys[:4], *keys[5:9]):
        await ledger.settled(LANE, key, 1)
    await ledger.close()
    rows = await postgres.sql("select session, tickets::text from acklast.settlements")
    assert [row["session"] for row in rows] == [session.id]
    assert rows[0]["tickets"].count("[") == 2
    other = await postgres.another()
    settled = [(await view(other, key)).settled_at is not None for key in keys]
    assert settled == [True] * 4 + [False] + [True] * 4 + [False]


async def test_a_job_that_somebody_else_had_decided_is_noted_by_its_key(postgres: PostgresWorld) -> None:
    session = await start(postgres.ledger)
    await record(postgres.ledger, session, await started(postgres.ledger, session), Complete())
    heir = await postgres.another()
    decided = await heir.claim(await start(heir, "two"), a_claim())
    assert isinstance(decided, Decided)
    await heir.settled(LANE, "k", decided.fence)
    await heir.close()
    assert (await view(postgres.ledger)).settled_at is not None
    assert await postgres.sql("select from acklast.settlements") == []


async def test_settlements_go_with_their_session(postgres: PostgresWorld) -> None:
    session = await start(postgres.ledger)
    await record(postgres.ledger, session, await started(postgres.ledger, session), Complete())
    await postgres.ledger.settled(LANE, "k", 1)
    await postgres.ledger.close_session(session)
    await postgres.ledger.close()
    await postgres.sql("update acklast.workers set ended_at = now() - interval '1000 days' returning id")
    await whole_pass(await postgres.another())
    assert (
        await postgres.sql("select id from acklast.workers union all select session from acklast.settlements")
        == []
    )
