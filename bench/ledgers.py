"""The tables that contenders write to: made, emptied before a drain, counted after it."""

from __future__ import annotations

from typing import assert_never
from urllib.parse import urlsplit

import asyncpg

from acklast.ledger.migrate import migrate
from bench.queues import BenchError
from bench.roster import Ledger

_NAIVE = """
create table if not exists bench_naive (
    key        text primary key,
    state      text not null default 'claimed',
    claimed_at timestamptz not null default now(),
    done_at    timestamptz
)
"""
_TABLES = (
    "bench_naive",
    "acklast.jobs",
    "acklast.attempts",
    "acklast.dead_letters",
    "acklast.runs",
    "acklast.outbox",
)


async def make(dsn: str) -> None:
    """Create what is missing."""
    await migrate(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute(_NAIVE)
    await connection.close()


async def create(dsn: str, name: str) -> str:
    """Another database on the same server, with the tables in it; its address."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(f'create database "{name}"')
    await connection.close()
    other = urlsplit(dsn)._replace(path=f"/{name}").geturl()
    await make(other)
    return other


async def checkpoint(dsn: str) -> None:
    """Have all that was written on disk: no drain pays for what came before it."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("checkpoint")
    await connection.close()


async def wal_bytes(dsn: str) -> int:
    """How much the server has ever written to its log."""
    connection = await asyncpg.connect(dsn)
    written: int = await connection.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
    await connection.close()
    return written


async def empty(dsn: str) -> None:
    """Forget all jobs, and ``checkpoint``."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"truncate {', '.join(_TABLES)}")
    await connection.close()
    await checkpoint(dsn)


async def forget_budgets(dsn: str) -> None:
    """No drain waits for the permits of the last one to cool."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("truncate acklast.budgets, acklast.permits")
    await connection.close()


async def done(dsn: str, ledger: Ledger) -> int | None:
    """How many jobs are recorded as done; None where there is no ledger."""
    match ledger:
        case Ledger.NONE:
            return None
        case Ledger.NAIVE:
            query = "select count(*) from bench_naive where state = 'done'"
        case Ledger.ACKLAST:
            query = "select count(*) from acklast.jobs where run = 'bench' and state = 'done'"
        case _:
            assert_never(ledger)
    connection = await asyncpg.connect(dsn)
    try:
        count: int = await connection.fetchval(query)
    finally:
        await connection.close()
    return count


async def require_done(dsn: str, ledger: Ledger, count: int) -> None:
    """See that a ledger has them all.

    Raises:
        BenchError: it has not.
    """
    found = await done(dsn, ledger)
    if found is not None and found != count:
        raise BenchError(f"the ledger has {found} jobs done, not {count}")
