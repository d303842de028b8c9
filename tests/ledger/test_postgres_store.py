"""What Postgres keeps of jobs, and what handlers commit with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from acklast.errors import ClaimLost, LedgerUnavailable
from acklast.fingerprint import fingerprint
from acklast.ledger.api import State
from acklast.outcome import Bury, Complete
from ledger.worlds import (
    LANE,
    PostgresWorld,
    a_letter,
    a_record,
    record,
    start,
    started,
    view,
)

# --- what is stored -----------------------------------------------------------------------------------


async def test_a_letter_keeps_what_a_person_needs_to_try_again(postgres: PostgresWorld) -> None:
    ledger = postgres.ledger
    session = await start(ledger)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01", "tenant": "é", "n": 5}
    letter = a_letter(
        headers=headers,
        properties={"priority": 3},
        payload=b"\x00\xff",
        type="rent.v1",
        content_type="application/octet-stream",
        exchange="acklast.v1.in",
        routing_key="cleanup.x",
    )
    await record(ledger, session, await started(ledger, session), Bury("refused"), letter=letter)
    (row,) = await postgres.sql(
        "select *, headers = $1::jsonb as same from acklast.dead_letters",
        '{"traceparent": "' + headers["traceparent"] + '", "tenant": "é", "n": 5}',  # type: ignore[operator]
    )
    assert (row["payload"], row["same"], row["properties"]) == (b"\x00\xff", True, '{"priority": 3}')
    assert (row["trace_id"], row["fence"], row["digest"]) == (trace, 1, None)
    assert (row["exchange"], row["routing_key"], row["type"]) == ("acklast.v1.in", "cleanup.x", "rent.v1")
    assert row["failure"] == fingerprint(letter.reason, letter.detail, letter.key)
    await ledger.bury_stray(replace(letter, digest=b"d"), worker="w", version="v")
    rows = await postgres.sql("select * from acklast.dead_letters order by id")
    assert [bytes(row["payload"]) for row in rows] == [b"\x00\xff"] * 2
    assert [row["trace_id"] for row in rows] == [trace] * 2
    assert [row["digest"] for row in rows] == [None, b"d"]


async def test_a_cancellation_is_in_the_audit(postgres: PostgresWorld) -> None:
    await started(postgres.ledger, await start(postgres.ledger))
    await postgres.ledger.cancel(LANE, "k")
    await postgres.ledger.cancel(LANE, "k")
    (row,) = await postgres.sql(
        "select action, lane, key, detail - 'role', detail->>'role' as role, actor from acklast.audit"
    )
    assert tuple(row)[:4] == ("cancel", LANE, "k", '{"from": "claimed"}')
    assert row["actor"] == row["role"] == "acklast"


# --- the handler's own transaction --------------------------------------------------------------------


@pytest.fixture
async def effects(postgres: PostgresWorld) -> AsyncIterator[PostgresWorld]:
    await postgres.sql("create table if not exists public.effects (key text)")
    yield postgres
    await postgres.sql("drop table public.effects")


async def effect(connection: Any, key: str = "k") -> None:
    await connection.execute("insert into public.effects values ($1)", key)


async def test_effect_and_completion_commit_together(effects: PostgresWorld) -> None:
    ledger = effects.ledger
    session = await start(ledger)
    fresh = await started(ledger, session)
    async with ledger.transaction(session, a_record(fresh, Complete({"n": 1}))) as connection:
        await effect(connection)
        assert await effects.sql("select * from public.effects") == []
    assert len(await effects.sql("select * from public.effects")) == 1
    job = await view(ledger)
    assert (job.state, job.result) == (State.DONE, {"n": 1})


async def test_effect_and_completion_are_rolled_back_together(effects: PostgresWorld) -> None:
    ledger = effects.ledger
    session = await start(ledger)
    fresh = await started(ledger, session)

    async def failing() -> None:
        async with ledger.transaction(session, a_record(fresh, Complete())) as connection:
            await effect(connection)
            await connection.execute("select 1/0")

    with pytest.raises(asyncpg.DivisionByZeroError):  # the handler's error stays the handler's
        await failing()
    assert await effects.sql("select * from public.effects") == []
    assert (await view(ledger)).state is State.CLAIMED


async def test_an_effect_under_a_lost_claim_is_rolled_back(effects: PostgresWorld) -> None:
    ledger = effects.ledger
    session = await start(ledger)
    fresh = await started(ledger, session)

    async def late() -> None:
        async with ledger.transaction(session, a_record(fresh, Complete())) as connection:
            await effect(connection)
            await ledger.cancel(LANE, "k")

    with pytest.raises(ClaimLost):
        await late()
    assert await effects.sql("select * from public.effects") == []


async def test_a_transaction_whose_connection_is_cut_is_an_outage(effects: PostgresWorld) -> None:
    ledger = effects.ledger
    session = await start(ledger)
    fresh = await started(ledger, session)

    async def cut() -> None:
        async with ledger.transaction(session, a_record(fresh, Complete())) as connection:
            await effect(connection)
            await effects.sql("select pg_terminate_backend($1)", connection.get_server_pid())
            await effect(connection)

    with pytest.raises(LedgerUnavailable):
        await cut()
    assert await effects.sql("select * from public.effects") == []
    async with ledger.transaction(session, a_record(fresh, Complete())) as connection:
        await effect(connection)
    assert (await view(ledger)).state is State.DONE
