"""The counts of dead letters: kept short, and made for the letters from before there were any.

Both are done now and then, by a daemon's retention and by commands; neither holds anybody up.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import asyncpg

from acklast.fingerprint import UNKNOWN_VERSION, VERSION, fingerprint
from acklast.ledger.connect import Connection

BATCH: Final = 500
"""Letters that one commit counts."""
UNSUMMED: Final = 2_000
"""Rows that wait before a sum is worth its writes."""

# Of the last day each ten minutes stand for themselves, for the trend. A group that is empty is forgotten.
# Rows that come meanwhile are not seen, and stay; of two sums at once the second waits, and finds nothing.
_SUM: Final = """
with old as (
    delete from acklast.dead_counts returning *
),
part as (
    select lane, run, reason, failure, version, sum(letters) as letters, sum(arrived) as arrived,
           min(first_at) as first_at, max(last_at) as last_at
    from old
    group by lane, run, reason, failure, version,
             case when arrived > 0 and last_at > clock_timestamp() - interval '25 hours'
                  then floor(extract(epoch from last_at) / 600) end
),
whole as (
    select p.*, sum(letters) over (partition by lane, run, reason, failure) as total from part p
)
insert into acklast.dead_counts (lane, run, reason, failure, version, letters, arrived, first_at, last_at,
                                 summed)
select lane, run, reason, failure, version, letters, arrived, first_at, last_at, true
from whole where total <> 0
"""
_WAITING: Final = """
select count(*) from (select from acklast.dead_counts where not summed limit $1) as some_of_them
"""


async def sum_up(connection: Connection, unsummed: int = UNSUMMED) -> bool:
    """Replace each group's rows by their sums, if ``unsummed`` or more have come since; whether it did."""
    if await connection.fetchval(_WAITING, unsummed) < unsummed:
        return False
    await connection.execute(_SUM)
    return True


# A letter that somebody holds is left for the next pass.
_TAKE: Final = """
select d.id, d.key, d.reason, d.detail, d.failure,
       d.fence is null or d.reason like 'broker\\_%' or coalesce(a.outcome = 'not_started', false) as plain
from acklast.dead_letters d
left join acklast.attempts a on a.lane = d.lane and a.key = d.key and a.fence = d.fence
where not d.counted order by d.id limit $1
for update of d skip locked
"""
_COUNT: Final = """
update acklast.dead_letters d set counted = true, failure = n.failure
from unnest($1::bigint[], $2::text[]) as n (id, failure) where d.id = n.id
"""


async def count_older(connection: Connection) -> AsyncGenerator[int, None]:
    """Count the letters from before there were counts, ``BATCH`` of them a commit; how many at each step."""
    while True:
        async with connection.transaction():
            rows = await connection.fetch(_TAKE, BATCH)
            if rows:
                await connection.execute(
                    _COUNT, [row["id"] for row in rows], [_versioned(row) for row in rows]
                )
        if not rows:
            return
        yield len(rows)


def _versioned(row: asyncpg.Record) -> str:
    """The fingerprint of an older letter, as far as it is known.

    Where nothing was raised it is what it would be today. What an attempt raised was not kept: such letters
    are grouped as they were, under a version that is never compared with another.
    """
    if row["failure"].startswith(f"{VERSION}-"):
        return str(row["failure"])
    if row["plain"]:
        return fingerprint(row["reason"], row["detail"], row["key"])
    return f"{UNKNOWN_VERSION}-{row['failure']}"
