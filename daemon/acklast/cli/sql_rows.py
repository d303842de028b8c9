"""Rows of a SQL query: by a cursor on the server, in constant memory, each as a JSON object."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from json import loads
from typing import Any, Final, TypeAlias

import asyncpg
from pydantic import SecretStr

from acklast import __version__
from acklast.cli.rows import BadRow, DataError, Entry, Row, json_body
from acklast.config.secrets import check_dsn
from acklast.errors import AcklastError, Exit

_AT_ONCE: Final = 1000
_CONNECT_S: Final = 10.0
_SETTINGS: Final = {
    "application_name": f"acklast enqueue/{__version__}"[:63],
    # A query that is enqueued changes nothing, also where the role may.
    "default_transaction_read_only": "on",
}
_Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class SourceUnavailable(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """The database that the rows come from does not answer."""

    exit = Exit.UNAVAILABLE


async def sql_rows(dsn: str, query: str, needed: frozenset[str]) -> AsyncIterator[Entry]:
    """The query's rows in order, of one moment; ``line`` counts them from 1.

    ``needed`` are the columns that every row must have.

    Raises:
        DataError: the query is refused, or its columns cannot be used.
        SourceUnavailable: the database does not answer.
    """
    connection = await _connect(dsn)
    try:
        with _told():
            await _as_json(connection)
            transaction = connection.transaction(isolation="repeatable_read", readonly=True)
            await transaction.start()
            number = 0
            async for record in connection.cursor(query, prefetch=_AT_ONCE):
                number += 1
                if number == 1:
                    _require_columns(list(record.keys()), needed)
                yield _entry(number, record)
    except (ValueError, OverflowError) as error:  # the driver's, for a date before the year 1 for example
        what = f"a value of the query, behind row {number}, cannot be read: {error}"
        raise DataError(what, "Make its column text in --sql, by 'column::text'") from None
    finally:
        connection.terminate()  # there is nothing to commit


async def _connect(dsn: str) -> _Connection:
    try:
        check_dsn(SecretStr(dsn))
        with _told():
            return await asyncpg.connect(dsn, timeout=_CONNECT_S, server_settings=dict(_SETTINGS))
    except ValueError as error:
        # What the driver says may contain a part of the password.
        raise DataError("the DSN of --sql cannot be read", f"It {error}") from None


async def _as_json(connection: _Connection) -> None:
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=_loaded)


@dataclass(frozen=True, slots=True)
class _Unread:
    """JSON that Postgres takes and Python does not: its row is told, and the others go on."""

    problem: str


def _loaded(text: str) -> Any:
    try:
        return loads(text)
    except RecursionError:
        return _Unread("it is nested too deeply")
    except ValueError as error:
        return _Unread(str(error))


@contextmanager
def _told() -> Iterator[None]:
    """Put the driver's errors in words."""
    try:
        yield
    except (OSError, TimeoutError, asyncpg.InternalClientError) as error:
        raise _away(error) from error
    except asyncpg.PostgresError as error:
        if str(error.sqlstate or "")[:2] in ("08", "28", "3D", "40", "53", "57", "58"):
            raise _away(error) from error
        raise DataError(f"the query is refused: {error}", "Correct --sql; it may only read") from error
    except asyncpg.InterfaceError as error:
        if isinstance(error, ValueError):
            raise
        if "expects" in str(error):  # the same class as of a connection that ended
            raise DataError(f"the query is refused: {error}", "Write values in --sql, not $1") from error
        raise _away(error) from error


def _away(error: BaseException) -> SourceUnavailable:
    return SourceUnavailable(
        f"the database of --sql does not answer: {error or type(error).__name__}",
        "Check the DSN and the server; repeating the command is safe",
    )


def _require_columns(columns: list[str], needed: frozenset[str]) -> None:
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        raise DataError(
            f"the query has two columns {repeated[0]!r}", "Give each a name of its own, by 'as NAME'"
        )
    if missing := sorted(needed - set(columns)):
        raise DataError(
            f"the key needs column {missing[0]!r}, which the query does not have",
            f"Its columns are: {', '.join(columns)}; correct the query or --key",
        )


def _entry(number: int, record: asyncpg.Record) -> Entry:
    fields: dict[str, Any] = {}
    try:
        fields.update((name, json_value(value)) for name, value in record.items())
        body = json_body(fields)
    except (ValueError, RecursionError) as error:
        return BadRow(number, f"is no JSON: {error}")
    return Row(number, fields, body, body)


def json_value(value: Any) -> Any:
    """A column's value as JSON has it. What JSON has no type for is text, and loses nothing.

    Raises:
        ValueError: a number that JSON does not have.
    """
    match value:
        case None | bool() | int() | str() | float():
            return value
        case _Unread(problem=problem):
            raise ValueError(problem)
        case Decimal():
            return format(value, "f")
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return _duration(value)
        case bytes():
            return value.hex()
        case asyncpg.Record() | Mapping():
            return {name: json_value(item) for name, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case asyncpg.Range():
            return _range(value)
        case asyncpg.BitString():
            return _bits(value)
        case _:  # uuid, addresses of a network
            return str(value)


def _duration(span: timedelta) -> str:
    """ISO 8601, in days and seconds: what an interval has in months the driver counts as 30 days each."""
    seconds = Decimal(span.seconds) + Decimal(span.microseconds) / 1_000_000
    return f"P{span.days}DT{seconds.normalize():f}S"


def _bits(value: asyncpg.BitString) -> str:
    return str(value.as_string()).replace(" ", "")


def _range(value: asyncpg.Range[Any]) -> Any:
    if value.isempty:
        return "empty"
    lower, upper = ("" if end is None else json_value(end) for end in (value.lower, value.upper))
    return f"{'[' if value.lower_inc else '('}{lower},{upper}{']' if value.upper_inc else ')'}"
