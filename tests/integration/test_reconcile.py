"""Jobs that the broker has lost: found, told, and sent again where their messages are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import aio_pika
import asyncpg
import pytest

from acklast import custody, reconciler
from acklast import stuck as behind
from acklast.errors import Exit
from acklast.ledger.api import ManifestRow, State
from acklast_topology.contract import RawMessage
from acklast_topology.names import wait_key, work_key
from acklast_topology.publish import Job
from dev.rabbitmq import Node
from harness import Broker, eventually
from harness.scripted import LANE
from harness.site import NAMES, RUN, Site, one_receiver_else_soak, scripted, site

GATE = {"do": "wait", "gate": "go"}

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]


async def purge(place: Site, broker: Broker, queue: str, count: int) -> None:
    """Empty a queue as an operator would, once it holds that many."""

    async def there() -> bool:
        return (await place.ready()).get(queue) == count

    await eventually(there, 20, f"{count} in {queue}")
    broker.management.call("DELETE", f"queues/{broker.vhost}/{quote(queue, safe='')}/contents")


async def waits_in(place: Site) -> str:
    """The wait queue that holds something, once one does: a verdict is recorded before it is acted on."""

    async def found() -> str | None:
        return next((name for name in await place.ready() if ".wait." in name), None)

    queue: str = await eventually(found, what="a job waits")
    return queue


async def age(dsn: str) -> None:
    """All that the ledger knows happened an hour earlier."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "update acklast.jobs set available_at = available_at - interval '1 h',"
            " enqueued_at = enqueued_at - interval '1 h', recorded_at = recorded_at - interval '1 h'"
        )
    finally:
        await connection.close()


async def held(dsn: str) -> int:
    """How many deliveries the daemons hold while none is at work."""
    connection = await asyncpg.connect(dsn)
    try:
        held = "select coalesce(sum(held), 0) from acklast.lane_reports where in_flight = 0"
        return int(await connection.fetchval(held))
    finally:
        await connection.close()


def promise(job: Job, *, kept: bool) -> ManifestRow:
    message = custody.kept_raw(job.raw(), job.key) if kept else None
    return ManifestRow(job.lane, job.key, job.fingerprint, job.type, kept=message)


@one_receiver_else_soak
async def test_a_daemon_sends_again_what_a_purge_took(
    new_site: NewSite, broker: Broker, ledger_dsn: str
) -> None:
    async with new_site(custody="ledger", backoff_base_s=600, backoff_cap_s=600) as place:
        # One that was started, with headers that JSON could not keep; one that never was.
        waits = scripted("waits", "transient", "done", headers={"bytes": bytearray(b"\xff\0")})
        promised = scripted("promised", "done")
        await place.ledger.manifest(RUN, [promise(promised, kept=True)])
        await place.publish(waits)
        with place.daemon(env={"ACKLAST__LEDGER__RECONCILE_EVERY_S": "1"}) as daemon:
            await place.reaches("waits", State.WAITING)
            await purge(place, broker, await waits_in(place), 1)
            await age(ledger_dsn)
            await place.reaches("waits", State.DONE)
            await place.reaches("promised", State.DONE)
            # In one pass or in two: the promised one may have been found before the other was purged.
            await eventually(
                lambda: sum(line["sent"] for line in daemon.said("jobs.missing")) >= 2, 30, "both are told of"
            )
            await place.quiet()
            assert await daemon.drained() == Exit.OK
        assert sorted(effect.key for effect in place.log.effects()) == ["promised", "waits"]
        connection = await asyncpg.connect(ledger_dsn)
        assert await connection.fetchval("select count(*) from acklast.custody") == 0
        await connection.close()


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
@pytest.mark.soak
async def test_a_retry_that_the_broker_does_not_take_in_is_not_missing(
    new_site: NewSite, broker_node: Node, ledger_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "LOOK_S", 0.1)  # what the daemon holds it has told by then
    async with new_site(concurrency=1) as place:
        await place.publish(scripted("busy", GATE), scripted("retried", "transient", "done"))
        with place.daemon() as daemon:
            await eventually(place.log.calls, what="a job is at work")
            await asyncio.to_thread(broker_node.ctl, "set_vm_memory_high_watermark", "absolute", "10MB")
            try:
                place.open_gate("go")
                await place.reaches("retried", State.WAITING)
                await eventually(lambda: held(ledger_dsn), what="the daemon tells that it holds the job")
                await age(ledger_dsn)
                document = await place.command("jobs", "missing")
                [lane] = document["lanes"]
                assert (lane["missing"], lane["unproven"]) == (0, 1)
            finally:
                await asyncio.to_thread(broker_node.ctl, "set_vm_memory_high_watermark", "absolute", "1GB")
            await place.reaches("retried", State.DONE)
            assert await daemon.drained() == Exit.OK


async def test_the_command_tells_what_is_missing_and_sends_what_is_kept(
    broker: Broker, ledger_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "LOOK_S", 0.05)  # no daemon is there to tell what it holds
    async with site(tmp_path, broker.url, ledger_dsn) as place:
        jobs = [scripted("kept", "done"), scripted("lost", "done"), scripted("there", "done")]
        await place.ledger.manifest(RUN, [promise(job, kept=job.key == "kept") for job in jobs])
        await age(ledger_dsn)
        document = await place.command("jobs", "missing", code=Exit.UNFIT)
        [lane] = document["lanes"]
        assert (lane["missing"], lane["kept"], lane["sent"]) == (3, 1, 0)
        assert lane["examples"] == ["kept", "lost", "there"]
        document = await place.command("jobs", "missing", "--republish", code=Exit.UNFIT)
        [lane] = document["lanes"]
        assert (lane["missing"], lane["sent"], lane["examples"]) == (3, 1, ["lost", "there"])
        # With a message in the queue nothing is certain any more.
        document = await place.command("jobs", "missing")
        [lane] = document["lanes"]
        assert (lane["missing"], lane["unproven"]) == (0, 2)
        with place.daemon() as daemon:
            await place.reaches("kept", State.DONE)
            assert await daemon.drained() == Exit.OK


async def test_messages_behind_a_dead_letter_worker_are_told(
    broker: Broker, ledger_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind, "BETWEEN_S", 0.5)  # nothing else is on its way here
    async with site(tmp_path, broker.url, ledger_dsn) as place:
        queue = NAMES.wait(LANE, 1)
        async with place.connection.channel() as channel:
            await (await channel.get_queue(NAMES.work(LANE))).unbind(NAMES.route, work_key(LANE))
            route = await channel.get_exchange(NAMES.route)
            await route.publish(aio_pika.Message(b"", delivery_mode=2), wait_key(LANE, 1))

        async def told() -> bool:
            found, unseen = await behind.stuck(lambda: [broker.url], broker.management.base, {queue})
            assert not unseen
            return found == {queue: 1}

        await eventually(told, 60, "one message is stuck")
        assert (await behind.stuck(lambda: [broker.url], broker.management.base, {"other"}))[0] == {}
        assert (await behind.stuck(lambda: [broker.url], "http://127.0.0.1:9", {queue}))[1]


def test_a_message_comes_back_as_it_was() -> None:
    raw = RawMessage(
        body=b"\0body",
        content_type="application/json",
        headers={"n": 5, "b": bytearray(b"\xff"), "deep": {"list": [1, "two"]}, "x-death": [{}]},
        priority=7,
        type="a.v1",
        correlation_id="c",
        app_id="app",
        user_id="guest",
    )
    message = custody.kept_raw(raw, "key")
    assert message is not None
    back = custody.raw_of(message)
    assert back.headers == {"n": 5, "b": bytearray(b"\xff"), "deep": {"list": [1, "two"]}, "job-key": "key"}
    assert (back.body, back.priority, back.type) == (b"\0body", 7, "a.v1")
    assert (back.correlation_id, back.app_id) == ("c", "app")
    assert back.user_id is None
