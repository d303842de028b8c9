"""The plan on a real broker: declared, verified, and routing as planned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

from acklast_topology import Names, RawMessage, Sender, Status, plan_for
from acklast_topology.carrier import carrier_properties
from acklast_topology.declare import apply
from acklast_topology.finding import Finding, Found
from acklast_topology.names import fair_key, wait_key, work_key
from acklast_topology.verify import left_behind, verify
from harness import Broker, eventually

NAMES = Names()
PLAN = plan_for(NAMES, ["a"], (1, 5))
OBJECTS = sorted([exchange.name for exchange in PLAN.exchanges] + [queue.name for queue in PLAN.queues])


@pytest.fixture
async def connection(broker: Broker) -> AsyncIterator[AbstractConnection]:
    async with await broker.connect() as connection:
        yield connection


@pytest.fixture
async def channel(connection: AbstractConnection) -> AsyncIterator[AbstractChannel]:
    async with connection.channel() as channel:
        yield channel


def by_status(found: list[Finding]) -> dict[Found, list[str]]:
    grouped: dict[Found, list[str]] = {}
    for finding in found:
        grouped.setdefault(finding.status, []).append(finding.name)
    return grouped


async def taken(channel: AbstractChannel, queue: str) -> AbstractIncomingMessage:
    """The next message of a queue, waited for."""
    source = await channel.get_queue(queue, ensure=False)
    message = await eventually(lambda: source.get(fail=False, no_ack=True), what=f"a message in {queue}")
    assert message is not None
    return message


async def test_apply_makes_everything_and_again_changes_nothing(connection: AbstractConnection) -> None:
    first, second = await apply(connection, PLAN), await apply(connection, PLAN)
    assert all(finding.fit for finding in first + second)
    assert sorted(by_status(first)[Found.CREATED]) == OBJECTS
    assert set(by_status(second)) == {Found.PRESENT}
    assert len(second) == len(OBJECTS) + len(PLAN.bindings)


async def test_what_is_on_the_broker_is_the_plan(broker: Broker, connection: AbstractConnection) -> None:
    await apply(connection, PLAN)
    vhost = quote(broker.vhost, safe="")
    queues = {q["name"]: q for q in broker.management.call("GET", f"queues/{vhost}")}
    assert {name: q["arguments"] for name, q in queues.items()} == {q.name: q.arguments for q in PLAN.queues}
    assert all(q["durable"] for q in queues.values())
    bindings = {
        (b["source"], b["destination"], b["routing_key"])
        for b in broker.management.call("GET", f"bindings/{vhost}")
        if b["source"]
    }
    assert bindings == {(b.source, b.queue, b.key) for b in PLAN.bindings}


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"x-delivery-limit": 20}, "x-delivery-limit"),
        ({"x-dead-letter-routing-key": "b.dead"}, "x-dead-letter-routing-key"),
        ({"x-overflow": "drop-head", "x-dead-letter-strategy": "at-most-once"}, "x-dead-letter-strategy"),
        ({"x-message-ttl": 5000}, "x-message-ttl"),
    ],
)
async def test_an_argument_that_differs_is_named(
    connection: AbstractConnection, channel: AbstractChannel, arguments: dict[str, Any], argument: str
) -> None:
    work = NAMES.work("a")
    planned = next(queue for queue in PLAN.queues if queue.name == work)
    await channel.declare_queue(work, durable=True, arguments={**planned.arguments, **arguments})
    found = await apply(connection, PLAN)
    (different,) = [f for f in found if f.status is Found.DIFFERS]
    assert (different.kind, different.name, different.fit) == ("queue", work, False)
    assert argument in different.detail
    assert work in different.remedy
    # What is not ours is not bound to, and the rest of the plan is made all the same.
    assert len(by_status(found)[Found.MISSING]) == sum(b.queue == work for b in PLAN.bindings)
    assert NAMES.dead("a") in by_status(found)[Found.CREATED]


async def test_a_classic_queue_and_another_exchange_type_differ(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    await channel.declare_queue(NAMES.dead("a"), durable=True)
    await channel.declare_exchange(NAMES.route, "topic", durable=True)
    assert set(by_status(await apply(connection, PLAN))[Found.DIFFERS]) == {NAMES.dead("a"), NAMES.route}


async def test_a_queue_of_another_connection_is_refused(
    broker: Broker, connection: AbstractConnection
) -> None:
    async with await broker.connect() as other, other.channel() as channel:
        await channel.declare_queue(NAMES.dead("a"), exclusive=True)
        (refused,) = [f for f in await apply(connection, PLAN) if f.status is Found.REFUSED]
    assert refused.name == NAMES.dead("a")
    assert "another connection has queue" in refused.detail


@pytest.fixture
def limited_url(broker: Broker) -> Any:
    """A user that may read and write everything and configure nothing."""
    user, vhost = f"limited-{broker.vhost}", quote(broker.vhost, safe="")
    broker.management.call("PUT", f"users/{user}", {"password": "secret", "tags": ""})
    may = {"configure": "^$", "write": ".*", "read": ".*"}
    broker.management.call("PUT", f"permissions/{vhost}/{user}", may)
    parts = urlsplit(broker.url)
    yield urlunsplit(parts._replace(netloc=f"{user}:secret@{parts.hostname}:{parts.port}"))
    broker.management.call("DELETE", f"users/{user}")


async def test_without_permission_to_configure(connection: AbstractConnection, limited_url: str) -> None:
    async with await aio_pika.connect(limited_url) as limited:
        before = by_status(await verify(limited, PLAN))
        assert sorted(before[Found.MISSING]) == OBJECTS

        refused = await apply(limited, PLAN)
        assert all(f.status is Found.REFUSED for f in refused if f.kind != "binding")
        assert all(f.remedy for f in refused)

        await apply(connection, PLAN)
        after = await verify(limited, PLAN)
    assert all(finding.fit for finding in after)


async def test_verify_changes_nothing(broker: Broker, connection: AbstractConnection) -> None:
    await verify(connection, PLAN)
    assert broker.management.call("GET", f"queues/{quote(broker.vhost, safe='')}") == []


async def test_a_connection_that_is_closed_is_an_error(broker: Broker) -> None:
    connection = await broker.connect()
    await connection.close()
    for look in (apply, verify):
        with pytest.raises(ConnectionError):
            await look(connection, PLAN)


@pytest.mark.parametrize("routing_key", ["a", "a.north", "a.north.7"])
async def test_ingress_reaches_the_lane(
    connection: AbstractConnection, channel: AbstractChannel, routing_key: str
) -> None:
    await apply(connection, PLAN)
    await send(connection, NAMES.ingress, routing_key)
    assert (await taken(channel, NAMES.work("a"))).routing_key == routing_key


@pytest.mark.parametrize("routing_key", ["b", "aa", "a-b.c", ""])
async def test_an_unknown_lane_is_kept(
    connection: AbstractConnection, channel: AbstractChannel, routing_key: str
) -> None:
    await apply(connection, PLAN)
    await send(connection, NAMES.ingress, routing_key)
    message = await taken(channel, NAMES.unrouted)
    assert (message.routing_key, message.headers["job-key"]) == (routing_key, "k")


async def test_a_wait_ends_in_the_work_queue(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    await apply(connection, PLAN)
    await send(connection, NAMES.route, wait_key("a", 1))
    message = await taken(channel, NAMES.work("a"))
    assert (message.routing_key, message.headers["job-key"]) == (work_key("a"), "k")
    assert message.headers["x-death"][0]["queue"] == NAMES.wait("a", 1)  # type: ignore[index, call-overload]


async def test_a_short_wait_is_not_held_back_by_a_long_one(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    await apply(connection, PLAN)
    await send(connection, NAMES.route, wait_key("a", 5))
    await send(connection, NAMES.route, wait_key("a", 1))
    message = await taken(channel, NAMES.work("a"))
    assert message.headers["x-death"][0]["queue"] == NAMES.wait("a", 1)  # type: ignore[index, call-overload]


async def test_a_second_wait_is_not_dropped_as_a_cycle(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    await apply(connection, PLAN)
    await send(connection, NAMES.route, wait_key("a", 1))
    for _ in range(2):
        message = await taken(channel, NAMES.work("a"))
        raw = RawMessage(message.body, headers=message.headers)
        assert "x-death" in raw.headers
        await send(connection, NAMES.route, wait_key("a", 1), raw)
    assert (await taken(channel, NAMES.work("a"))).body == b"body"


async def test_what_is_rejected_is_kept_in_the_dead_queue(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    await apply(connection, PLAN)
    await send(connection, NAMES.ingress, "a")
    work = await channel.get_queue(NAMES.work("a"), ensure=False)
    message = await work.get()
    await message.reject(requeue=False)
    assert (await taken(channel, NAMES.dead("a"))).headers["job-key"] == "k"


async def test_hostile_headers_survive_a_wait(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    await apply(connection, PLAN)
    headers = {
        "f": 0.1,
        "g": 1e300,
        "b": b"\xff",
        "a": bytearray(b"\xff"),
        "n" * 200: None,
        "t": {"l": [1, True]},
    }
    raw = RawMessage(b"body", headers=headers)
    await send(connection, NAMES.route, wait_key("a", 1), raw)
    message = await taken(channel, NAMES.work("a"))
    kept = {n: v for n, v in message.headers.items() if not n.startswith("x-")}
    assert kept == {**headers, "job-key": "k"}


async def send(
    connection: AbstractConnection, exchange: str, routing_key: str, raw: RawMessage | None = None
) -> None:
    sender = await Sender.open(connection)
    properties = carrier_properties(raw or RawMessage(b"body"), "k")
    sent = await sender.send(exchange, routing_key, b"body", properties)
    assert sent.status is Status.CONFIRMED, sent
    await sender.close()


async def test_what_is_left_of_a_lane_that_was_fair_is_told(
    connection: AbstractConnection,
) -> None:
    assert await left_behind(connection, NAMES, ["a"]) == []
    await apply(connection, plan_for(NAMES, ["a"], (1,), fair=["a"]))
    assert await left_behind(connection, NAMES, ["a"]) == []
    sender = await Sender.open(connection)
    properties = carrier_properties(RawMessage(b"{}"), "k-1")
    sent = await sender.send(NAMES.route, fair_key("a", 3), b"{}", properties)
    assert sent.status is Status.CONFIRMED

    async def told() -> list[Finding]:
        return await left_behind(connection, NAMES, ["a", "b"])

    (left,) = await eventually(told, what="the queue counts its message")
    assert (left.name, left.status, left.fit) == (NAMES.fair("a", 3), Found.LEFT, False)
    assert "[lanes.a]" in left.remedy
