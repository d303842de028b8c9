"""Arguments change and queues go under running publishers: nothing is lost, wherever the tool is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final
from urllib.parse import quote

import pytest
from aio_pika.abc import AbstractConnection

from acklast import moving
from acklast.clearing import Clearing
from acklast.errors import AlreadyChanging
from acklast.moving import Emptiness
from acklast.replace import Replacing
from acklast.ways import bar_others
from acklast_topology.carrier import carrier_properties
from acklast_topology.declare import apply, compare, exists, ready
from acklast_topology.finding import Finding, Found
from acklast_topology.leftovers import unplanned
from acklast_topology.message import RawMessage
from acklast_topology.names import Names, dead_key, wait_key, work_key
from acklast_topology.plan import Plan, Queue, plan_for
from acklast_topology.publish import Job, Publisher, Status
from acklast_topology.sender import Sender
from harness import Broker, eventually

NAMES: Final = Names()
PLAN: Final = plan_for(NAMES, ["rent"], (1, 2))
WORK: Final = NAMES.work("rent")
GRACE_S: Final = 0.3


class Stopped(Exception):  # noqa: N818 - not an error: the tool is killed here
    """The tool ends at a step: its connection is closed, and what it held goes back."""


class Steps:
    """Counts the steps, has jobs come in at each of them, and stops the tool at one."""

    def __init__(self, last: int | None = None, come: asyncio.Event | None = None) -> None:
        self.seen: list[tuple[str, str]] = []
        self._last = last
        self._come = come

    def __call__(self, step: str, queue: str, number: int) -> None:
        self.seen.append((step, queue))
        if self._come is not None:
            self._come.set()
        if len(self.seen) == self._last:
            raise Stopped(step)


async def listed() -> Mapping[str, Mapping[str, Any]]:
    """What the management API lists of queues that nobody consumes: nothing is held. It is seconds late."""
    nothing = {"messages": 0, "messages_dlx": 0, "type": "quorum"}
    names = [queue.name for queue in plan_for(NAMES, ["rent", "mail"], (1, 2, 90)).queues]
    return {name: nothing for base in names for name in (base, NAMES.moving(base))}


def replacing(connection: AbstractConnection, steps: Steps, bindings: list[dict[str, Any]]) -> Replacing:
    emptiness = Emptiness(connection, listed, GRACE_S)
    return Replacing(connection, NAMES, bindings, emptiness, steps, apart_s=0)


async def put(connection: AbstractConnection, exchange: str, key: str, job: str) -> None:
    sender = await Sender.open(connection)
    sent = await sender.send(exchange, key, b"{}", carrier_properties(RawMessage(b"{}"), job))
    assert sent.status is Status.CONFIRMED, sent
    await sender.close()


async def made_otherwise(connection: AbstractConnection, queue: str, **changed: Any) -> Queue:
    """Everything is as planned but this queue; the planned one."""
    planned = next(one for one in PLAN.queues if one.name == queue)
    arguments = {**planned.arguments, **{name.replace("_", "-"): value for name, value in changed.items()}}
    await apply(connection, Plan((), (Queue(queue, arguments),), ()))
    found = await apply(connection, PLAN)
    assert [one.name for one in found if one.status is Found.DIFFERS] == [queue]
    # The bindings are as they were: whoever made the queue otherwise had bound it.
    async with connection.channel() as channel:
        there = await channel.get_queue(queue, ensure=False)
        for binding in PLAN.bindings:
            if binding.queue == queue:
                await there.bind(binding.source, binding.key)
    return planned


@asynccontextmanager
async def published(broker: Broker, come: asyncio.Event | None = None) -> AsyncIterator[list[str]]:
    """Publishes jobs, ten each time that they are to ``come``; the keys of those that were confirmed."""
    confirmed: list[str] = []

    async def run() -> None:
        async with Publisher.connect(broker.url) as publisher:
            for number in count():
                if come is not None and number % 10 == 9:
                    await come.wait()
                    come.clear()
                job = Job.json("rent", f"job-{number}", {})
                if (await publisher.publish(job)).status is Status.CONFIRMED:
                    confirmed.append(job.key)

    running = asyncio.create_task(run())
    try:
        yield confirmed
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def keys_in(connection: AbstractConnection, queue: str) -> set[str]:
    async with connection.channel() as channel:
        there = await channel.get_queue(queue, ensure=False)
        found = set()
        while (message := await there.get(no_ack=True, fail=False)) is not None:
            found.add(str(message.headers["job-key"]))
        return found


async def as_planned(connection: AbstractConnection) -> None:
    assert {one.status for one in await compare(connection, PLAN)} == {Found.PRESENT}
    for queue in PLAN.queues:
        assert not (await exists(connection, "queue", NAMES.moving(queue.name))).fit


async def test_a_work_queue_is_replaced_under_publishers_wherever_the_tool_is_stopped(broker: Broker) -> None:
    async with await broker.connect() as connection:
        queue = await made_otherwise(connection, WORK, x_delivery_limit=20)
        seen: set[tuple[str, str]] = set()
        come = asyncio.Event()
        async with published(broker, come) as confirmed:
            await eventually(lambda: len(confirmed) > 5, what="jobs are in the queue")
            for last in count(1):
                steps = Steps(last, come)
                try:
                    async with await broker.connect() as tools:
                        await replacing(tools, steps, []).queue(queue)
                except Stopped:
                    seen.update(steps.seen)
                else:
                    break
        assert {("deleted", WORK), ("unbound", NAMES.moving(WORK))} <= seen
        await as_planned(connection)
        assert set(confirmed) <= await keys_in(connection, WORK)


async def test_a_daemon_of_other_settings_does_not_stop_it(broker: Broker) -> None:
    async with await broker.connect() as connection, await broker.connect() as other:
        queue = await made_otherwise(connection, WORK, x_delivery_limit=20)
        theirs = Plan((), (Queue(WORK, {**queue.arguments, "x-delivery-limit": 20}),), ())
        ended = asyncio.Event()

        async def declare_again_and_again() -> set[Found]:
            return {(await apply(other, theirs))[0].status async for _ in _until(ended)}

        insisting = asyncio.create_task(declare_again_and_again())
        emptiness = Emptiness(connection, listed, GRACE_S)
        await Replacing(connection, NAMES, [], emptiness, Steps(), apart_s=0.5).queue(queue)
        ended.set()
        # Between two commands it may get in; its queue is replaced as the first one was.
        assert Found.DIFFERS in await insisting
        await as_planned(connection)


async def _until(ended: asyncio.Event) -> AsyncIterator[None]:
    while not ended.is_set():
        yield


async def test_two_do_not_change_one_namespace_at_the_same_time(broker: Broker) -> None:
    async with await broker.connect() as first, await broker.connect() as second:
        await bar_others(first, NAMES)
        with pytest.raises(AlreadyChanging):
            await bar_others(second, NAMES)
        await bar_others(second, Names("another"))
        rows = [{"name": NAMES.changing}]
        assert unplanned(NAMES, PLAN, rows) == []
    async with await broker.connect() as third:
        await bar_others(third, NAMES)


async def test_a_batch_of_large_messages_is_a_small_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_BATCH_BYTES", 3)
    async with await broker.connect() as connection:
        await apply(connection, PLAN)
        for number in range(5):
            await put(connection, NAMES.route, work_key("rent"), f"job-{number}")
        steps = Steps()
        assert await moving.Mover(connection, steps).move(WORK, NAMES.route, dead_key("rent")) == 5
        assert steps.seen.count(("published", WORK)) == 3
        assert len(await keys_in(connection, NAMES.dead("rent"))) == 5


async def test_a_wait_queue_is_replaced_and_what_waits_comes_back(broker: Broker) -> None:
    wait = NAMES.wait("rent", 2)
    async with await broker.connect() as connection:
        queue = await made_otherwise(connection, wait, x_message_ttl=3_600_000)
        await put(connection, NAMES.route, wait_key("rent", 2), "waits")
        await replacing(connection, Steps(), []).queue(queue)
        await as_planned(connection)

        async def back() -> bool:
            return (await ready(connection, WORK))[0] == 1

        await eventually(back, what="the job has waited")
        assert await keys_in(connection, WORK) == {"waits"}


async def test_what_came_for_no_lane_keeps_its_routing_key(broker: Broker) -> None:
    async with await broker.connect() as connection:
        queue = await made_otherwise(connection, NAMES.unrouted, x_delivery_limit=20)
        await put(connection, NAMES.ingress, "nobody.north", "typo")
        await replacing(connection, Steps(), []).queue(queue)
        await as_planned(connection)
        async with connection.channel() as channel:
            there = await channel.get_queue(NAMES.unrouted, ensure=False)
            message = await there.get(no_ack=True, timeout=30)
        assert message.routing_key == "nobody.north"


async def test_a_binding_of_others_is_kept_and_feeds_nothing_that_is_deleted(broker: Broker) -> None:
    async with await broker.connect() as connection:
        queue = await made_otherwise(connection, WORK, x_delivery_limit=20)
        async with connection.channel() as channel:
            await (await channel.get_queue(WORK, ensure=False)).bind("amq.fanout", "")
        rows = broker.management.call("GET", f"bindings/{quote(broker.vhost, safe='')}")
        await replacing(connection, Steps(), rows).queue(queue)
        await put(connection, "amq.fanout", "", "by another way")
        assert await keys_in(connection, WORK) == {"by another way"}


async def test_the_ingress_exchange_is_replaced_with_all_that_is_bound_to_it(broker: Broker) -> None:
    async with await broker.connect() as connection:
        async with connection.channel() as channel:
            await channel.declare_exchange(NAMES.ingress, "topic", durable=True)
            tap = await channel.declare_queue("tap", durable=True)
            await tap.bind(NAMES.ingress, "#")
        await apply(connection, PLAN)
        async with connection.channel() as channel:
            work = await channel.get_queue(WORK, ensure=False)
            for key in ("rent", "rent.#"):
                await work.bind(NAMES.ingress, key)
        ingress = next(one for one in PLAN.exchanges if one.name == NAMES.ingress)
        rows = broker.management.call("GET", f"bindings/{quote(broker.vhost, safe='')}")
        async with published(broker) as confirmed:
            await eventually(lambda: len(confirmed) > 50, what="jobs come in")
            await replacing(connection, Steps(), rows).exchange(ingress, PLAN)
            before = len(confirmed)
            await eventually(lambda: len(confirmed) > before + 50, what="jobs come in again")
        await as_planned(connection)
        # What came between the exchange and its bindings is in the unrouted queue, and daemons send it on.
        kept = await keys_in(connection, WORK) | await keys_in(connection, NAMES.unrouted)
        assert set(confirmed) <= kept
        assert set(confirmed[-20:]) <= await keys_in(connection, "tap")


# --- what nothing names any more ------------------------------------------------------------------


def left(*queues: str) -> list[Finding]:
    return [Finding("queue", queue, Found.EXTRA, messages=0) for queue in queues]


async def test_what_is_empty_is_removed_and_nothing_else(broker: Broker) -> None:
    old = plan_for(NAMES, ["rent", "mail"], (1, 2, 90))
    async with await broker.connect() as connection:
        await apply(connection, old)
        held = Finding("queue", NAMES.wait("mail", 2), Found.LEFT, messages=1)
        mail = [NAMES.work("mail"), NAMES.dead("mail"), *(NAMES.wait("mail", s) for s in (1, 90))]
        found = [*left(NAMES.wait("rent", 90), *mail), held]
        emptiness = Emptiness(connection, listed, GRACE_S)
        done = await Clearing(connection, NAMES, [], emptiness, Steps()).all(found)
        assert {one.name: one.status for one in done} == {
            NAMES.wait("rent", 90): Found.REMOVED,
            # A lane goes as a whole: a job that waits in it must find its work queue.
            **dict.fromkeys(mail, Found.EXTRA),
            held.name: Found.LEFT,
        }
        assert not (await exists(connection, "queue", NAMES.wait("rent", 90))).fit
        assert (await exists(connection, "queue", NAMES.work("mail"))).fit
        done = await Clearing(connection, NAMES, [], emptiness, Steps()).all(left(*mail, held.name))
        assert {one.status for one in done} == {Found.REMOVED}
        await as_planned(connection)


async def test_a_queue_that_turns_out_to_be_in_use_stays_and_is_bound_again(broker: Broker) -> None:
    gone = NAMES.wait("rent", 90)
    async with await broker.connect() as connection:
        await apply(connection, plan_for(NAMES, ["rent"], (1, 2, 90)))
        await put(connection, "", gone, "late")
        emptiness = Emptiness(connection, listed, GRACE_S)
        [one] = await Clearing(connection, NAMES, [], emptiness, Steps()).all(left(gone))
        assert one.status is Found.EXTRA
        assert "in use" in one.detail
        await put(connection, NAMES.route, wait_key("rent", 90), "and one more")
        assert await keys_in(connection, gone) == {"late", "and one more"}


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        ({"messages": 0, "messages_dlx": 0, "type": "quorum"}, False),
        ({"messages": 1, "messages_dlx": 0, "type": "quorum"}, True),  # held by a consumer
        ({"messages": 0, "messages_dlx": 1, "type": "quorum"}, True),  # on its way to another queue
        ({"type": "quorum"}, None),  # no statistics yet
        ({"messages": 0, "type": "quorum"}, None),
        ({"messages": 0, "type": "classic"}, False),
    ],
)
async def test_a_queue_holds_what_anybody_says_that_it_does(
    broker: Broker, row: dict[str, Any], holds: bool | None
) -> None:
    async def shown() -> dict[str, dict[str, Any]]:
        return {"q": row}

    async with await broker.connect() as connection:
        async with connection.channel() as channel:
            await channel.declare_queue("q", durable=True)
        assert await Emptiness(connection, shown, 0).holds("q") is holds
