"""The connections that are lent out: to handlers for their transactions, and to whoever reads accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from acklast.errors import ConfigError
from acklast.ledger.connect import Address, Connection, Unsent, unavailable, unavailable_as_error

Handle: TypeAlias = "Connection | PoolConnectionProxy[asyncpg.Record]"

CLOSE_S: Final = 2.0
COMMAND_TIMEOUT_S: Final = 75.0
_SETTINGS: Final = {"statement_timeout": "60s"}
"""What is done here may be long: a large run is counted, a handler does its work. But nothing is for ever."""


class Pool:
    """Opens connections as they are needed, and again after they were lost."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @classmethod
    async def make(cls, address: Address, size: int) -> Pool:
        async def connect(*_: Any, **__: Any) -> Connection:
            return await address.open(_SETTINGS, timeout_s=COMMAND_TIMEOUT_S)

        pool = asyncpg.create_pool(connect=connect, min_size=0, max_size=size)
        await pool  # with min_size 0 this connects to nothing
        return cls(pool)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Handle]:
        """A connection for somebody else's statements: their errors stay theirs, but for a lost connection.

        Waits as long as all are lent; the caller knows how long it wants to wait.

        Raises:
            LedgerUnavailable: no server answers, or the connection was lost meanwhile.
        """
        connection = await self._acquire()
        try:
            yield connection
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            if _is_closed(connection):
                raise unavailable(error) from error
            raise
        finally:
            with unavailable_as_error():
                await self._pool.release(connection)

    @asynccontextmanager
    async def ask(self) -> AsyncIterator[Handle]:
        """A connection for our own statements: whatever means that they could not be done now is one error.

        Raises:
            LedgerUnavailable: the statements may or may not have been done.
        """
        async with self.lend() as connection:
            with unavailable_as_error():
                yield connection

    async def _acquire(self) -> PoolConnectionProxy[asyncpg.Record]:
        try:
            with unavailable_as_error():
                return await self._pool.acquire()
        except ConfigError as error:
            # It was fit when the program started: to its callers this is an outage like any other.
            raise Unsent(error.what, error.remedy) from error

    async def close(self) -> None:
        """Wait a moment for what is lent, then cut it."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


def _is_closed(connection: PoolConnectionProxy[asyncpg.Record]) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has taken it back already, because it was lost
        return True
