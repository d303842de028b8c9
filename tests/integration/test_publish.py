"""A publisher against a real broker: what it says of each job is what became of it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq import spec
from pamqp.common import FieldTable

from acklast_topology import (
    BrokerUnreachable,
    Job,
    Names,
    Publisher,
    Result,
    Sender,
    Status,
    TopologyMissing,
    plan_for,
)
from acklast_topology.declare import apply
from harness import Broker, eventually
from harness.messages import good, over_the_wire
from harness.proxy import Proxy

NAMES = Names()
WORK = NAMES.work("a")
LANE_FULL = "full"


@pytest.fixture
async def connection(broker: Broker) -> AsyncIterator[AbstractConnection]:
    async with await broker.connect() as connection:
        await apply(connection, plan_for(NAMES, ["a"], (1,)))
        yield connection


@pytest.fixture
async def channel(connection: AbstractConnection) -> AsyncIterator[AbstractChannel]:
    async with connection.channel() as channel:
        yield channel


@pytest.fixture
async def proxy(broker: Broker, connection: AbstractConnection) -> AsyncIterator[Proxy]:
    async with Proxy(broker.url) as proxy:
        yield proxy


@pytest.fixture
async def full(channel: AbstractChannel) -> str:
    """A queue that takes nothing, bound as if it were a lane's."""
    arguments: FieldTable = {"x-max-length": 0, "x-overflow": "reject-publish"}
    queue = await channel.declare_queue("full", durable=True, arguments=arguments)
    await queue.bind(NAMES.ingress, LANE_FULL)
    return LANE_FULL


def job(key: str = "k", lane: str = "a") -> Job:
    return Job.json(lane, key, {"n": 1}, type="t.v1")


async def depth(channel: AbstractChannel, queue: str = WORK) -> int:
    return (await channel.declare_queue(queue, passive=True)).declaration_result.message_count or 0


def closed_port_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"amqp://guest:guest-password@127.0.0.1:{free.getsockname()[1]}/"


async def test_confirmed(broker: Broker, channel: AbstractChannel) -> None:
    async with Publisher.connect(broker.url) as publisher:
        result = await publisher.publish(job("k-1"))
    assert (result.job.key, result.status, result.detail) == ("k-1", Status.CONFIRMED, "")
    message = await (await channel.get_underlay_channel()).basic_get(WORK, no_ack=True)
    properties = message.header.properties
    assert (properties.delivery_mode, properties.priority, properties.message_type) == (2, None, "t.v1")
    assert (properties.headers or {})["job-key"] == "k-1"
    assert properties.message_id
    assert properties.timestamp is not None
    assert message.body == b'{"n":1}'


async def test_returned(broker: Broker, channel: AbstractChannel) -> None:
    bare = Names("bare")
    await channel.declare_exchange(bare.ingress, "topic", durable=True)
    async with Publisher.connect(broker.url, names=bare) as publisher:
        result = await publisher.publish(job())
    assert result.status is Status.RETURNED
    assert "NO_ROUTE" in result.detail


async def test_refused(broker: Broker, full: str) -> None:
    async with Publisher.connect(broker.url) as publisher:
        assert (await publisher.publish(job(lane=full))).status is Status.REFUSED
        assert (await publisher.publish(job())).status is Status.CONFIRMED


async def test_no_confirm_in_time_is_unknown(proxy: Proxy, channel: AbstractChannel) -> None:
    async with Publisher.connect(proxy.url, timeout_s=0.5) as publisher:
        proxy.hear(False)
        result = await publisher.publish(job())
        assert result.status is Status.UNKNOWN
        assert "0.5 s" in result.detail
        assert await eventually(lambda: depth(channel)) == 1, (
            "it was published all the same: unknown is the word"
        )
        proxy.hear(True)
        assert (await publisher.publish(job())).status is Status.CONFIRMED


async def test_a_connection_that_dies_leaves_results_unknown_and_nobody_cancelled(
    proxy: Proxy, channel: AbstractChannel
) -> None:
    async with Publisher.connect(proxy.url) as publisher:
        proxy.hear(False)
        tasks = [asyncio.create_task(publisher.publish(job(f"k-{n}"))) for n in range(20)]
        await eventually(lambda: _is_depth(channel, 20))
        proxy.cut()
        assert {result.status for result in await asyncio.gather(*tasks)} == {Status.UNKNOWN}
        assert (await publisher.publish(job())).status is Status.CONFIRMED
    assert proxy.accepted == 2


async def test_the_librarys_own_cancellation_is_an_unknown_result(
    proxy: Proxy, channel: AbstractChannel
) -> None:
    """The library ends what waits on a connection that it closes with CancelledError."""
    async with await aio_pika.connect(proxy.url) as connection:
        sender = await Sender.open(connection)
        proxy.hear(False)
        task = asyncio.create_task(sender.send("", WORK, b"", spec.Basic.Properties()))
        await eventually(lambda: _is_depth(channel, 1))
        assert connection.transport is not None
        await connection.transport.connection.close()
        assert (await task).status is Status.UNKNOWN


async def test_who_waits_for_a_connection_does_not_lose_it_by_anothers_cancellation(proxy: Proxy) -> None:
    async with Publisher.connect(proxy.url, retries=3) as publisher:
        proxy.cut()
        proxy.hear(False)
        first, second = (asyncio.create_task(publisher.publish(job(key))) for key in ("k-1", "k-2"))
        await eventually(lambda: proxy.accepted == 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        proxy.hear(True)
        assert (await second).status is Status.CONFIRMED
    assert proxy.accepted == 2


async def test_a_retry_makes_sure_of_an_unknown(proxy: Proxy, channel: AbstractChannel) -> None:
    async with Publisher.connect(proxy.url, retries=3) as publisher:
        proxy.hear(False)
        task = asyncio.create_task(publisher.publish(job()))
        await eventually(lambda: _is_depth(channel, 1))
        proxy.cut()
        assert (await task).status is Status.CONFIRMED
    await eventually(lambda: _is_depth(channel, 2))


async def test_a_real_cancellation_passes(proxy: Proxy, channel: AbstractChannel) -> None:
    async with Publisher.connect(proxy.url) as publisher:
        proxy.hear(False)
        task = asyncio.create_task(publisher.publish(job()))
        await eventually(lambda: _is_depth(channel, 1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.hear(True)
        assert (await publisher.publish(job())).status is Status.CONFIRMED


async def test_closing_ends_what_still_waits(proxy: Proxy, channel: AbstractChannel) -> None:
    async with Publisher.connect(proxy.url) as publisher:
        proxy.hear(False)
        task = asyncio.create_task(publisher.publish(job()))
        await eventually(lambda: _is_depth(channel, 1))
        proxy.hear(True)
    assert (await task).status in (Status.UNKNOWN, Status.CONFIRMED)


async def test_many_in_flight(broker: Broker, channel: AbstractChannel) -> None:
    count = 2000
    async with Publisher.connect(broker.url) as publisher:
        results = [r async for r in publisher.publish_many(job(f"k-{n}") for n in range(count))]
    assert {result.status for result in results} == {Status.CONFIRMED}
    assert {result.job.key for result in results} == {f"k-{n}" for n in range(count)}
    await eventually(lambda: _is_depth(channel, count))


async def test_results_stay_with_their_jobs(broker: Broker, channel: AbstractChannel, full: str) -> None:
    lanes = ["a", full, "nobody"]
    async with Publisher.connect(broker.url, in_flight=32) as publisher:
        jobs = [job(f"k-{n}", lanes[n % 3]) for n in range(90)]
        results = [r async for r in publisher.publish_many(jobs)]
    expected = {"a": Status.CONFIRMED, full: Status.REFUSED, "nobody": Status.CONFIRMED}
    assert len(results) == 90
    assert all(result.status is expected[result.job.lane] for result in results)
    await eventually(lambda: _is_depth(channel, 30, NAMES.unrouted))


async def test_no_more_are_in_flight_than_allowed(proxy: Proxy, channel: AbstractChannel) -> None:
    async with Publisher.connect(proxy.url, in_flight=5) as publisher:
        proxy.hear(False)
        tasks = [asyncio.create_task(publisher.publish(job(f"k-{n}"))) for n in range(50)]
        await eventually(lambda: _is_depth(channel, 5))
        assert await depth(channel) == 5
        proxy.hear(True)
        assert {result.status for result in await asyncio.gather(*tasks)} == {Status.CONFIRMED}


async def test_a_stream_over_a_connection_that_dies_is_accounted_for(
    proxy: Proxy, channel: AbstractChannel
) -> None:
    count, results = 1000, []
    async with Publisher.connect(proxy.url, in_flight=50) as publisher:
        async for result in publisher.publish_many(job(f"k-{n}") for n in range(count)):
            results.append(result)
            if len(results) == 200:
                proxy.cut()
        again = [result.job for result in results if result.status is Status.UNKNOWN]
        assert len(results) == count
        assert len(again) <= 100, "only what was under way at the cut may be unknown"
        assert {r.status for r in results} <= {Status.CONFIRMED, Status.UNKNOWN}
        assert {r.status async for r in publisher.publish_many(again)} <= {Status.CONFIRMED}
    assert await _keys(channel, WORK) == {f"k-{n}" for n in range(count)}


async def test_the_next_url_where_one_fails(broker: Broker, connection: AbstractConnection) -> None:
    async with Publisher.connect([closed_port_url(), broker.url]) as publisher:
        assert (await publisher.publish(job())).status is Status.CONFIRMED


async def test_no_broker_at_all() -> None:
    urls = [closed_port_url(), closed_port_url()]
    with pytest.raises(BrokerUnreachable) as caught:
        await Publisher.connect(urls).__aenter__()
    assert all(url.rpartition("@")[2].rstrip("/") in str(caught.value) for url in urls)
    assert "guest-password" not in str(caught.value)


async def test_a_broker_that_went_away_and_came_back(broker: Broker, connection: AbstractConnection) -> None:
    proxy = Proxy(broker.url)
    async with proxy:
        url = proxy.url
        publisher = await Publisher.connect(url, timeout_s=2).__aenter__()
        assert (await publisher.publish(job())).status is Status.CONFIRMED
    gone = await publisher.publish(job())
    assert gone.status is Status.UNKNOWN
    async with Proxy(broker.url, port=_port(url)):
        assert (await publisher.publish(job())).status is Status.CONFIRMED
        await publisher.close()


async def test_without_a_topology(broker: Broker) -> None:
    with pytest.raises(TopologyMissing, match="topology apply"):
        await Publisher.connect(broker.url).__aenter__()


async def test_a_topology_that_is_deleted_and_made_again(
    broker: Broker, connection: AbstractConnection, channel: AbstractChannel
) -> None:
    async with Publisher.connect(broker.url) as publisher:
        await channel.exchange_delete(NAMES.ingress)
        results = [await publisher.publish(job()) for _ in range(2)]
        assert {result.status for result in results} == {Status.UNKNOWN}
        assert all(NAMES.ingress in result.detail for result in results)
        await apply(connection, plan_for(NAMES, ["a"], (1,)))
        assert (await publisher.publish(job())).status is Status.CONFIRMED


async def test_a_sender_matches_returns_to_their_publishes(
    connection: AbstractConnection, channel: AbstractChannel
) -> None:
    """One properties object for all, its message id too: each message still has its own answer."""
    sender = await Sender.open(connection)
    shared = spec.Basic.Properties(message_id="same", headers={"job-key": "k"})
    keys = [WORK if n % 2 else "nowhere" for n in range(100)]
    sent = await asyncio.gather(*(sender.send("", key, b"", shared) for key in keys))
    assert [s.status for s in sent] == [Status.CONFIRMED if k == WORK else Status.RETURNED for k in keys]
    assert shared.message_id == "same"
    ids = {
        (await (await channel.get_underlay_channel()).basic_get(WORK)).header.properties.message_id
        for _ in range(50)
    }
    assert len(ids) == 50


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (WORK, {"h": "x" * 200_000}),
        (WORK, {"h": object()}),
        (WORK, {"h": 2**70}),
        ("k" * 300, {}),
    ],
    ids=["more than a frame", "not AMQP", "too large a number", "long routing key"],
)
async def test_what_cannot_be_sent_is_refused_and_harms_nothing(
    connection: AbstractConnection, key: str, headers: dict[str, object]
) -> None:
    sender = await Sender.open(connection)
    refused = await sender.send("", key, b"", spec.Basic.Properties(headers=headers))  # type: ignore[arg-type]
    assert refused.status is Status.REFUSED
    assert (await sender.send("", WORK, b"", spec.Basic.Properties())).status is Status.CONFIRMED


async def test_the_largest_headers_that_a_frame_holds(connection: AbstractConnection) -> None:
    sender = await Sender.open(connection)
    sizes = range(130_900, 131_060)
    sent = [
        await sender.send("", WORK, b"", spec.Basic.Properties(headers={"h": "x" * size})) for size in sizes
    ]
    statuses = [s.status for s in sent]
    edge = statuses.index(Status.REFUSED)
    assert statuses == [Status.CONFIRMED] * edge + [Status.REFUSED] * (len(sizes) - edge)
    assert not sender.closed


async def test_a_large_body(connection: AbstractConnection, channel: AbstractChannel) -> None:
    body = bytes(range(256)) * 8192
    sender = await Sender.open(connection)
    assert (await sender.send("", WORK, body, spec.Basic.Properties())).status is Status.CONFIRMED
    assert (await (await channel.get_queue(WORK)).get(no_ack=True)).body == body


async def test_a_sender_that_is_closed_says_so(connection: AbstractConnection) -> None:
    sender = await Sender.open(connection)
    await sender.close()
    await sender.close()
    assert sender.closed
    assert (await sender.send("", WORK, b"", spec.Basic.Properties())).status is Status.UNKNOWN


async def test_a_channel_that_the_broker_ends(connection: AbstractConnection) -> None:
    sender = await Sender.open(connection)
    sent = await sender.send("no-such-exchange", "k", b"", spec.Basic.Properties())
    assert sent.status is Status.UNKNOWN
    assert "no-such-exchange" in sent.detail
    await eventually(lambda: sender.closed)


async def test_no_sender_on_a_closed_connection(broker: Broker) -> None:
    connection = await broker.connect()
    await connection.close()
    with pytest.raises(ConnectionError):
        await Sender.open(connection)


async def test_a_broker_under_an_alarm(broker: Broker, channel: AbstractChannel) -> None:
    if broker.ctl is None:
        pytest.skip("the broker is given: its alarms are not ours")
    async with Publisher.connect(broker.url, timeout_s=1) as publisher:
        await asyncio.to_thread(broker.ctl, "set_vm_memory_high_watermark", "absolute", "1MB")
        try:
            assert (await publisher.publish(job())).status is Status.UNKNOWN
        finally:
            await asyncio.to_thread(broker.ctl, "set_vm_memory_high_watermark", "absolute", "1GB")
        await eventually(lambda: _is_depth(channel, 1), what="the message that waited in the socket")
        assert (await publisher.publish(job())).status is Status.CONFIRMED


async def test_what_is_published_keeps_the_contract(broker: Broker, channel: AbstractChannel) -> None:
    async with Publisher.connect(broker.url) as publisher:
        await publisher.publish(job("k-1"))
    message = await (await channel.get_underlay_channel()).basic_get(WORK, no_ack=True)
    read = good(over_the_wire(message.header.properties, message.body))
    assert (read.key, read.type, read.fingerprint) == ("k-1", "t.v1", job("k-1").fingerprint)


async def _is_depth(channel: AbstractChannel, wanted: int, queue: str = WORK) -> bool:
    return await depth(channel, queue) == wanted


async def _keys(channel: AbstractChannel, queue: str) -> set[str]:
    source = await channel.get_queue(queue)
    found: set[str] = set()
    while (message := await source.get(fail=False, no_ack=True)) is not None:
        found.add(str(message.headers["job-key"]))
    return found


def _port(url: str) -> int:
    port = url.rpartition(":")[2].partition("/")[0]
    return int(port)


# --- many at once -----------------------------------------------------------------------------------------


async def many(publisher: Publisher, jobs: Iterable[Job]) -> dict[str, Result]:
    return {result.job.key: result async for result in publisher.publish_many(jobs)}


async def test_many_go_as_one_would(broker: Broker, channel: AbstractChannel) -> None:
    body = os.urandom(300_000)
    until = datetime(2040, 1, 1, tzinfo=UTC)
    full = Job("a", "ä", body, "t.v1", "application/octet-stream", "r", until, priority=7, headers={"n": 1})
    async with Publisher.connect(broker.url) as publisher:
        done = await many(publisher, [full, Job("a", "bare", b"")])
    assert {result.status for result in done.values()} == {Status.CONFIRMED}
    under = await channel.get_underlay_channel()
    first, second = [await under.basic_get(WORK, no_ack=True) for _ in range(2)]
    properties = first.header.properties
    assert first.body == body
    headers = {"job-key": "ä", "run": "r", "deadline": "2040-01-01T00:00:00+00:00", "n": 1}
    assert headers.items() <= (properties.headers or {}).items()
    assert (properties.priority, properties.message_type, properties.delivery_mode) == (7, "t.v1", 2)
    assert properties.content_type == "application/octet-stream"
    assert properties.timestamp is not None
    assert abs((properties.timestamp - datetime.now(UTC)).total_seconds()) < 60
    assert second.body == b""
    assert (second.header.properties.priority, second.header.properties.message_type) == (None, None)
    assert properties.message_id != second.header.properties.message_id


async def test_of_many_each_has_its_own_fate(broker: Broker, channel: AbstractChannel) -> None:
    bare = Names("bare")
    exchange = await channel.declare_exchange(bare.ingress, "topic", durable=True)
    await (await channel.declare_queue("bare", durable=True)).bind(exchange, "a")
    wide = {f"h-{n}": "x" * 3000 for n in range(60)}
    object.__setattr__(unsendable := job("wide"), "headers", wide)
    async with Publisher.connect(broker.url, names=bare) as publisher:
        done = await many(publisher, [job("1"), unsendable, job("nowhere", "b"), job("2")])
        assert (await publisher.publish(job("3"))).status is Status.CONFIRMED, "the channel counts on"
    assert {key: result.status for key, result in done.items()} == {
        "1": Status.CONFIRMED,
        "wide": Status.REFUSED,
        "nowhere": Status.RETURNED,
        "2": Status.CONFIRMED,
    }
    assert "NO_ROUTE" in done["nowhere"].detail
    assert "a frame holds" in done["wide"].detail


async def test_many_without_a_confirm_in_time_are_unknown_and_then_repeated(
    proxy: Proxy, channel: AbstractChannel
) -> None:
    async with Publisher.connect(proxy.url, timeout_s=0.5) as publisher:
        proxy.hear(False)
        done = await many(publisher, map(job, "abc"))
        assert {result.status for result in done.values()} == {Status.UNKNOWN}
        assert "0.5 s" in done["a"].detail
        proxy.hear(True)
    async with Publisher.connect(proxy.url, timeout_s=0.5, retries=20) as publisher:
        proxy.hear(False)
        task = asyncio.create_task(many(publisher, map(job, "abc")))
        await eventually(lambda: _is_depth(channel, 6))
        proxy.cut()
        proxy.hear(True)
        assert {result.status for result in (await task).values()} == {Status.CONFIRMED}


async def test_many_and_one_share_a_channel(broker: Broker, channel: AbstractChannel) -> None:
    async with Publisher.connect(broker.url, in_flight=64) as publisher:
        stream = asyncio.create_task(many(publisher, (job(f"m-{n}") for n in range(1000))))
        single = await asyncio.gather(*(publisher.publish(job(f"s-{n}")) for n in range(200)))
        assert {r.status for r in [*single, *(await stream).values()]} == {Status.CONFIRMED}
    assert len(await _keys(channel, WORK)) == 1200
