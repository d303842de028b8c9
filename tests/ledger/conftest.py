"""The ledgers under test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from acklast.ledger.api import Ledger, Session
from harness import Databases
from harness.controls import Ear
from ledger.worlds import MemoryWorld, PostgresWorld, World, start


@pytest.fixture(scope="session")
def common_dsn(databases: Databases, migrated_template: str) -> Iterator[str]:
    """One database for all tests here: emptying it is twenty times as fast as cloning another."""
    dsn = databases.create(migrated_template)
    yield dsn
    databases.drop(dsn)


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.ledger)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Every store in turn: what holds of one holds of the other."""
    made: World
    if request.param == "memory":
        made = MemoryWorld()
    else:
        made = await PostgresWorld.at(request.getfixturevalue("common_dsn"))
    yield made
    await made.close()


@pytest.fixture
async def ear(common_dsn: str) -> AsyncIterator[Ear]:
    made = Ear(common_dsn)
    yield made
    await made.wire.close()


@pytest.fixture
async def postgres(common_dsn: str) -> AsyncIterator[PostgresWorld]:
    """For what is true of Postgres alone."""
    made = await PostgresWorld.at(common_dsn)
    yield made
    await made.close()


@pytest.fixture
async def unseen_postgres(databases: Databases, migrated_template: str) -> AsyncIterator[PostgresWorld]:
    """A database of its own: one that was emptied keeps its statistics, and the planner believes them."""
    dsn = databases.create(migrated_template)
    made = await PostgresWorld.at(dsn)
    yield made
    await made.close()
    databases.drop(dsn)


@pytest.fixture
def ledger(world: World) -> Ledger:
    return world.ledger


@pytest.fixture
async def session(ledger: Ledger) -> Session:
    return await start(ledger)
