"""What one purpose of the ledger's connections suffers must not reach another."""

from __future__ import annotations

import asyncio

import asyncpg

from acklast.ledger.api import Letter
from acklast.ledger.postgres import PostgresLedger
from harness.waiting import eventually


async def test_a_lease_is_renewed_while_broken_messages_wait_for_the_ledger(ledger_dsn: str) -> None:
    """Behind a flood of them, or of large ones, the lease of a healthy daemon would run out."""
    ledger = await PostgresLedger.connect(ledger_dsn)
    other = await asyncpg.connect(ledger_dsn)
    try:
        session = await ledger.open_session("one", worker="one", version="1", lease_s=30)
        stray = Letter(lane="rent", reason="missing_key", detail="", payload=b"x", key=None, digest=b"d")
        async with other.transaction():
            await other.execute("lock table acklast.dead_letters in exclusive mode")
            burying = asyncio.create_task(ledger.bury_stray(stray, worker="one", version="1"))
            waits = "select count(*) from pg_locks where not granted and relation = $1::regclass"
            await eventually(lambda: other.fetchval(waits, "acklast.dead_letters"))
            assert await asyncio.wait_for(ledger.renew(session), 30)
            assert not burying.done()
        await asyncio.wait_for(burying, 30)
    finally:
        await other.close()
        await ledger.close()
