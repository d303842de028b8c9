"""The schema's life: made once however many make it, and never used by a program that does not know it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from acklast import __version__
from acklast.errors import Exit, LedgerUnavailable, SchemaError
from acklast.ledger import migrate as module
from acklast.ledger.migrate import Migration, check_schema, goes_beside, migrate, shipped
from acklast.ledger.postgres import PostgresLedger

NAMES = [migration.name for migration in shipped()]
NEXT = Migration(9000, "9000_next", "create table acklast.next (n int)")


async def sql(dsn: str, statement: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [migration.number for migration in shipped()] == list(range(1, len(NAMES) + 1))


async def test_five_at_once_migrate_once(empty_dsn: str) -> None:
    done = await asyncio.gather(*(migrate(empty_dsn) for _ in range(5)))
    assert sorted(done, key=len) == [[], [], [], [], NAMES]
    await check_schema(empty_dsn)
    assert await migrate(empty_dsn) == []


async def test_the_tables_of_the_design_are_there(ledger_dsn: str) -> None:
    rows = await sql(ledger_dsn, "select tablename from pg_tables where schemaname = 'acklast'")
    names = "jobs attempts dead_letters runs workers budgets outbox redrives schedules audit migrations"
    assert {row[0] for row in rows} >= set(names.split())


async def test_no_index_names_a_column_that_a_transition_changes(ledger_dsn: str) -> None:
    rows = await sql(
        ledger_dsn, "select indexdef from pg_indexes where schemaname = 'acklast' and tablename = 'jobs'"
    )
    found = sorted(row[0].partition(" USING btree ")[2] for row in rows)
    assert found == ["(lane, key)", "(run) WHERE (run IS NOT NULL)"]


async def test_an_empty_database_is_told_to_migrate(empty_dsn: str) -> None:
    with pytest.raises(SchemaError, match=r"no schema yet\. Run 'acklast ledger migrate'") as caught:
        await PostgresLedger.connect(empty_dsn)
    assert caught.value.exit is Exit.CONFIG


async def test_a_newer_schema_is_refused(ledger_dsn: str) -> None:
    await sql(
        ledger_dsn,
        "insert into acklast.migrations (number, name, checksum, version)"
        " values (9000, '9000_next', 'x', '7.1.0')",
    )
    for refused in (check_schema, migrate, PostgresLedger.connect):
        with pytest.raises(SchemaError, match=r"newer than this program.*9000_next.*Upgrade .* to 7\.1\.0"):
            await refused(ledger_dsn)


@pytest.mark.parametrize(
    ("theirs", "ours", "beside"),
    [
        ("0.9.4", "0.9.0", True),
        ("0.10.0", "0.9.7", True),
        ("0.11.0", "0.9.7", False),
        ("0.8.0", "0.9.0", False),
        ("1.0.0", "0.9.0", False),
        ("1.10.0", "1.9.0rc1", True),
        ("unknown", "0.9.0", False),
        ("0.9.0", "0+unknown", False),
    ],
)
def test_a_program_goes_beside_its_own_minor_version_and_the_next(
    theirs: str, ours: str, beside: bool
) -> None:
    assert goes_beside(theirs, ours) is beside


async def test_a_schema_of_the_next_minor_version_is_used_and_not_migrated(ledger_dsn: str) -> None:
    major, minor, *_ = __version__.split(".")
    await sql(
        ledger_dsn,
        "insert into acklast.migrations (number, name, checksum, version)"
        f" values (9000, '9000_next', 'x', '{major}.{int(minor) + 1}.0')",
    )
    await check_schema(ledger_dsn)
    await (await PostgresLedger.connect(ledger_dsn)).close()
    with pytest.raises(SchemaError, match=r"newer than this program.*9000_next"):
        await migrate(ledger_dsn)


async def test_an_older_schema_is_refused_until_it_is_migrated(
    ledger_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = [*shipped(), NEXT]
    monkeypatch.setattr(module, "shipped", lambda: newer)
    with pytest.raises(SchemaError, match=r"older.*9000_next is missing\. Run 'acklast ledger migrate'"):
        await check_schema(ledger_dsn)
    assert await migrate(ledger_dsn) == ["9000_next"]
    await check_schema(ledger_dsn)


async def test_a_migration_that_was_changed_afterwards_is_noticed(
    ledger_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = [replace(migration, sql=migration.sql + "--") for migration in shipped()]
    monkeypatch.setattr(module, "shipped", lambda: changed)
    with pytest.raises(SchemaError, match="is not the"):
        await check_schema(ledger_dsn)


async def test_a_migration_that_fails_leaves_what_was_before(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = replace(NEXT, sql="create table acklast.next (n int); select 1/0")
    first = shipped()
    monkeypatch.setattr(module, "shipped", lambda: [*first, bad])
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(empty_dsn)
    assert (await sql(empty_dsn, "select to_regclass('acklast.next')::text"))[0][0] is None
    monkeypatch.setattr(module, "shipped", lambda: [*first, NEXT])
    assert await migrate(empty_dsn) == ["9000_next"]


async def test_a_user_without_rights_is_told_so(ledger_dsn: str) -> None:
    role = "acklast_stranger"
    await sql(ledger_dsn, f"drop role if exists {role}")
    await sql(ledger_dsn, f"create role {role} login password 'x'")
    stranger = _as(ledger_dsn, role)
    try:
        with pytest.raises(SchemaError, match="may not read the ledger"):
            await check_schema(stranger)
        with pytest.raises(SchemaError, match="may not change"):
            await migrate(stranger)
    finally:
        await sql(ledger_dsn, f"drop role {role}")


def _as(dsn: str, role: str) -> str:
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{role}:x@{parts.hostname}:{parts.port}"))


async def test_nobody_answers() -> None:
    with pytest.raises(LedgerUnavailable):
        await migrate("postgresql://127.0.0.1:1/nothing")
