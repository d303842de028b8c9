"""The rows of a query, page by page, in the order of a column that is different in each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from acklast import __version__
from acklast.config.schedules import Schedule
from acklast.errors import ConfigError, LedgerUnavailable
from acklast.handlers.firing import Firing
from acklast.ledger.connect import CONNECT_TIMEOUT_S, Address, Connection
from acklast.schedule.rows import NoRow, Read, Row, Rows, RowsFailed
from acklast.unquoted import unquoted

_AFTER: Final = "acklast_cursor"
_ROW: Final = "acklast_row"
# $1 is the time that the firing is for and $2 its run, which the query may use. Postgres makes the JSON: it
# knows its own types, and the same row gives the same bytes.
_SELECT: Final = """
with acklast_firing as (select $1::timestamptz as scheduled_at, $2::text as run)
select (q.{cursor})::text as acklast_cursor, to_json(q)::text as acklast_row
from (
{sql}
) as q
where {which}
order by q.{cursor} limit {limit}
"""
_COLUMNS: Final = """
with acklast_firing as (select $1::timestamptz as scheduled_at, $2::text as run)
select q.* from (
{sql}
) as q
"""


@asynccontextmanager
async def sql_pages(schedule: Schedule, ledger: Address, firing: Firing, page: int) -> AsyncIterator[Rows]:
    """Pages of a schedule's query, each by a statement of its own, behind the last row of the one before.

    Raises:
        RowsFailed: the query, or the database that it asks, does not do.
    """
    with _failures():
        connection = await _connect(schedule, ledger)
    try:
        yield _read_pages(Query(connection, schedule, firing), firing.after, page)
    finally:
        connection.terminate()


async def _connect(schedule: Schedule, ledger: Address) -> Connection:
    settings = {
        "statement_timeout": f"{int(schedule.page_timeout_s * 1000)}",
        "default_transaction_read_only": "on",
    }
    timeout_s = schedule.page_timeout_s + CONNECT_TIMEOUT_S
    if schedule.dsn is None:
        return await ledger.open(settings, timeout_s=timeout_s)
    settings["application_name"] = f"acklast/{__version__}"[:63]
    return await asyncpg.connect(
        schedule.dsn.get_secret_value(),
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=timeout_s,
        server_settings=settings,
    )


class Query:
    """A schedule's query, asked for what lies behind a cursor."""

    def __init__(self, connection: Connection, schedule: Schedule, firing: Firing) -> None:
        column = schedule.cursor_column()
        assert schedule.sql is not None and column is not None  # noqa: PT018 - the configuration sees to it
        self._connection = connection
        self._column = column
        self._needed = schedule.key_template().fields | {column}
        self._sql = schedule.sql.rstrip().rstrip(";")
        self._firing = (firing.scheduled_at, firing.run)
        self._type = ""

    async def prepare(self) -> None:
        """Learn the cursor's type, and see that no row would be left out for having none."""
        prepared = await self._connection.prepare(_COLUMNS.format(sql=self._sql))
        columns = {one.name: one.type for one in prepared.get_attributes()}
        if missing := sorted(self._needed - set(columns)):
            known = ", ".join(columns)
            raise RowsFailed(f"the query gives no column {missing[0]!r}; its columns are: {known}")
        kind = columns[self._column]
        self._type = f"{_quoted(kind.schema)}.{_quoted(kind.name)}"
        if await self._ask(f"q.{_quoted(self._column)} is null", 1):
            raise RowsFailed(f"column {self._column!r} is the cursor, and is null in a row")

    async def behind(self, cursor: str | None, limit: int) -> list[tuple[str, str]]:
        """The next rows: cursor and JSON."""
        if cursor is None:
            return await self._ask("true", limit)
        return await self._ask(f"q.{_quoted(self._column)} > ($3::text)::{self._type}", limit, cursor)

    async def _ask(self, which: str, limit: int, *cursor: str) -> list[tuple[str, str]]:
        sql = _SELECT.format(cursor=_quoted(self._column), sql=self._sql, which=which, limit=limit)
        rows = await self._connection.fetch(sql, *self._firing, *cursor)
        return [(row[_AFTER], row[_ROW]) for row in rows]


async def _read_pages(query: Query, cursor: str | None, page: int) -> Rows:
    with _failures():
        await query.prepare()
        before = 0
        while True:
            rows = await query.behind(cursor, page + 1)
            if len(rows) > page and rows[page - 1][0] == rows[page][0]:
                # The next page begins behind this value: rows that share it would be left out.
                where = f"rows {before + page} and {before + page + 1} of those that were left have the same"
                raise RowsFailed(f"the cursor is not different in each row: {where}")
            before += page
            read = [sql_row(after, text) for after, text in rows[:page]]
            cursor = rows[len(read) - 1][0] if read else cursor
            yield Read(read, cursor, len(rows) <= page)
            if len(rows) <= page:
                return


def sql_row(after: str, text: str) -> Row | NoRow:
    """A row by its cursor and JSON; one that cannot be read is told, and stops no other."""
    try:
        return Row(after, json.loads(text), text.encode())
    except (ValueError, RecursionError) as error:  # Postgres takes more digits and braces than Python
        return NoRow(after, f"is no JSON that can be read: {error}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _failures:  # noqa: N801 - used as a function
    """What a database or its driver raises, as ``RowsFailed``."""

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        match error:
            case asyncpg.PostgresError() | asyncpg.InterfaceError() | OSError() | ValueError():
                raise RowsFailed(f"the rows cannot be read: {unquoted(error)}") from error
            case LedgerUnavailable() | ConfigError():
                raise RowsFailed(f"the rows cannot be read: {error.what}") from error
