"""Getting work in: a bare loop of confirmed publishes, and acklast's ways with a manifest or an outbox."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import aio_pika
import asyncpg

from acklast.cli.enqueue import IN_FLIGHT as COMMANDS_IN_FLIGHT
from acklast.ledger.connect import Address
from acklast.ledger.outbox import Outbox
from acklast.manifest import PostgresManifest
from acklast.relay import Relay
from acklast.telemetry.events import Emitter
from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from acklast_topology.publish import Job, Publisher, Status
from bench import ledgers
from bench.progress import Progress
from bench.queues import BenchError
from bench.report import Report, spread
from bench.servers import Servers
from bench.stats import Spread, ratios

IN_FLIGHT: Final = 256
_LANE: Final = "bench"
_TYPE: Final = "bench.v1"
_RUN: Final = "bench"
_NAMES: Final = Names()
_PAD: Final = "x" * 160

Way = Callable[[str, str, int], Awaitable[None]]


def _payload(number: int) -> dict[str, object]:
    return {"number": number, "pad": _PAD}


def _jobs(count: int) -> Iterator[Job]:
    for number in range(count):
        yield Job.json(_LANE, f"bench:{number:08d}", _payload(number), type=_TYPE, run=_RUN)


async def _bare(url: str, _: str, count: int, in_flight: int = IN_FLIGHT) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.get_exchange(_NAMES.ingress)
        slots = asyncio.Semaphore(in_flight)

        async def publish(number: int) -> None:
            try:
                message = aio_pika.Message(
                    json.dumps(_payload(number)).encode(),
                    headers={"job-key": f"bench:{number:08d}", "run": _RUN},
                    content_type="application/json",
                    type=_TYPE,
                    message_id=f"bench:{number:08d}",
                    delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                )
                await exchange.publish(message, _LANE)
            finally:
                slots.release()

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await slots.acquire()
                group.create_task(publish(number))


async def _one_by_one(url: str, dsn: str, count: int) -> None:
    await _bare(url, dsn, count, in_flight=1)


async def _publisher(url: str, _: str, count: int) -> None:
    async with Publisher.connect(url, in_flight=IN_FLIGHT) as publisher:
        async for result in publisher.publish_many(_jobs(count)):
            _require(result.status is Status.CONFIRMED)


async def _enqueue(url: str, dsn: str, count: int, in_flight: int = IN_FLIGHT) -> None:
    async with (
        PostgresManifest.connect(dsn) as manifest,
        Publisher.connect(url, in_flight=in_flight) as publisher,
    ):
        async for item in publisher.enqueue_many(_jobs(count), run=_RUN, manifest=manifest):
            _require(item.fate == "accepted")


async def _command(url: str, dsn: str, count: int) -> None:
    await _enqueue(url, dsn, count, COMMANDS_IN_FLIGHT)


_PROMISE: Final = """
select acklast.enqueue('bench', 'bench:' || lpad(n::text, 8, '0'),
                       jsonb_build_object('number', n, 'pad', $2::text), type => 'bench.v1', run => 'bench')
from generate_series(0, $1::int - 1) as n
"""


async def _promise(dsn: str, count: int) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.fetch(_PROMISE, count, _PAD)
    await connection.close()


async def _relay(url: str, dsn: str, _: int) -> None:
    relay = Relay(Outbox(Address.of(dsn)), lambda: Publisher.connect(url), Emitter(), "bench", poll_s=1)
    try:
        async with Publisher.connect(url, in_flight=IN_FLIGHT) as publisher:
            while await relay.once(publisher):
                pass
    finally:
        await relay.close()


def _require(fine: bool) -> None:
    if not fine:
        raise BenchError("a job was not accepted")


_WAYS: Final[dict[str, tuple[str, float, Way]]] = {
    "bare": (f"aio-pika, confirms, {IN_FLIGHT} in flight", 1.0, _bare),
    "one": ("aio-pika, one at a time", 0.1, _one_by_one),
    "publisher": ("acklast's publisher", 1.0, _publisher),
    "enqueue": ("acklast enqueue, manifest included", 1.0, _enqueue),
    "command": (f"the same with {COMMANDS_IN_FLIGHT} in flight, as the command has", 1.0, _command),
    "relay": ("acklast's relay, from the outbox", 1.0, _relay),
}


def enqueueing(rounds: int, jobs: int, servers: Servers, say: Progress) -> Report:
    """The table: each way in, interleaved, on an empty queue and an empty ledger."""
    say.begin("enqueue", rounds * len(_WAYS))
    rates: dict[str, list[float]] = {name: [] for name in _WAYS}
    for _ in range(rounds):
        for name, (_, share, way) in _WAYS.items():
            count = max(100, int(jobs * share))
            rates[name].append(asyncio.run(_measure(way, count, servers)))
            say.step(f"{name}: {rates[name][-1]:,.0f} jobs/s")
    return Report(
        "enqueue",
        "Getting work in: jobs of 200 bytes, each confirmed by the broker",
        ("", "way", "jobs", "jobs/s", "/ bare", "/ one"),
        [
            (
                name,
                title,
                f"{max(100, int(jobs * share)):,}",
                spread(Spread.of(rates[name])),
                spread(ratios(rates[name], rates["bare"]), 2),
                spread(ratios(rates[name], rates["one"]), 1),
            )
            for name, (title, share, _) in _WAYS.items()
        ],
        {name: {"jobs_per_s": found} for name, found in rates.items()},
        ("Medians of the rounds, and their range. Ratios are taken within a round.",),
    )


async def _measure(way: Way, count: int, servers: Servers) -> float:
    await ledgers.empty(servers.dsn)
    with servers.vhost() as url:
        async with await aio_pika.connect(url) as connection:
            await apply(connection, plan_for(_NAMES, [_LANE]))
        if way is _relay:
            await _promise(servers.dsn, count)
        began = time.monotonic()
        await way(url, servers.dsn, count)
        return count / (time.monotonic() - began)
