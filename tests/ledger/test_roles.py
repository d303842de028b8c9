"""The roles' rights, by what each is refused: real logins on the real Postgres."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import asyncpg
import pytest

from acklast.errors import SchemaError
from acklast.ledger import migrate as module
from acklast.ledger.audit import Asked, entries
from acklast.ledger.connect import Address
from acklast.ledger.migrate import Migration, check_schema, migrate, shipped
from acklast.ledger.operate import Operations
from acklast.ledger.rights import FUNCTIONS, NAMES, TABLES
from acklast.ledger.roles import roles_of
from harness import Databases
from harness.logins import Logins, executed, logins

HIDDEN = {
    "dead_letters": {"payload", "headers", "properties"},
    "custody": {"header", "body"},
    "outbox": {"payload", "headers"},
    "schedules": {"payload"},
}
"""What holds something of a message: nobody who only looks reads it."""


@pytest.fixture(scope="module")
def roles(databases: Databases, migrated_template: str) -> Iterator[Logins]:
    dsn = databases.create(migrated_template)
    with logins(databases, dsn) as made:
        yield made
    databases.drop(dsn)


async def fetch(dsn: str, statement: str, *args: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(statement, *args)
    finally:
        await connection.close()


async def refused(dsn: str, *statements: str) -> None:
    """Each is refused for want of a right, and for nothing else."""
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()


# --- the table of rights ---------------------------------------------------------------------------------


async def test_every_table_and_function_is_named(roles: Logins) -> None:
    """Whoever adds one says who needs it: daemon/acklast/ledger/rights.py."""
    tables = "select c.relname from pg_class c where c.relnamespace = 'acklast'::regnamespace"
    found = {
        row[0] for row in await fetch(roles.owner, f"{tables} and c.relkind in ('r', 'p', 'v', 'm', 'f')")
    }
    assert set(TABLES) == found
    functions = await fetch(
        roles.owner,
        "select distinct proname from pg_proc"
        " where pronamespace = 'acklast'::regnamespace and prorettype <> 'trigger'::regtype",
    )
    assert set(FUNCTIONS) == {row[0] for row in functions}


async def test_a_reader_sees_every_column_but_those_of_messages(roles: Logins) -> None:
    rows = await fetch(
        roles.as_("reader"),
        "select c.relname as of, a.attname as name, has_column_privilege(c.oid, a.attnum, 'select') as seen"
        " from pg_class c join pg_attribute a on a.attrelid = c.oid"
        " where c.relnamespace = 'acklast'::regnamespace and c.relkind in ('r', 'v') and a.attnum > 0"
        "   and not a.attisdropped",
    )
    hidden = {(of, name) for of, names in HIDDEN.items() for name in names}
    assert {(row["of"], row["name"]) for row in rows if not row["seen"]} == hidden


def test_roles_are_named_by_their_prefix_and_a_bad_one_is_told() -> None:
    assert roles_of("acklast")["reader"] == "acklast_reader"
    for bad in ("", "A", "pg_acklast", "a b", "x;", "9", "a" * 41, 'a"'):
        with pytest.raises(SchemaError, match="is no prefix"):
            roles_of(bad)


# --- refused ----------------------------------------------------------------------------------------------


async def columns(dsn: str) -> dict[str, list[str]]:
    rows = await fetch(
        dsn,
        "select table_name, array_agg(column_name::text) from information_schema.columns"
        " where table_schema = 'acklast' group by 1",
    )
    return {row[0]: row[1] for row in rows}


def granted(words: str, privilege: str, every: list[str]) -> set[str]:
    """The columns that GRANT's words give a privilege on."""
    for part in re.split(r",(?![^(]*\))", words):
        if found := re.fullmatch(rf"\s*{privilege}\s*(?:\(([^)]*)\))?\s*", part):
            return set(every) if found[1] is None else set(re.split(r",\s*", found[1]))
    return set()


@pytest.mark.parametrize("role", NAMES)
async def test_what_is_not_granted_is_refused(roles: Logins, role: str) -> None:
    tried = []
    for table, every in (await columns(roles.owner)).items():
        words = getattr(TABLES[table], role)
        writable = [name for name in every if table != "firing_views"]
        may = {name: granted(words, name, every) for name in ("select", "insert", "update", "delete")}
        tried += [f"select {name} from acklast.{table}" for name in every if name not in may["select"]]
        tried += [
            f"update acklast.{table} set {name} = default" for name in writable if name not in may["update"]
        ]
        tried += [
            f"insert into acklast.{table} ({name}) overriding system value values (default)"
            for name in writable
            if name not in may["insert"]
        ]
        tried += [f"delete from acklast.{table}"] if not may["delete"] else []
        tried += [f"truncate acklast.{table}", f"drop table acklast.{table}"] if writable else []
        tried += [f"alter table acklast.{table} disable trigger all"] if writable else []
    await refused(roles.as_(role), *tried)


@pytest.mark.parametrize("role", NAMES)
async def test_nobody_makes_or_changes_anything_of_the_schema(roles: Logins, role: str) -> None:
    await refused(
        roles.as_(role),
        "create table acklast.mine (n int)",
        "create function acklast.mine() returns int language sql as 'select 1'",
        "create or replace function acklast.letter_bytes(letter bigint) returns integer language sql"
        " as 'select 1'",
        "alter table acklast.jobs add column mine int",
        "create index on acklast.jobs (state)",
        "drop function acklast.audit_stays cascade",
        "drop schema acklast cascade",
        f"create role {roles.prefix}_mine",
        f"grant {roles.prefix}_daemon to {roles.prefix}_login_reader",
    )


async def test_who_has_no_role_is_told_of_the_roles(roles: Logins) -> None:
    nobody = roles.as_("nobody")
    await refused(nobody, "select from acklast.jobs", "select acklast.enqueue('l', 'k', '{}')")
    with pytest.raises(SchemaError, match=r"may not read the ledger.*--roles"):
        await check_schema(nobody)
    for role in ("daemon", "operator", "reader"):
        await check_schema(roles.as_(role))


async def test_applications_promise_jobs_and_readers_do_not(roles: Logins) -> None:
    promise = "select acklast.enqueue('cleanup', 'k', '{}')"
    await refused(roles.as_("reader"), promise, "select acklast.enqueue_raw('l', 'k', '', 'x')")
    for role in ("publisher", "daemon", "operator"):
        assert await fetch(roles.as_(role), promise)
    await refused(roles.as_("publisher"), "select from acklast.outbox", "select acklast.letter_bytes(1)")


async def test_an_entry_of_the_audit_tells_neither_its_time_nor_its_number(roles: Logins) -> None:
    operator = roles.as_("operator")
    assert await fetch(
        operator, "insert into acklast.audit (actor, action) values ('anna', 'x') returning id"
    )
    await refused(
        operator,
        "insert into acklast.audit (action, at) values ('x', now())",
        "insert into acklast.audit (action, id) overriding system value values ('x', 1)",
        "update acklast.audit set actor = 'other'",
        "delete from acklast.audit",
    )


@pytest.mark.parametrize("said", ['{"role": "boss"}', "[]", "1", "null"])
async def test_an_entry_of_the_audit_has_the_login_that_it_was(roles: Logins, said: str) -> None:
    """Also where no command put it down; whatever that was, it can be listed."""
    await fetch(
        roles.as_("operator"),
        "insert into acklast.audit (actor, action, detail) values ('boss', 'forged', $1)",
        said,
    )
    operations = await Operations.connect(Address.of(roles.as_("reader")))
    [entry, *_] = await entries(operations, Asked(action="forged"), 1)
    operations.close()
    assert (entry.operator, entry.role) == ("boss", f"{roles.prefix}_login_operator")


async def test_a_letter_is_known_by_its_size_alone(roles: Logins) -> None:
    await executed(
        roles.owner,
        "insert into acklast.dead_letters (lane, reason, failure, payload, first_failure_at, last_failure_at,"
        " worker, version) values ('l', 'r', 'f', 'secret', now(), now(), 'w', '1')",
    )
    [row] = await fetch(
        roles.as_("reader"),
        "select acklast.letter_bytes(id) as bytes from acklast.dead_letters where lane = 'l'",
    )
    assert row["bytes"] == 6
    await refused(
        roles.as_("reader"),
        "select octet_length(payload) from acklast.dead_letters",
        "select sha256(payload) from acklast.dead_letters",
        "select from acklast.dead_letters where payload = 'secret'",
        "select d from acklast.dead_letters d",
        "copy acklast.dead_letters (payload) to stdout",
    )


# --- made and kept --------------------------------------------------------------------------------------


async def rights_in(dsn: str) -> list[Any]:
    """All that is granted in a database's ledger."""
    rows = await fetch(
        dsn,
        "select c.relname, c.relacl::text as acl, null as attname from pg_class c"
        " where c.relnamespace = 'acklast'::regnamespace"
        " union all select a.attrelid::regclass::text, a.attacl::text, a.attname from pg_attribute a"
        "   join pg_class c on c.oid = a.attrelid where c.relnamespace = 'acklast'::regnamespace"
        "   and a.attacl is not null"
        " union all select proname, proacl::text, null from pg_proc"
        " where pronamespace = 'acklast'::regnamespace"
        " union all select nspname, nspacl::text, null from pg_namespace where nspname = 'acklast'",
    )
    return sorted(map(str, map(tuple, rows)))


async def test_a_repeat_changes_nothing_and_takes_away_what_is_needed_no_more(roles: Logins) -> None:
    before = await rights_in(roles.owner)
    await executed(
        roles.owner,
        f"grant select on acklast.dead_letters to {roles.prefix}_reader",
        f"grant update (payload) on acklast.outbox to {roles.prefix}_reader",
        f"grant create on schema acklast to {roles.prefix}_daemon",
        f"grant delete on acklast.audit to {roles.prefix}_operator with grant option",
        f"grant execute on function acklast.letter_bytes to public, {roles.prefix}_publisher",
    )
    assert await rights_in(roles.owner) != before
    assert await migrate(roles.owner, roles.prefix) == []
    assert await rights_in(roles.owner) == before


async def test_many_at_once_in_two_ledgers_of_one_cluster(
    databases: Databases, migrated_template: str
) -> None:
    prefix = f"t{token_hex(5)}"
    two = [await asyncio.to_thread(databases.create, migrated_template) for _ in range(2)]
    try:
        await asyncio.gather(*(migrate(dsn, prefix) for dsn in two * 3))
        first, second = [await rights_in(dsn) for dsn in two]
        assert first == second
        assert prefix in str(first)
        # What one ledger's owner takes away is not the other's to lose.
        await executed(two[0], *(f"drop owned by {role}" for role in roles_of(prefix).values()))
        assert prefix not in str(await rights_in(two[0]))
        assert await rights_in(two[1]) == second
    finally:
        for dsn in two:
            await asyncio.to_thread(databases.drop, dsn)
        await executed(databases.server, *(f"drop role {role}" for role in roles_of(prefix).values()))


async def test_a_migration_gives_the_roles_that_are_there_what_is_new(
    roles: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Migration(
        9000, "9000_next", "create function acklast.next() returns int language sql as 'select 1'"
    )
    monkeypatch.setattr(module, "shipped", lambda: [*shipped(), new])
    monkeypatch.setitem(FUNCTIONS, "next", FUNCTIONS["letter_bytes"])
    try:
        assert await migrate(roles.owner) == ["9000_next"]
        assert await fetch(roles.as_("reader"), "select acklast.next()")
        await refused(roles.as_("publisher"), "select acklast.next()")
    finally:
        await executed(
            roles.owner, "drop function acklast.next", "delete from acklast.migrations where number = 9000"
        )


async def test_roles_that_promised_jobs_before_still_do(databases: Databases, migrated_template: str) -> None:
    dsn, app = await asyncio.to_thread(databases.create, migrated_template), f"t{token_hex(5)}_daemon"
    await executed(dsn, f"create role {app}", f"grant usage on schema acklast to {app}")
    promise = f"set role {app}; select acklast.enqueue('cleanup', 'k', '{{}}')"
    with logins(databases, dsn):
        await executed(dsn, promise)
    await asyncio.to_thread(databases.drop, dsn)
    await executed(databases.server, f"drop role {app}")


async def test_who_may_not_make_roles_is_told_what_to_have_run(databases: Databases) -> None:
    prefix, owner = f"t{token_hex(5)}", f"t{token_hex(5)}_owner"
    dsn = await asyncio.to_thread(databases.create)
    await executed(
        dsn,
        f"create role {owner} login password 'secret'",
        f"grant create on database {dsn.rpartition('/')[2]} to {owner}",
    )
    theirs = re.sub("//.*@", f"//{owner}:secret@", dsn)
    try:
        with pytest.raises(SchemaError, match="may not make roles") as told:
            await migrate(theirs, prefix)
        assert not await fetch(dsn, "select from pg_namespace where nspname = 'acklast'"), "nothing is done"
        advice = re.search("CREATE ROLE.*;", told.value.remedy)
        assert advice is not None
        await executed(dsn, advice[0])
        assert await migrate(theirs, prefix) == [one.name for one in shipped()]
        assert prefix in str(await rights_in(dsn))
    finally:
        await asyncio.to_thread(databases.drop, dsn)
        await executed(databases.server, *(f"drop role {one}" for one in (owner, *roles_of(prefix).values())))
