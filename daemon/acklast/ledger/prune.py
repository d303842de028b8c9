"""Retention in Postgres: what is older than its lane's windows goes, a small batch at a time.

How the rows are found: no index names a state or a time, since that would double the cost of every job (see
the first migration). The tables are walked in the order in which they lie on disk, a stretch of pages per
statement, and ``Dues`` remembers when each stretch is due again. docs/decisions/0008 has the alternatives.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias

import asyncpg

from acklast.ledger import expired
from acklast.ledger.connect import CLOSE_S, Address, Connection, unavailable_as_error
from acklast.ledger.dead_counts import count_older, sum_up
from acklast.ledger.retention import COUNTS, AlreadyPruning, Dues, Keep, Keeps, Pruned, Step, sessions_s

STRETCH: Final = 64
"""Pages (half a megabyte) that one statement looks at: about as many rows as a batch may have."""
BATCH: Final = 1000
"""Rows that one statement removes at most."""
SETTINGS: Final = {
    # A stretch is a range of pages, and what belongs to its rows is found by key: any other plan would read
    # whole tables, and an empty table's plan must not live on as it grows.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
"""What the connection that prunes insists on."""

Place: TypeAlias = tuple[int, int]
"""Where a row lies: page and line."""

_LOCK: Final = int.from_bytes(hashlib.sha256(b"acklast ledger prune").digest()[:8], signed=True)
_ALONE: Final = "select pg_try_advisory_lock($1)"
_SIZES: Final = """
select c.relname as name, pg_relation_filenode(c.oid)::bigint as node,
       pg_relation_size(c.oid) / current_setting('block_size')::int as pages
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'acklast' and c.relname = any($1::text[])
"""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table that is walked. ``first`` is the window that its statements have as ``$2``."""

    name: str
    remove: str
    count: str
    first: Callable[[Keep], float]


# Jobs before letters: what belongs together goes together.
_TABLES: Final = (
    _Table("jobs", expired.REMOVE_JOBS, expired.COUNT_JOBS, attrgetter("done_s")),
    _Table("dead_letters", expired.REMOVE_LETTERS, expired.COUNT_LETTERS, attrgetter("payload_s")),
    _Table("attempts", expired.REMOVE_ATTEMPTS, expired.COUNT_ATTEMPTS, attrgetter("done_s")),
)


async def prune(address: Address, keeps: Keeps, dues: Dues, *, dry_run: bool) -> AsyncGenerator[Step, None]:
    """Remove what has expired, one batch per step, on a connection of its own; a dry run only counts.

    ``dues`` is what earlier passes have learned. A dry run neither uses it nor adds to it.

    Raises:
        AlreadyPruning: another pass is under way.
        LedgerUnavailable: the ledger does not answer; every step that was told is done.
        ConfigError: the server refuses the connection.
    """
    connection = await address.open(SETTINGS)
    try:
        with unavailable_as_error():
            if not dry_run and not await connection.fetchval(_ALONE, _LOCK):
                raise AlreadyPruning
            work = _Pass(connection, keeps, Dues() if dry_run else dues, dry_run)
            async with aclosing(work.steps()) as steps:
                async for step in steps:
                    yield step
    finally:
        # Waits for the server: with the connection goes the lock that keeps others from pruning.
        with suppress(Exception):
            await connection.close(timeout=CLOSE_S)


class _Pass:
    """One walk over all tables."""

    def __init__(self, connection: Connection, keeps: Keeps, dues: Dues, dry_run: bool) -> None:
        self._connection = connection
        self._keeps = keeps
        self._dues = dues
        self._dry_run = dry_run
        self._limit = None if dry_run else BATCH
        dues.begin(keeps)

    async def steps(self) -> AsyncGenerator[Step, None]:
        names = [table.name for table in _TABLES]
        sizes = {row["name"]: row for row in await self._connection.fetch(_SIZES, names)}
        of, at = sum(row["pages"] for row in sizes.values()), 0
        for table in _TABLES:
            node, pages = sizes[table.name]["node"], sizes[table.name]["pages"]
            for first in range(0, pages, STRETCH):
                if self._dues.due(table.name, node, first):
                    async with aclosing(self._stretch(table, node, first)) as batches:
                        async for pruned in batches:
                            yield Step(pruned, at + first, of)
            at += pages
        for rest in (self._sessions, self._redrives):
            async with aclosing(rest()) as batches:
                async for pruned in batches:
                    yield Step(pruned, of, of)
        if not self._dry_run:
            async with aclosing(count_older(self._connection)) as batches:
                async for _ in batches:
                    yield Step(Pruned(), of, of)
            await sum_up(self._connection)

    async def _stretch(self, table: _Table, node: int, first: int) -> AsyncGenerator[Pruned, None]:
        """Remove what is due in one stretch, and remember when it is due again."""
        sql = table.count if self._dry_run else table.remove
        windows = _windows(self._keeps, table.first)
        start, end = (first, 0), (first + STRETCH, 0)
        more, left = True, False
        while more:
            [row] = await self._connection.fetch(sql, *windows, start, end, self._limit)
            more = row["expired"] == self._limit
            left = left or row["gone"] < (row["expired"] if more else row["overdue"])
            start = _after(row["reached"]) if more else end
            yield _pruned(row)
        self._dues.looked(table.name, node, first, 0.0 if left else row["next_s"])

    async def _sessions(self) -> AsyncGenerator[Pruned, None]:
        sql = expired.COUNT_SESSIONS if self._dry_run else expired.REMOVE_SESSIONS
        more = True
        while more:
            count = await self._connection.fetchval(sql, sessions_s(self._keeps), self._limit)
            more = count == self._limit
            yield Pruned(sessions=count)

    async def _redrives(self) -> AsyncGenerator[Pruned, None]:
        longest_s = sessions_s(self._keeps)
        more = True
        while more:
            if self._dry_run:
                [row] = await self._connection.fetch(expired.COUNT_REDRIVES, longest_s)
            else:
                [row] = await self._connection.fetch(expired.REMOVE_REDRIVES, longest_s, BATCH)
            more = row["found"] > 0
            yield Pruned(redrives=row["gone"])


def _windows(keeps: Keeps, first: Callable[[Keep], float]) -> tuple[list[str], list[float], list[float]]:
    """The first parameters of a statement that walks."""
    return list(keeps), [first(keep) for keep in keeps.values()], [keep.dead_s for keep in keeps.values()]


def _after(place: Place) -> Place:
    page, line = place
    return (page, line + 1)


def _pruned(row: asyncpg.Record) -> Pruned:
    said = dict(row)
    return Pruned(**{name: said[name] for name in COUNTS if name in said})
