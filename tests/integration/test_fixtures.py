"""The fixtures keep what other tests count on: nothing of one test is there in the next."""

from __future__ import annotations

import asyncpg
import pytest

from harness import Broker


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_virtual_host_starts_empty_and_takes_a_quorum_queue(broker: Broker, turn: int) -> None:
    assert broker.management.call("GET", f"queues/{broker.vhost}") == []
    async with await broker.connect() as connection:
        channel = await connection.channel()
        await channel.declare_queue("probe", durable=True, arguments={"x-queue-type": "quorum"})


@pytest.mark.parametrize("turn", [1, 2])
async def test_each_database_starts_with_the_schema_and_no_rows(ledger_dsn: str, turn: int) -> None:
    connection = await asyncpg.connect(ledger_dsn)
    try:
        assert await connection.fetchval("SELECT count(*) FROM acklast.jobs") == 0
        await connection.execute("CREATE TABLE probe (turn int)")
    finally:
        await connection.close()


async def test_commits_are_kept(empty_dsn: str) -> None:
    """The ledger refuses a server that loses commits, and its speed is worth nothing on one."""
    connection = await asyncpg.connect(empty_dsn)
    try:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await connection.fetchval(f"SHOW {setting}") == "on"
    finally:
        await connection.close()
