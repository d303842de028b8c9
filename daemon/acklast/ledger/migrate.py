"""The schema: numbered files, applied in order, each in its own transaction, each recorded with a checksum.

Files that were released never change; what comes later is a new file, and only adds, so that a daemon of the
version before works on it: it goes on while a newer one migrates, and may be started again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import asyncpg

from acklast import __version__
from acklast.errors import SchemaError
from acklast.ledger import dead_counts, job_counts
from acklast.ledger.connect import Address, Connection, unavailable_as_error
from acklast.ledger.roles import grant, granted, make

_FILE: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql\Z")
_LOCK: Final = int.from_bytes(hashlib.sha256(b"acklast ledger migrate").digest()[:8], signed=True)
_MIGRATE: Final = "Run 'acklast ledger migrate'"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    """A migration as the ledger remembers it."""

    number: int
    name: str
    checksum: str
    version: str


def shipped() -> list[Migration]:
    """The migrations that belong to this program, in order."""
    found = []
    for file in files("acklast.ledger").joinpath("migrations").iterdir():
        if match := _FILE.match(file.name):
            name = file.name.removesuffix(".sql")
            found.append(Migration(int(match[1]), name, file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.number)


_MINOR: Final = re.compile(r"(\d+)\.(\d+)")


def goes_beside(theirs: str, ours: str = __version__) -> bool:
    """Whether ``ours`` may work on what ``theirs`` has added: another of its minor version, or the next."""
    added, here = _MINOR.match(theirs), _MINOR.match(ours)
    if added is None or here is None or added[1] != here[1]:
        return False
    return int(added[2]) - int(here[2]) in (0, 1)


def pending(
    known: Sequence[Migration], applied: Sequence[Applied], *, beside: bool = False
) -> list[Migration]:
    """What is still to be applied.

    ``beside``: whether it is enough that this program may work beside the one that the schema is of.

    Raises:
        SchemaError: the ledger has migrations that this program does not know, or with another content.
    """
    by_number = {migration.number: migration for migration in known}
    for one in applied:
        ours = by_number.get(one.number)
        if ours is None:
            if beside and goes_beside(one.version):
                continue
            raise SchemaError(
                f"the ledger's schema is newer than this program: it has {one.name} of acklast {one.version},"
                f" and this is acklast {__version__}",
                f"Upgrade acklast to {one.version} or later",
            )
        if (ours.name, ours.checksum) != (one.name, one.checksum):
            raise SchemaError(
                f"the ledger's migration {one.name} is not the {ours.name} of acklast {__version__}",
                "Install a released acklast, or restore the ledger that belongs to this one",
            )
    done = {one.number for one in applied}
    return [migration for migration in known if migration.number not in done]


# The schema and the list of migrations are needed before the first migration can be recorded.
_PREPARE = """
create schema if not exists acklast;
create table if not exists acklast.migrations (
    number     integer primary key,
    name       text not null,
    checksum   text not null,
    version    text not null,
    applied_at timestamptz not null default clock_timestamp()
)
"""


async def migrate(dsn: str | Sequence[str], roles: str | None = None) -> list[str]:
    """Bring the schema up to this program; the names of the migrations that were applied now.

    Safe to run several times at once: one works, the others wait and find nothing to do. ``roles`` is the
    prefix of the roles that are to be there with their rights (``roles``); those that have rights already are
    given what a new migration brings.

    Raises:
        SchemaError: the schema is newer than this program, or this user may not change it or make roles.
        ConfigError: the server refuses the connection.
        LedgerUnavailable: no server answers.
    """
    # A migration takes as long as it takes, and so does waiting for another one: no limits here. Whether the
    # server keeps commits is the daemon's question; a schema can be made again.
    address = Address.of(dsn, allow_unsafe_server=True)
    connection = await address.open({"lock_timeout": "0", "statement_timeout": "0"}, timeout_s=None)
    try:
        with unavailable_as_error():
            return await _migrate(connection, roles)
    except asyncpg.InsufficientPrivilegeError as error:
        raise SchemaError(
            f"this user may not change the ledger's schema: {error}",
            f"{_MIGRATE} as the owner of the database",
        ) from error
    finally:
        connection.terminate()


async def _migrate(connection: Connection, roles: str | None) -> list[str]:
    # Held by the session, not by a transaction, since each file has a transaction of its own.
    await connection.execute("select pg_advisory_lock($1)", _LOCK)
    if roles is not None:
        # First: where it may not be done, nothing is.
        await make(connection, roles)
    await connection.execute(_PREPARE)
    names = []
    for migration in pending(shipped(), await _applied(connection)):
        await _apply(connection, migration)
        names.append(migration.name)
    async with aclosing(dead_counts.count_older(connection)) as batches:
        async for _ in batches:
            pass
    await job_counts.count_older(connection)
    for prefix in {*([roles] if roles else []), *(await granted(connection) if names else [])}:
        await grant(connection, prefix)
    return names


async def _apply(connection: Connection, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(migration.sql)
        await connection.execute(
            "insert into acklast.migrations (number, name, checksum, version) values ($1, $2, $3, $4)",
            migration.number,
            migration.name,
            migration.checksum,
            __version__,
        )


async def _applied(connection: Connection) -> list[Applied]:
    rows = await connection.fetch(
        "select number, name, checksum, version from acklast.migrations order by number"
    )
    return [Applied(row["number"], row["name"], row["checksum"], row["version"]) for row in rows]


async def check_schema(dsn: str | Sequence[str]) -> None:
    """Make sure that the ledger's schema is this program's, or one that has only been added to since.

    Raises:
        SchemaError: it is missing, older or too new; says what to do.
        ConfigError: the server refuses the connection.
        LedgerUnavailable: no server answers.
    """
    connection = await Address.of(dsn, allow_unsafe_server=True).open()
    try:
        await check_schema_of(connection)
    finally:
        connection.terminate()


async def check_schema_of(connection: Connection) -> None:
    """``check_schema`` for a connection that is open already."""
    try:
        with unavailable_as_error():
            applied = await _applied(connection)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        raise SchemaError("the ledger has no schema yet", _MIGRATE) from None
    except asyncpg.InsufficientPrivilegeError as error:
        raise SchemaError(
            f"this user may not read the ledger: {error}",
            "Grant it one of the roles that 'acklast ledger migrate --roles' makes",
        ) from error
    if missing := pending(shipped(), applied, beside=True):
        names = ", ".join(migration.name for migration in missing)
        raise SchemaError(f"the ledger's schema is older than this program: {names} is missing", _MIGRATE)
