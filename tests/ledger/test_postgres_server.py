"""Which servers are used, and what is said of those that are not."""

from __future__ import annotations

import asyncio
from traceback import format_exception
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from acklast import __version__
from acklast.errors import ConfigError, Exit, LedgerUnavailable
from acklast.ledger import connect
from acklast.ledger.connect import each_host
from acklast.ledger.postgres import PostgresLedger
from dev.postgres import Cluster
from ledger.worlds import PostgresWorld, start, started

DEAD = "postgresql://acklast:x@127.0.0.1:1/ledger"


def database(dsn: str) -> str:
    return urlsplit(dsn).path.lstrip("/")


async def test_a_server_that_acknowledges_before_it_keeps_is_refused(ledger_dsn: str) -> None:
    connection = await asyncpg.connect(ledger_dsn)
    await connection.execute(f'alter database "{database(ledger_dsn)}" set synchronous_commit = off')
    await connection.close()
    with pytest.raises(
        ConfigError, match=r"would lose commits.*synchronous_commit=off.*Set it to on"
    ) as caught:
        await PostgresLedger.connect(ledger_dsn)
    assert caught.value.exit is Exit.CONFIG
    allowed = await PostgresLedger.connect(ledger_dsn, allow_unsafe_server=True)
    await started(allowed, await start(allowed))
    await allowed.close()


async def test_a_server_that_keeps_nothing_in_a_crash_is_refused(
    ledger_dsn: str, ledger_cluster: Cluster
) -> None:
    ledger_cluster.sql("alter system set fsync = off")
    ledger_cluster.sql("select pg_reload_conf()")
    try:
        with pytest.raises(ConfigError, match=r"fsync=off"):
            await PostgresLedger.connect(ledger_dsn)
    finally:
        ledger_cluster.sql("alter system reset fsync")
        ledger_cluster.sql("select pg_reload_conf()")


async def test_a_database_that_is_not_there_is_a_matter_of_configuration(ledger_dsn: str) -> None:
    missing = urlunsplit(urlsplit(ledger_dsn)._replace(path="/no_such_database"))
    with pytest.raises(ConfigError, match=r"no_such_database.*Check the ledger's DSN"):
        await PostgresLedger.connect(missing)


@pytest.mark.parametrize("dsn", ["mysql://u:s3cret@x/y", "postgresql://u@db:s3cret/x"])
async def test_a_dsn_that_cannot_be_read_is_a_matter_of_configuration(dsn: str) -> None:
    with pytest.raises(ConfigError, match="DSN cannot be read") as caught:
        await PostgresLedger.connect(dsn)
    assert "s3cret" not in "".join(format_exception(caught.value))


async def test_no_dsn_is_a_matter_of_configuration() -> None:
    with pytest.raises(ConfigError, match="no ledger DSN"):
        await PostgresLedger.connect([])


async def test_nobody_answers() -> None:
    with pytest.raises(LedgerUnavailable) as caught:
        await PostgresLedger.connect([DEAD, DEAD])
    assert caught.value.exit is Exit.UNAVAILABLE


async def test_the_first_server_that_answers_is_used(common_dsn: str) -> None:
    ledger = await PostgresLedger.connect([DEAD, common_dsn])
    await start(ledger)
    assert await ledger.jobs("nothing") == []
    await ledger.close()


async def test_connections_say_whose_they_are_and_wait_for_nothing_for_ever(postgres: PostgresWorld) -> None:
    session = await start(postgres.ledger)
    fresh = await started(postgres.ledger, session)
    assert fresh
    names = await postgres.sql(
        "select distinct application_name from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    assert [row[0] for row in names] == [f"acklast/{__version__}"]
    async with postgres.ledger._pool.ask() as connection:
        for setting in ("statement_timeout", "lock_timeout"):
            value = await connection.fetchval("select current_setting($1)", setting)
            assert value not in ("0", None), setting


async def test_a_database_with_a_stricter_isolation_does_not_break_the_guards(ledger_dsn: str) -> None:
    connection = await asyncpg.connect(ledger_dsn)
    name = database(ledger_dsn)
    await connection.execute(f"alter database \"{name}\" set default_transaction_isolation = 'serializable'")
    await connection.close()
    ledger = await PostgresLedger.connect(ledger_dsn)
    async with ledger._pool.ask() as ours:
        assert await ours.fetchval("show transaction_isolation") == "read committed"
    await ledger.close()


@pytest.mark.parametrize(
    ("dsn", "hosts"),
    [
        ("postgresql://u:p@one/db", ["postgresql://u:p@one/db"]),
        (
            "postgresql://u:p,@one:1,two/db?x=1",
            ["postgresql://u:p,@one:1/db?x=1", "postgresql://u:p,@two/db?x=1"],
        ),
        ("postgres://one,[::1]:5/db", ["postgres://one/db", "postgres://[::1]:5/db"]),
        ("postgresql:///db?host=/run/postgresql", ["postgresql:///db?host=/run/postgresql"]),
    ],
)
def test_each_host_of_a_dsn_is_tried_by_itself(dsn: str, hosts: list[str]) -> None:
    assert each_host(dsn) == hosts


async def test_a_host_that_swallows_everything_leaves_the_next_one_its_time(
    ledger_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "CONNECT_TIMEOUT_S", 2.0)
    swallowed: list[asyncio.StreamWriter] = []
    deaf = await asyncio.start_server(lambda _, writer: swallowed.append(writer), "127.0.0.1", 0)
    port = deaf.sockets[0].getsockname()[1]
    login, _, host = urlsplit(ledger_dsn).netloc.rpartition("@")
    both = urlsplit(ledger_dsn)._replace(netloc=f"{login}@127.0.0.1:{port},{host}")
    address = connect.Address.of(urlunsplit(both))
    for _ in range(2):
        connection = await address.open()
        await connection.close()
    assert len(swallowed) == 1, "the one that answered is asked first the next time"
    for writer in swallowed:
        writer.close()
    deaf.close()
    await deaf.wait_closed()
