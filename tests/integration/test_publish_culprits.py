"""A message that the broker closes the channel over is told apart from those that were under way with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

import asyncpg
import pytest
from aio_pika.abc import AbstractConnection

from acklast.ledger.connect import Address
from acklast.ledger.outbox import Outbox
from acklast.relay import Relay, publisher_of
from acklast.telemetry.events import Emitter
from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from acklast_topology.publish import Job, Publisher, Status
from harness import Broker

NAMES = Names()
MOST = 32 * 2**20
"""Bytes of a body that the private broker takes."""


@dataclass(frozen=True, slots=True)
class Place:
    """The lanes ``a`` and ``b`` and a connection to look at them."""

    broker: Broker
    connection: AbstractConnection


@pytest.fixture
async def place(broker: Broker) -> AsyncIterator[Place]:
    if broker.node is None:
        pytest.skip("the broker is given: how large a message it takes is not ours to know")
    connection = await broker.connect()
    assert all(finding.fit for finding in await apply(connection, plan_for(NAMES, ["a", "b"])))
    yield Place(broker, connection)
    await connection.close()


def small(lane: str, number: int) -> list[Job]:
    return [Job.json(lane, f"{lane}-{n}", {"n": n}) for n in range(number)]


def large(key: str) -> Job:
    return Job("a", key, bytes(MOST + 1), content_type="application/octet-stream")


async def fates(publisher: Publisher, jobs: list[Job]) -> Counter[tuple[str, Status]]:
    """How many jobs of each first letter had which status."""
    found: Counter[tuple[str, Status]] = Counter()
    async for result in publisher.publish_many(jobs):
        found[result.job.key[0], result.status] += 1
    return found


async def test_a_message_that_is_too_large_is_refused_and_the_others_go(place: Place) -> None:
    jobs = [*small("a", 20), large("large"), *small("b", 20)]
    async with Publisher.connect(place.broker.url, retries=1) as publisher:
        assert await fates(publisher, jobs) == {
            ("a", Status.CONFIRMED): 20,
            ("l", Status.REFUSED): 1,
            ("b", Status.CONFIRMED): 20,
        }
        # From now on it is known, and ends no channel.
        again = await publisher.publish(large("larger"))
        assert again.status is Status.REFUSED
        assert f"the broker takes {MOST}" in again.detail


async def test_one_alone_that_is_too_large_is_refused(place: Place) -> None:
    async with Publisher.connect(place.broker.url) as publisher:
        result = await publisher.publish(large("large"))
        assert (result.status, "larger than" in result.detail) == (Status.REFUSED, True)
        assert (await publisher.publish(*small("a", 1))).status is Status.CONFIRMED


async def test_a_lane_that_the_user_may_not_publish_to_keeps_no_other_back(place: Place) -> None:
    parts = urlsplit(place.broker.url)
    path = f"topic-permissions/{quote(place.broker.vhost, safe='')}/{parts.username}"
    rights = {"exchange": NAMES.ingress, "write": "^a", "read": ".*"}
    place.broker.management.call("PUT", path, rights)
    async with Publisher.connect(place.broker.url, retries=1) as publisher:
        assert await fates(publisher, [*small("a", 20), *small("b", 3), *small("a", 20)]) == {
            ("a", Status.CONFIRMED): 40,
            ("b", Status.REFUSED): 3,
        }


async def test_a_promise_that_is_too_large_keeps_no_other_back(place: Place, ledger_dsn: str) -> None:
    config: Any = SimpleNamespace(names=NAMES, broker=SimpleNamespace(publish_timeout_s=10.0))
    sql = await asyncpg.connect(ledger_dsn)
    await sql.execute("select acklast.enqueue('a', 'a-' || n, '{}') from generate_series(1, 20) n")
    await sql.execute("select acklast.enqueue_raw('a', 'large', $1, 'text/plain')", bytes(MOST + 1))
    await sql.execute("select acklast.enqueue('b', 'b-' || n, '{}') from generate_series(1, 20) n")
    relay = Relay(
        Outbox(Address.of(ledger_dsn)),
        publisher_of(config, lambda: [place.broker.url]),
        Emitter(),
        "test:1",
        poll_s=0.05,
    )
    async with publisher_of(config, lambda: [place.broker.url])() as publisher:
        # As much as one round may hold: what came before it, then the large one alone, then the rest.
        assert [await relay.once(publisher) for _ in range(3)] == [20, 1, 20]
    [left] = await sql.fetch("select key, tries, error from acklast.outbox")
    assert (left["key"], left["tries"]) == ("large", 1)
    assert "larger than" in left["error"]
    await relay.close()
    await sql.close()
