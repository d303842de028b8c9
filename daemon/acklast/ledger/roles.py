"""Roles in Postgres with the least rights: for daemons, for operators, for people who only look, and for
applications that promise jobs.

They are groups without a login, to be granted to those who log in. Roles belong to a whole cluster of
databases: of two ledgers in one cluster each grants what is in its own, and both may name the same roles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from acklast.errors import SchemaError
from acklast.ledger.connect import Connection
from acklast.ledger.rights import FUNCTIONS, NAMES, TABLES, Rights

PREFIX: Final = "acklast"
_NONE: Final = Rights()
_PREFIX: Final = re.compile(r"(?!pg_)[a-z][a-z0-9_]{0,39}\Z")


class BadPrefix(SchemaError):  # noqa: N818 - named for what is true, not for being an error
    def __init__(self, prefix: str) -> None:
        super().__init__(
            f"{prefix!r} is no prefix for roles",
            "Use 1 to 40 of a-z, 0-9 and '_', beginning with a letter, not pg_",
        )


def roles_of(prefix: str) -> dict[str, str]:
    """The roles' full names, by what they are for.

    Raises:
        BadPrefix: it is none.
    """
    if _PREFIX.match(prefix) is None:
        raise BadPrefix(prefix)
    return {name: f"{prefix}_{name}" for name in NAMES}


_MISSING: Final = """
select n.name from unnest($1::text[]) with ordinality as n (name, place)
where not exists (select from pg_roles r where r.rolname = n.name) order by n.place
"""
_MAY_CREATE: Final = "select rolcreaterole or rolsuper from pg_roles where rolname = current_user"

# Another ledger's command may make the same role at this moment: no lock of one database is seen in another.
_CREATE: Final = """
do $$ begin
    create role {role} nologin;
exception when duplicate_object or unique_violation then null;
end $$
"""


def create_sql(roles: Sequence[str]) -> str:
    """What somebody who may is to run."""
    return " ".join(f"CREATE ROLE {role} NOLOGIN;" for role in roles)


def grants(roles: Mapping[str, str], functions: Mapping[str, str], others: Sequence[str]) -> Iterator[str]:
    """The statements that give each role its rights, after all that it had was taken away.

    ``functions`` are all of the schema, with their names as the server writes them. ``others`` may use the
    schema as well: to promise jobs they have needed no more than that, and need no more after this.
    """
    for signature in functions:
        yield f"revoke all on function {signature} from public"
    for name, role in roles.items():
        for kind in ("tables", "sequences", "functions"):
            yield f"revoke all on all {kind} in schema acklast from {role}"
        yield f"revoke all on schema acklast from {role}"
        yield f"grant usage on schema acklast to {role}"
        for table, rights in TABLES.items():
            if words := getattr(rights, name):
                yield f"grant {words} on acklast.{table} to {role}"
        for signature, function in functions.items():
            if words := getattr(FUNCTIONS.get(function, _NONE), name):
                yield f"grant {words} on function {signature} to {role}"
    for signature, function in functions.items():
        if others and FUNCTIONS.get(function, _NONE).publisher:
            yield f"grant execute on function {signature} to {', '.join(others)}"


async def make(connection: Connection, prefix: str) -> None:
    """Make the roles that the cluster does not have.

    Raises:
        BadPrefix: no roles can be named so.
        SchemaError: this user may not make roles; says what an administrator is to run.
    """
    roles = list(roles_of(prefix).values())
    missing = [row["name"] for row in await connection.fetch(_MISSING, roles)]
    if missing and not await connection.fetchval(_MAY_CREATE):
        raise SchemaError(
            f"this user may not make roles, and the cluster has no {', '.join(missing)}",
            f"Have an administrator run: {create_sql(missing)} Then run this again",
        )
    for role in missing:
        await connection.execute(_CREATE.format(role=role))


async def grant(connection: Connection, prefix: str) -> None:
    """Give each role what it needs in this database, and no more.

    One commit: whoever is at work under a role is never without a right that it keeps. Not to be called
    twice at once for one database (``migrate`` sees to it); other databases do not matter.

    Raises:
        asyncpg.InsufficientPrivilegeError: the tables are not this user's.
    """
    ours = [role for one in {prefix, *await granted(connection)} for role in roles_of(one).values()]
    async with connection.transaction():
        functions = {row["signature"]: row["name"] for row in await connection.fetch(_FUNCTIONS)}
        others = [row["role"] for row in await connection.fetch(_OTHERS, ours)]
        for statement in grants(roles_of(prefix), functions, others):
            await connection.execute(statement)


_FUNCTIONS: Final = """
select p.oid::regprocedure::text as signature, p.proname as name
from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'acklast' order by signature
"""
_OTHERS: Final = """
select case a.grantee when 0 then 'public' else quote_ident(r.rolname) end as role
from pg_namespace n cross join aclexplode(n.nspacl) a left join pg_roles r on r.oid = a.grantee
where n.nspname = 'acklast' and a.privilege_type = 'USAGE' and a.grantee <> n.nspowner
  and coalesce(r.rolname, '') <> all($1::text[])
order by role
"""
# All of them: one alone that is named so is somebody's own.
_GRANTED: Final = """
select substring(r.rolname from '^(.+)_[a-z]+$') as prefix
from pg_namespace n cross join aclexplode(n.nspacl) a join pg_roles r on r.oid = a.grantee
where n.nspname = 'acklast' and a.privilege_type = 'USAGE'
  and substring(r.rolname from '_([a-z]+)$') = any($1::text[])
group by prefix having count(distinct r.oid) = cardinality($1::text[]) order by prefix
"""


async def granted(connection: Connection) -> list[str]:
    """The prefixes of the roles that have rights in this database."""
    found = [row["prefix"] for row in await connection.fetch(_GRANTED, list(NAMES))]
    return [prefix for prefix in found if _PREFIX.match(prefix)]
