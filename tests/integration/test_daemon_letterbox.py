"""What the broker set aside becomes a letter of the ledger, once, whatever dies; its job is not left open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.contract import JSON, Reason
from acklast_topology.names import dead_key
from acklast_topology.publish import Publisher, Status
from acklast_topology.wire import Properties
from harness import eventually
from harness.daemon import Fault
from harness.scripted import LANE, TYPE
from harness.site import NAMES, Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

BODY = b'{"steps":[{"do":"done"}]}'

pytestmark = pytest.mark.parametrize("receiver", ["bulk"], indirect=True)


async def reject(place: Site, count: int) -> None:
    """Have the broker dead-letter what is in the work queue, as a consumer that is not acklast's would."""
    async with place.connection.channel() as channel:
        queue = await channel.get_queue(NAMES.work(LANE), ensure=False)
        for _ in range(count):
            await (await queue.get(timeout=30)).reject(requeue=False)

    async def arrived() -> bool:
        return (await place.ready()).get(NAMES.dead(LANE)) == count

    await eventually(arrived, what="all are in the dead queue")


async def send(
    place: Site, routing_key: str, key: str | None, body: bytes = BODY, exchange: str = NAMES.ingress
) -> None:
    headers: dict[str, Any] = {} if key is None else {"job-key": key}
    properties = Properties(content_type=JSON, message_type=TYPE, delivery_mode=2, headers=headers)
    if key is None:
        properties.message_id = "\x7f"  # a key that is none
    async with place.connection.channel() as channel:
        underlay = await channel.get_underlay_channel()
        await underlay.basic_publish(body, exchange=exchange, routing_key=routing_key, properties=properties)


async def letters(dsn: str) -> list[tuple[str, str, str | None, int]]:
    """Lane, reason, key and count of every letter."""
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("select lane, reason, key, seen from acklast.dead_letters order by id")
    await connection.close()
    return [(row["lane"], row["reason"], row["key"], row["seen"]) for row in rows]


async def filed(dsn: str, count: int) -> bool:
    return len(await letters(dsn)) == count


async def test_an_open_job_ends_as_dead_with_its_letter(new_site: NewSite, ledger_dsn: str) -> None:
    async with new_site() as place:
        jobs = [scripted("promised", "done"), scripted("unknown", "done", run=None)]
        await place.promise(jobs[:1])
        await place.publish(*jobs)
        await reject(place, 2)
        with place.daemon() as daemon:
            await daemon.says("letter.filed", key="promised", reason=Reason.BROKER_REJECTED)
            await place.reaches("unknown", State.DEAD)
            view = await place.reaches("promised", State.DEAD)
            await eventually(place.is_drained, what="the dead queue is empty")
            assert await daemon.drained() == Exit.OK
        assert view.reason == Reason.BROKER_REJECTED
        assert {(reason, key, seen) for _, reason, key, seen in await letters(ledger_dsn)} == {
            (Reason.BROKER_REJECTED, "promised", 1),
            (Reason.BROKER_REJECTED, "unknown", 1),
        }
        assert place.log.calls() == []


async def test_a_copy_of_a_job_that_is_over_leaves_no_letter(new_site: NewSite, ledger_dsn: str) -> None:
    async with new_site() as place:
        job = scripted("twice", "done")
        await place.promise([job])
        await place.publish(job)
        with place.daemon() as daemon:
            await place.reaches("twice", State.DONE)
            assert await daemon.drained() == Exit.OK
        await place.publish(job)
        await reject(place, 1)
        with place.daemon() as daemon:
            await daemon.ready()
            await eventually(place.is_drained, what="the dead queue is empty")
            assert await daemon.drained() == Exit.OK
        assert (await place.job("twice")).state is State.DONE
        assert await letters(ledger_dsn) == []


async def test_the_copy_of_a_job_that_runs_goes_back_to_the_lane(new_site: NewSite, ledger_dsn: str) -> None:
    async with new_site() as place:
        job = scripted("busy", {"do": "wait", "gate": "go"})
        await place.promise([job])
        await place.publish(job)
        with place.daemon() as daemon:
            await place.reaches("busy", State.CLAIMED)
            await send(place, dead_key(LANE), "busy", job.payload, exchange=NAMES.route)

            async def back() -> bool:
                return any(".wait." in queue for queue in await place.ready())

            await eventually(back, what="the copy waits")
            place.open_gate("go")
            await place.reaches("busy", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert await letters(ledger_dsn) == []


@pytest.mark.parametrize("point", ["recorded", "acked"])
async def test_a_crash_between_commit_and_ack_leaves_one_letter(
    new_site: NewSite, ledger_dsn: str, point: str
) -> None:
    async with new_site(lease_s=2) as place:
        await send(place, LANE, "job")
        await send(place, LANE, None)
        await reject(place, 2)
        for _ in range(2):
            with place.daemon(fault=Fault(point)) as daemon:
                await daemon.ended()
        with place.daemon() as daemon:
            await daemon.ready()
            # Not when the queue is empty: what the daemon has taken and not filed yet, a drain gives back.
            await eventually(lambda: filed(ledger_dsn, 2), what="both letters are filed")
            await eventually(place.is_drained, what="the dead queue is empty")
            assert await daemon.drained() == Exit.OK
        found = await letters(ledger_dsn)
        assert [reason for _, reason, _, _ in found] == [Reason.BROKER_REJECTED] * 2
        assert {key for _, _, key, _ in found} == {None, "job"}
        assert (await place.job("job")).state is State.DEAD


async def test_what_no_lane_is_bound_for_is_filed_and_what_has_one_by_now_is_sent_on(
    new_site: NewSite, ledger_dsn: str
) -> None:
    async with new_site() as place:
        vain = [scripted("late", "done")]
        await place.promise(vain)
        async with place.connection.channel() as channel:
            queue = await channel.get_queue(NAMES.work(LANE), ensure=False)
            for key in (LANE, f"{LANE}.#"):
                await queue.unbind(NAMES.ingress, key)
        async with Publisher.connect(place.broker_url) as publisher:
            assert (await publisher.publish(vain[0])).status is Status.CONFIRMED
        await send(place, "nobody.north", "typo")
        await send(place, "Not-A-Lane", "odd")
        with place.daemon() as daemon:
            await place.reaches("late", State.DONE)
            await daemon.says("letter.filed", key="typo", lane="nobody")
            await daemon.says("letter.filed", key="odd", lane="")
            await daemon.says("unrouted.sent_on", key="late", lane=LANE)
            await eventually(place.is_drained, what="the unrouted queue is empty")
            assert await daemon.drained() == Exit.OK
        assert {found[:3] for found in await letters(ledger_dsn)} == {
            ("nobody", Reason.UNROUTED, "typo"),
            ("", Reason.UNROUTED, "odd"),
        }
