"""The outbox: promised in the caller's transaction, published once that has committed, by whoever comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import aio_pika
import asyncpg
import pytest

from acklast.errors import Exit
from acklast.faults import RELAY_POINT
from acklast.ledger.api import State
from acklast.ledger.connect import Address
from acklast.ledger.dead import Wanted, whole_page
from acklast.ledger.operate import Operations
from acklast.ledger.outbox import BATCH_BYTES, Outbox
from acklast.relay import Relay
from acklast.telemetry.events import Emitter, Event, Notice
from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from acklast_topology.publish import Publisher
from harness import Broker, eventually
from harness.daemon import Fault
from harness.scripted import LANE, TYPE
from harness.site import NAMES, Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def sql(ledger_dsn: str) -> AsyncIterator[Sql]:
    """An application's own connection to the ledger's database."""
    connection = await asyncpg.connect(ledger_dsn)
    yield connection
    await connection.close()


async def waiting(sql: Sql) -> list[tuple[str, int, str | None]]:
    rows = await sql.fetch("select key, tries, error from acklast.outbox order by id")
    return [(row["key"], row["tries"], row["error"]) for row in rows]


# --- what may be promised ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("enqueue('Not Valid', 'k', '{}')", "lane"),
        ("enqueue(null, 'k', '{}')", "lane"),
        ("enqueue('work', '', '{}')", "key"),
        ("enqueue('work', E'a\\nb', '{}')", "key"),
        ("enqueue('work', repeat('é', 128), '{}')", "key"),
        ("enqueue('work', 'k', null)", "payload"),
        ("enqueue('work', 'k', '{}', priority => 10)", "priority"),
        ("enqueue('work', 'k', '{}', headers => '[1]')", "headers"),
        ("enqueue_raw('work', 'k', 'x', '')", "content type"),
    ],
)
async def test_what_breaks_the_contract_is_refused_with_a_hint(sql: Sql, call: str, problem: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match=problem) as caught:
        await sql.execute(f"select acklast.{call}")
    assert caught.value.hint
    assert await waiting(sql) == []


async def test_a_transaction_that_is_rolled_back_promises_nothing(sql: Sql) -> None:
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute("select acklast.enqueue('work', 'k', '{}')")
    await transaction.rollback()
    assert await waiting(sql) == []


async def test_a_role_needs_no_right_to_the_tables(sql: Sql) -> None:
    role = f"app_{id(sql)}"
    await sql.execute(f"create role {role}; grant usage on schema acklast to {role}; set role {role}")
    await sql.execute("select acklast.enqueue('work', 'k', '{}')")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await sql.execute("select * from acklast.outbox")
    await sql.execute(f"reset role; revoke all on schema acklast from {role}; drop role {role}")
    assert [key for key, _, _ in await waiting(sql)] == ["k"]


# --- the relay ---------------------------------------------------------------------------------------------


class Heard:
    """Takes notices in the place of a log."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            self.events.append((event.name, dict(event.fields)))


@pytest.fixture
async def queue(broker: Broker) -> AsyncIterator[aio_pika.abc.AbstractQueue]:
    """The lane's work queue, with its topology in place."""
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        await apply(connection, plan_for(Names(), [LANE]))
        yield await channel.get_queue(NAMES.work(LANE))


@asynccontextmanager
async def relay(
    dsn: str, emitter: Emitter | None = None, *, url: str = "amqp://nobody", poll_s: float = 0.05
) -> AsyncIterator[Relay]:
    made = Relay(
        Outbox(Address.of(dsn)),
        lambda: Publisher.connect(url),
        emitter or Emitter(),
        "test:1",
        poll_s=poll_s,
    )
    try:
        yield made
    finally:
        await made.close()


async def test_a_promise_arrives_as_the_contract_has_it_and_is_gone(
    sql: Sql, broker: Broker, ledger_dsn: str, queue: aio_pika.abc.AbstractQueue
) -> None:
    await sql.execute(
        """
        select acklast.enqueue('work', 'k-1', '{"n": 1}', type => 'scripted.v1', run => 'r-1',
                               deadline => '2100-01-01T00:00:00Z', priority => 3,
                               headers => '{"tenant": "t"}', routing_suffix => 'eu')
        """
    )
    async with relay(ledger_dsn) as made, Publisher.connect(broker.url) as publisher:
        assert await made.once(publisher) == 1
        assert await made.once(publisher) == 0
    message = await queue.get()
    assert json.loads(message.body) == {"n": 1}
    assert (message.type, message.priority, message.content_type) == ("scripted.v1", 3, "application/json")
    assert message.routing_key == f"{LANE}.eu"
    headers: dict[str, Any] = dict(message.headers)
    assert (headers["job-key"], headers["run"], headers["tenant"]) == ("k-1", "r-1", "t")
    assert headers["deadline"].startswith("2100-01-01T00:00:00")
    assert await waiting(sql) == []


@pytest.mark.soak
async def test_many_relays_publish_each_promise_once_and_each_key_in_order(
    sql: Sql, broker: Broker, ledger_dsn: str, queue: aio_pika.abc.AbstractQueue
) -> None:
    await sql.execute(
        "select acklast.enqueue('work', 'k-' || n % 7, jsonb_build_object('n', n))"
        " from generate_series(1, 1050) as n"
    )
    async with Publisher.connect(broker.url) as publisher, relay(ledger_dsn) as one, relay(ledger_dsn) as two:

        async def drain(made: Relay) -> None:
            while await waiting(sql_of[made]):
                await made.once(publisher)

        sql_of = {made: await asyncpg.connect(ledger_dsn) for made in (one, two)}
        await asyncio.gather(drain(one), drain(two))
        for connection in sql_of.values():
            await connection.close()
    came = [json.loads((await queue.get()).body)["n"] for _ in range(1050)]
    assert sorted(came) == list(range(1, 1051))
    for rest in range(7):
        of_key = [n for n in came if n % 7 == rest]
        assert of_key == sorted(of_key)


async def test_what_cannot_be_published_is_put_off_and_holds_up_nobody_else(
    sql: Sql, broker: Broker, ledger_dsn: str, queue: aio_pika.abc.AbstractQueue
) -> None:
    """Without its alternate exchange the broker returns what has no queue."""
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        await channel.exchange_delete(NAMES.ingress)
        ingress = await channel.declare_exchange(NAMES.ingress, "topic", durable=True)
        await queue.bind(ingress, LANE)
    heard = Heard()
    await sql.execute("select acklast.enqueue('nowhere', 'a', '{}'), acklast.enqueue('work', 'b', '{}')")
    async with relay(ledger_dsn, Emitter(heard)) as made, Publisher.connect(broker.url) as publisher:
        assert await made.once(publisher) == 2
        [(key, tries, error)] = await waiting(sql)
        assert (key, tries) == ("a", 1)
        assert "returned" in (error or "")
        assert heard.events[0][0] == "outbox.put_off"
        assert await made.once(publisher) == 0  # not at once again
        await ingress_back(broker, queue)
        await sql.execute("update acklast.outbox set due_at = clock_timestamp()")
        assert await made.once(publisher) == 1
    assert await waiting(sql) == []


async def ingress_back(broker: Broker, queue: aio_pika.abc.AbstractQueue) -> None:
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        ingress = await channel.get_exchange(NAMES.ingress)
        await queue.bind(ingress, "nowhere")


async def test_what_is_taken_at_once_is_bounded_in_bytes(sql: Sql, ledger_dsn: str) -> None:
    for key, size in (("a", 10), ("b", 10), ("c", 10), ("d", 5000), ("e", 10), ("f", 10)):
        await sql.execute("select acklast.enqueue_raw('work', $1, $2, 'text/plain')", key, bytes(size))
    one = 10 + await sql.fetchval("select pg_column_size('{}'::jsonb)")
    outbox, batches, more = Outbox(Address.of(ledger_dsn)), list[tuple[str, bool]](), True
    while more:
        async with outbox.take(3, 2 * one) as taken:
            batches.append(("".join(row.key for row in taken.rows), more := taken.more))
            await taken.settle([row.id for row in taken.rows], [], [], "w")
    await outbox.close()
    # Two fit; "d" would not, and comes alone; of the last two nothing is left.
    assert batches == [("ab", True), ("c", True), ("d", True), ("ef", False)]


async def test_what_did_not_fit_is_published_at_once(
    sql: Sql, broker: Broker, ledger_dsn: str, queue: aio_pika.abc.AbstractQueue
) -> None:
    big = bytes(BATCH_BYTES // 2 + 1)
    for number in range(3):
        await sql.execute("select acklast.enqueue_raw('work', $1, $2, 'text/plain')", f"k{number}", big)
    async with relay(ledger_dsn, url=broker.url, poll_s=3600) as made:
        made.start()
        await eventually(lambda: empty(sql), 60, "all are published, though each look but the first is far")


async def empty(sql: Sql) -> bool:
    return not await waiting(sql)


NO_JOBS = (
    ("""headers => '{"x-death": 1}'""", "x-death"),
    # What Postgres takes, and Python or AMQP does not.
    ("deadline => '0044-03-15 BC'", "not within the years 1 to 9999"),
    ("deadline => 'infinity'", "not within the years 1 to 9999"),
    ("not_before => '20000-01-01'", "not within the years 1 to 9999"),
    ("""headers => ('{"n": ' || repeat('9', 5000) || '}')::jsonb""", "digits"),
    ("""headers => '{"n": 1e30}'""", "64 bits"),
    ("""headers => (repeat('{"a":', 3000) || '1' || repeat('}', 3000))::jsonb""", "nested too deeply"),
    ("headers => jsonb_build_object('h', repeat('x', 200000))", "more than 65536"),
)


async def test_what_is_no_job_becomes_a_dead_letter_and_holds_up_nobody_else(
    sql: Sql, broker: Broker, ledger_dsn: str, queue: aio_pika.abc.AbstractQueue
) -> None:
    for number, (more, _) in enumerate(NO_JOBS):
        await sql.execute(f"select acklast.enqueue('work', 'k{number}', '{{}}', {more})")
    await sql.execute("select acklast.enqueue('work', 'other', '{}')")
    async with relay(ledger_dsn) as made, Publisher.connect(broker.url) as publisher:
        assert await made.once(publisher) == len(NO_JOBS) + 1
    assert await waiting(sql) == []
    letters = await sql.fetch("select key, reason, detail, payload from acklast.dead_letters order by key")
    assert [letter["key"] for letter in letters] == [f"k{number}" for number in range(len(NO_JOBS))]
    for letter, (_, detail) in zip(letters, NO_JOBS, strict=True):
        assert (letter["reason"], letter["payload"]) == ("unpublishable", b"{}")
        assert detail in letter["detail"]
    reading = await Operations.connect(Address.of(ledger_dsn))
    try:
        shown = await whole_page(reading, Wanted(), 10)
    finally:
        reading.close()
    assert len(shown) == len(NO_JOBS)  # also those whose headers Python cannot read


# --- in a daemon ------------------------------------------------------------------------------------------


@one_receiver_else_soak
async def test_a_daemon_relays_and_its_handlers_promise_follow_ups_with_their_completion(
    new_site: NewSite, sql: Sql
) -> None:
    async with new_site() as place:
        failing = {"do": "enqueue", "key": "wrong", "then": "not_now"}
        steps = {"steps": [failing, {"do": "enqueue", "key": "second", "then": ""}]}
        with place.daemon() as daemon:
            await daemon.ready()
            await sql.execute(
                "select acklast.enqueue($1, 'first', $2::jsonb, type => $3)", LANE, json.dumps(steps), TYPE
            )
            await place.reaches("second", State.DONE)
            await place.reaches("first", State.DONE)
            await eventually(_async_empty(sql), 20, "the outbox is empty")
            assert await daemon.drained() == 0
        # Promised by the attempt that completed, and by no other.
        assert [effect.key for effect in place.log.effects()] == ["first", "second"]


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_promise_within_a_transaction_commits_and_is_rolled_back_with_it(
    new_site: NewSite, sql: Sql
) -> None:
    await sql.execute("create table public.effects (key text)")
    async with new_site() as place:
        failing = {"do": "insert", "enqueue": "wrong", "then": "not_now"}
        dying = {"do": "insert_and_die", "enqueue": "lost"}
        committing = {"do": "insert", "enqueue": "second"}
        await place.publish(scripted("first", failing, dying, committing))
        with place.daemon() as daemon:
            await daemon.ended()
            assert await waiting(sql) == []
        with place.daemon():
            await place.reaches("second", State.DONE)
            await eventually(_async_empty(sql), 20, "the outbox is empty")
        assert (await place.job("first")).attempts == 3
        assert [row["key"] for row in await sql.fetch("select key from public.effects")] == ["first"]
        assert {view.key for key in ("wrong", "lost") for view in await place.ledger.jobs(key)} == set()


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_relay_that_is_killed_after_it_has_published_makes_no_job_twice(
    new_site: NewSite, sql: Sql
) -> None:
    """It dies with its messages confirmed and its rows there: the next one publishes them again."""
    async with new_site() as place:
        steps = json.dumps({"steps": [{"do": "done"}]})
        await sql.execute(
            "select acklast.enqueue($1, 'k-' || n, $2::jsonb, type => $3) from generate_series(1, 40) as n",
            LANE,
            steps,
            TYPE,
        )
        # What it publishes could come back to its own lane before it dies, and would wait for its lease then.
        await place.command("lanes", "pause", LANE, "--reason", "it is to publish alone")
        with place.daemon(fault=Fault(RELAY_POINT)) as daemon:
            await daemon.dies_at_fault()
        assert len(await waiting(sql)) == 40
        await place.command("lanes", "resume", LANE, code=Exit.INCOMPLETE)  # the dead one does not follow
        with place.daemon("two") as daemon:
            await eventually(_async_empty(sql), 30, "the outbox is empty")
            await eventually(place.is_drained, what="every copy is settled")
            assert await daemon.drained() == 0
        effects = [effect.key for effect in place.log.effects()]
        assert sorted(effects) == sorted(f"k-{n}" for n in range(1, 41))
        rows = await sql.fetch("select state, claims from acklast.jobs")
        assert {tuple(row) for row in rows} == {("done", 1)}


def _async_empty(sql: Sql) -> Callable[[], Any]:
    async def empty() -> bool:
        return not await waiting(sql)

    return empty
