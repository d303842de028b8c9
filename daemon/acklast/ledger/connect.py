"""Connections to Postgres: where they go, what they insist on, and what their failures mean.

A ``Link`` is one connection kept for one purpose and reopened when it was lost. Flushes and lease renewals
each have their own: neither may wait behind a handler's transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import asyncpg

from acklast import __version__
from acklast.errors import ConfigError, LedgerUnavailable

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Rows: TypeAlias = "list[asyncpg.Record]"

CONNECT_TIMEOUT_S: Final = 5.0
CLOSE_S: Final = 1.0
COMMAND_TIMEOUT_S: Final = 15.0
"""How long to wait for one answer: longer than the server's own limits, for a network that swallows."""

_SETTINGS: Final = {
    "application_name": f"acklast/{__version__}"[:63],
    # The guarded statements are written for it; a stricter default would fail them at random.
    "default_transaction_isolation": "read committed",
    "lock_timeout": "5s",
    "statement_timeout": "10s",
}
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_UNAVAILABLE_CLASSES: Final = ("08", "40", "53", "57", "58")
"""SQLSTATE classes after which it may well succeed: connection, rollback, resources, operator, system."""
_UNAVAILABLE_STATES: Final = ("55P03", "25006")
"""A lock that nobody let go in time; a server that has become read-only (a demoted primary)."""
_REFUSED: Final = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)
_DSN_REMEDY: Final = "Check the ledger's DSN (host, port, user, password, database)"
_REMEDY: Final = "Check that Postgres runs and can be reached; daemons try again by themselves"


class Unsent(LedgerUnavailable):
    """No server could be connected to: the statement was certainly not done."""


class Busy(LedgerUnavailable):
    """Another transaction did not let go of a row in time: nothing was done, and the connection is fine."""


Dsn: TypeAlias = str | Sequence[str] | Callable[[], str]
"""One DSN, several, or what says the DSN of the moment."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the ledger is: one DSN or several, tried in order, and how careful to be about the server.

    They are asked for before each connection: the password may have changed since the last one.
    """

    dsns: Callable[[], Sequence[str]]
    allow_unsafe_server: bool = False
    preferred: list[int] = field(default_factory=lambda: [0])
    """The number of the host that took the last connection."""

    @classmethod
    def of(cls, dsn: Dsn, *, allow_unsafe_server: bool = False) -> Address:
        if callable(dsn):
            current = dsn
            return cls(lambda: (current(),), allow_unsafe_server)
        dsns = (dsn,) if isinstance(dsn, str) else tuple(dsn)
        if not dsns:
            raise ConfigError("no ledger DSN is given", "Set ledger.dsn")
        return cls(lambda: dsns, allow_unsafe_server)

    async def open(
        self,
        settings: Mapping[str, str] = _NO_SETTINGS,
        *,
        timeout_s: float | None = COMMAND_TIMEOUT_S,
    ) -> Connection:
        """A new connection to the first server that answers and may be written to.

        Raises:
            ConfigError: the server refuses this user or database, or would not keep a commit.
            LedgerUnavailable: no server answers.
        """
        failure: LedgerUnavailable | None = None
        for number, dsn in self._in_order():
            try:
                connection = await _open(dsn, _SETTINGS | dict(settings), timeout_s, self.allow_unsafe_server)
            except LedgerUnavailable as error:
                failure = error
            else:
                self.preferred[0] = number
                return connection
        assert failure is not None, "there is at least one DSN"
        raise Unsent(failure.what, failure.remedy) from failure

    def _in_order(self) -> list[tuple[int, str]]:
        """Every host, the one first that took the last connection.

        Each one gets the whole time for its answer: one that swallows everything would else use up that of
        the others, and after a failover nothing could be connected to any more.
        """
        hosts = list(enumerate(host for dsn in self.dsns() for host in each_host(dsn)))
        first = self.preferred[0] % len(hosts) if hosts else 0
        return hosts[first:] + hosts[:first]


def each_host(dsn: str) -> list[str]:
    """One DSN for each host that a DSN names in its authority (``//user@one:5432,two:5432/database``)."""
    scheme, slashes, rest = dsn.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    if "," not in hosts:
        return [dsn]
    return [f"{scheme}{slashes}{login}{at}{host}{slash}{path}" for host in hosts.split(",")]


async def _open(
    dsn: str, settings: dict[str, str], timeout_s: float | None, allow_unsafe_server: bool
) -> Connection:
    try:
        with unavailable_as_error():
            connection = await asyncpg.connect(
                dsn,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=timeout_s,
                server_settings=settings,
                # A standby after a failover answers, but can keep nothing.
                target_session_attrs=asyncpg.connect_utils.SessionAttribute.primary,
            )
    except _REFUSED as error:
        raise ConfigError(f"the ledger refuses the connection: {error}", _DSN_REMEDY) from error
    except ValueError:
        # What it says may contain a part of the password.
        raise ConfigError("the ledger's DSN cannot be read", _DSN_REMEDY) from None
    try:
        if not allow_unsafe_server:
            await _insist_on_durability(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


# Both as this very session has them: synchronous_commit can be set per role and per database.
_DURABILITY = """
select name, setting from pg_settings
where name in ('fsync', 'synchronous_commit') and setting = 'off'
order by name
"""


async def _insist_on_durability(connection: Connection) -> None:
    with unavailable_as_error():
        unsafe = [row["name"] for row in await connection.fetch(_DURABILITY)]
    if unsafe:
        settings = ", ".join(f"{name}=off" for name in unsafe)
        raise ConfigError(
            f"the ledger's server would lose commits in a crash ({settings})",
            "Set it to on for this server, database and role, or allow an unsafe server in the configuration"
            " where losing jobs does not matter",
        )


def is_unavailable(error: BaseException) -> bool:
    """Whether ``error`` says that Postgres could not be reached or could not answer now."""
    if isinstance(error, asyncpg.PostgresError):
        state = str(error.sqlstate or "")
        return state[:2] in _UNAVAILABLE_CLASSES or state in _UNAVAILABLE_STATES
    if isinstance(error, asyncpg.InterfaceError):
        # This class says that a connection is closed, and also (as a ValueError) that an argument is wrong.
        return not isinstance(error, ValueError) and "closed" in str(error)
    return isinstance(error, (OSError, TimeoutError, asyncpg.InternalClientError))


@contextmanager
def unavailable_as_error() -> Iterator[None]:
    """Raise ``LedgerUnavailable`` in place of every error that means it; let the others through."""
    try:
        yield
    except Exception as error:
        if not is_unavailable(error):
            raise
        raise unavailable(error) from error


def unavailable(error: BaseException) -> LedgerUnavailable:
    """``error`` in the words of the ledger's callers."""
    what = str(error) or type(error).__name__
    kind = Busy if isinstance(error, asyncpg.LockNotAvailableError) else LedgerUnavailable
    return kind(f"the ledger does not answer: {what}", _REMEDY)


class Link:
    """One connection for one purpose, one statement at a time."""

    def __init__(
        self,
        address: Address,
        settings: Mapping[str, str] = _NO_SETTINGS,
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
    ) -> None:
        self._address = address
        self._settings = settings
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None

    async def fetch(self, sql: str, *args: Any) -> Rows:
        """Run one statement.

        Raises:
            LedgerUnavailable: it may or may not have been done (``Unsent``: it was not).
            asyncpg.PostgresError, ValueError: it was refused; nothing was done.
        """
        return await self._use(lambda connection: connection.fetch(sql, *args))

    async def _use(self, work: Callable[[Connection], Awaitable[Rows]]) -> Rows:
        async with self._lock:
            connection = await self._ready()
            try:
                with unavailable_as_error():
                    return await work(connection)
            except Busy:
                raise
            except (LedgerUnavailable, asyncio.CancelledError):
                # Whatever state it is in, nobody else should find out.
                self._drop()
                raise

    async def _ready(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = None
            try:
                connection = await self._address.open(self._settings, timeout_s=self._timeout_s)
            except ConfigError as error:
                # It was fit when the program started: to its callers this is an outage like any other.
                raise Unsent(error.what, error.remedy) from error
            try:
                with unavailable_as_error():
                    await self._greet(connection)
            except BaseException:
                connection.terminate()
                raise
            self._connection = connection
        return self._connection

    async def _greet(self, connection: Connection) -> None:
        """What a new connection is told first."""

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(Exception):
                    await connection.close(timeout=CLOSE_S)
