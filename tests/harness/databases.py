"""A database for each test, cloned from one that the migrations have been through."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

T = TypeVar("T")
Migrate = Callable[[str], Coroutine[Any, Any, object]]


class Databases:
    """Makes and drops databases from a thread of its own, so that any test, async or not, can ask."""

    def __init__(self, dsn: str, prefix: str) -> None:
        self.server = dsn
        self._prefix = prefix
        self._count = 0
        self._made: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="databases", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(self._made):
            self.run(self._execute(f'ALTER DATABASE "{name}" IS_TEMPLATE false'))
            self.drop(self.dsn(name))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def template(self, migrate: Migrate) -> str:
        """A migrated database that others are cloned from; its name."""
        name = f"{self._prefix}_template"
        self.run(self._execute(f'CREATE DATABASE "{name}"'))
        self._made.append(name)
        self.run(migrate(self.dsn(name)))
        self.run(self._seal(name))
        return name

    def create(self, template: str | None = None) -> str:
        """A new database, empty or a clone of ``template``; its address."""
        self._count += 1
        name = f"{self._prefix}_{self._count}"
        clone = f' TEMPLATE "{template}"' if template else ""
        self.run(self._execute(f'CREATE DATABASE "{name}"{clone}'))
        return self.dsn(name)

    def drop(self, dsn: str) -> None:
        """Drop a database, whoever is still connected to it."""
        name = urlsplit(dsn).path.lstrip("/")
        self.run(self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))

    def dsn(self, name: str) -> str:
        return urlunsplit(urlsplit(self.server)._replace(path=f"/{name}"))

    async def _seal(self, name: str) -> None:
        # A database that anybody is connected to cannot be cloned.
        await self._execute(f'ALTER DATABASE "{name}" IS_TEMPLATE true ALLOW_CONNECTIONS false')
        await self._execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.server)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have something done there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)
