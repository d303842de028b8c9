"""The audit is added to and never changed, and a page of it is found by whatever it is asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from acklast.ledger.audit import Asked, Entry, entries, put_down
from acklast.ledger.connect import Address
from acklast.ledger.operate import Operations, Operator
from ledger.worlds import PostgresWorld

ANNA, BORIS = Operator("day-shift", "anna@desk"), Operator("boris", "boris@desk")


@pytest.fixture
async def operations(postgres: PostgresWorld) -> AsyncIterator[Operations]:
    made = await Operations.connect(Address.of(postgres.dsn))
    yield made
    made.close()


@pytest.fixture
async def put(operations: Operations) -> None:
    async with operations.changing() as connection:
        await put_down(connection, ANNA, "dead.note", {"note": "1"}, lane="mail", key="k", run="r")
        await put_down(connection, ANNA, "dead.drop", {"letter": "5"}, lane="mail", key="k", reason="no use")
        await put_down(connection, BORIS, "prune", {})
        await put_down(connection, BORIS, "deadline", {}, run="r")


@pytest.mark.usefixtures("put")
@pytest.mark.parametrize(
    "statement",
    [
        "update acklast.audit set actor = 'somebody'",
        "delete from acklast.audit",
        "delete from acklast.audit where false",
        "truncate acklast.audit",
    ],
)
async def test_what_was_put_down_stays(
    operations: Operations, postgres: PostgresWorld, statement: str
) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="only ever added to"):
        await postgres.sql(statement)
    assert len(await entries(operations, Asked(), 10)) == 4


@pytest.mark.usefixtures("put")
async def test_an_entry_says_who_when_why_and_what(operations: Operations) -> None:
    [entry] = await entries(operations, Asked(action="dead.drop"), 10)
    assert (entry.operator, entry.login, entry.action) == ("day-shift", "anna@desk", "dead.drop")
    assert (entry.lane, entry.key, entry.run, entry.reason) == ("mail", "k", None, "no use")
    assert (entry.effect, bool(entry.role)) == ({"letter": "5"}, True)
    assert datetime.now(UTC) - entry.at < timedelta(minutes=5)


@pytest.mark.usefixtures("put")
@pytest.mark.parametrize(
    ("asked", "actions"),
    [
        (Asked(), ["deadline", "prune", "dead.drop", "dead.note"]),
        (Asked(action="dead"), ["dead.drop", "dead.note"]),
        (Asked(operator="boris"), ["deadline", "prune"]),
        (Asked(lane="mail"), ["dead.drop", "dead.note"]),
        (Asked(key="k", lane="mail", run="r"), ["dead.note"]),
        (Asked(run="r"), ["deadline", "dead.note"]),
        (Asked(action="dea"), []),
        (Asked(since=datetime.now(UTC) - timedelta(days=1)), ["deadline", "prune", "dead.drop", "dead.note"]),
        (Asked(since=datetime.now(UTC) + timedelta(days=1)), []),
        (Asked(until=datetime.now(UTC) - timedelta(days=1)), []),
    ],
    ids=["all", "kind", "operator", "lane", "key", "run", "half-a-word", "since", "to-come", "long-ago"],
)
@pytest.mark.parametrize("limit", [1, 10])
async def test_the_latest_come_first_page_by_page(
    operations: Operations, asked: Asked, actions: list[str], limit: int
) -> None:
    found: list[Entry] = []
    while some := await entries(operations, asked, limit, found[-1].id if found else None):
        found += some
    assert [entry.action for entry in found] == actions


_FILL = """
insert into acklast.audit (at, actor, action, lane, key, run)
select timestamptz '2026-01-01Z' + n * interval '1 minute', 'actor-' || n % 5, 'action.' || n % 20,
       'lane-' || n % 3, 'key-' || n, 'run-' || n % 100
from generate_series(1, 20000) n
"""


async def test_times_bound_what_is_read(postgres: PostgresWorld, operations: Operations) -> None:
    await postgres.sql(_FILL)
    await postgres.sql("analyze acklast.audit")
    at = datetime(2026, 1, 5, tzinfo=UTC)
    asked = Asked(since=at, until=at + timedelta(minutes=20))
    found = await entries(operations, asked, 1000)
    assert len(found) == 20
    assert all(at <= entry.at < at + timedelta(minutes=20) for entry in found)


async def test_no_effect_can_say_who_it_was(postgres: PostgresWorld) -> None:
    operations = await Operations.connect(Address.of(postgres.dsn))
    async with operations.changing() as connection:
        await put_down(connection, ANNA, "x", {"text": "a\0b", "login": "nobody"})
    [entry] = await entries(operations, Asked(), 1)
    operations.close()
    # The login is the command's own, whatever the effect says.
    assert (entry.login, json.dumps(entry.effect)) == ("anna@desk", '{"text": "a\\ufffdb"}')
