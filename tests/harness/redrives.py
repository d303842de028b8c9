"""Redrives that are begun by a row in the ledger, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import asyncpg

# All letters of the lane that wait for somebody, the oldest first.
_BEGIN = """
with begun as (
    insert into acklast.redrives (lane, status, decided, selection, letters, actor, login, reason, steps,
                                  rate_per_s, tolerate, forced, started_at, step_at)
    select $1, $7, $5, '{}', count(*), 'a test', 'a test', 'why not',
           array_append($2::bigint[], count(*)), $3, $4, $6, clock_timestamp(), clock_timestamp()
    from acklast.dead_letters where lane = $1 and closed_at is null
    returning id
)
insert into acklast.redrive_letters (redrive, position, letter, lane, key, run, fence, reason, failure,
                                     version)
select begun.id, row_number() over (order by d.id), d.id, d.lane, d.key, d.run, d.fence, d.reason, d.failure,
       d.version
from begun cross join acklast.dead_letters d where d.lane = $1 and d.closed_at is null
returning redrive
"""


class Sql(Protocol):
    async def __call__(self, statement: str, *args: Any) -> list[asyncpg.Record]: ...


def sql_of(dsn: str) -> Sql:
    """One that connects anew for each statement."""

    async def sql(statement: str, *args: Any) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()

    return sql


async def begin(
    sql: Sql,
    lane: str,
    *,
    steps: Sequence[int] = (),
    rate_per_s: float = 1000,
    tolerate: float = 0,
    decided: bool = False,
    forced: str | None = None,
    status: str = "running",
) -> int:
    """Begin a redrive of all that is dead in a lane; its number. The last step, all of them, is added."""
    rows = await sql(_BEGIN, lane, list(steps), rate_per_s, tolerate, decided, forced, status)
    number: int = rows[0]["redrive"]
    return number


async def found(sql: Sql, redrive: int) -> asyncpg.Record:
    """How a redrive stands."""
    [row] = await sql("select * from acklast.redrives where id = $1", redrive)
    return row


async def letters(sql: Sql, redrive: int) -> list[asyncpg.Record]:
    """Its letters, in their order."""
    return await sql("select * from acklast.redrive_letters where redrive = $1 order by position", redrive)
