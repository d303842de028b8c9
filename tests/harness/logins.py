"""Logins with the roles that ``acklast ledger migrate --roles`` makes, in a database of the test's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from acklast.ledger.migrate import migrate
from acklast.ledger.roles import roles_of
from harness.databases import Databases


class Logins:
    """Made by ``logins``. Roles are of the whole cluster, which others may share: so their names are new."""

    def __init__(self, databases: Databases, dsn: str, prefix: str) -> None:
        self.prefix = prefix
        self.owner = dsn
        self._databases = databases

    def as_(self, role: str) -> str:
        """The address for a login with the rights of a role, or with those of none."""
        parts = urlsplit(self.owner)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{self.prefix}_login_{role}:secret@{host}"))

    def sql(self, *statements: str) -> None:
        """Run statements as the owner."""
        self._databases.run(executed(self.owner, *statements))


async def executed(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@contextmanager
def logins(databases: Databases, dsn: str) -> Iterator[Logins]:
    """The roles with their rights in a migrated database, and a login in each."""
    made = Logins(databases, dsn, f"t{token_hex(5)}")
    roles = roles_of(made.prefix) | {"nobody": ""}
    databases.run(migrate(dsn, made.prefix))
    for name, role in roles.items():
        login = f"{made.prefix}_login_{name}"
        made.sql(f"create role {login} login password 'secret' {f'in role {role}' if role else ''}")
    try:
        yield made
    finally:
        for name, role in roles.items():
            for one in filter(None, (role, f"{made.prefix}_login_{name}")):
                made.sql(f"drop owned by {one}", f"drop role {one}")
