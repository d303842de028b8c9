"""Whatever the broker does: no effect is cut or repeated, the daemon comes back, and says once what was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import aio_pika
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.publish import Job
from dev.rabbitmq import Node
from harness import Broker, eventually
from harness.daemon import Daemon
from harness.manager import Manager
from harness.proxy import Proxy
from harness.scripted import LANE
from harness.site import NAMES, Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

HEARTBEAT_S = 2
GATE = {"do": "wait", "gate": "go"}


def busy(count: int) -> list[Job]:
    """Jobs that are at work until the gate opens."""
    return [scripted(f"busy-{number}", GATE) for number in range(count)]


async def all_at_work(place: Site, count: int) -> None:
    await eventually(lambda: len(place.log.calls()) >= count, what=f"{count} jobs are at work")


async def all_done_once(place: Site, daemon: Daemon, keys: list[str]) -> None:
    """Open the gate: every job ends with one call and one effect, and the daemon drains in good order."""
    place.open_gate("go")
    for key in keys:
        await place.reaches(key, State.DONE)
    await place.quiet()
    assert await daemon.drained() == Exit.OK
    assert sorted(call.key for call in place.log.calls()) == sorted(keys), "an effect was cut, or came again"
    assert len(place.log.effects()) == len(keys)


async def evaluate(node: Node, expression: str) -> None:
    await asyncio.to_thread(node.ctl, "eval", expression)


CANCEL = (
    "[rabbit_channel:send_command(proplists:get_value(channel_pid, C), {{'basic.cancel',"
    ' proplists:get_value(consumer_tag, C), true}}) || C <- rabbit_amqqueue:consumers_all(<<"{vhost}">>)].'
)
CHANNEL_ERROR = (  # what rabbit_channel:do does, which 4.3 has no more
    "[gen_server:cast(P, {{method, {{'basic.ack', 999999999, false}}, none, noflow}})"
    " || P <- rabbit_channel:list(),"
    ' rabbit_channel:info(P, [vhost]) =:= [{{vhost, <<"{vhost}">>}}]].'
)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [(CANCEL, "the broker cancelled the consumer"), (CHANNEL_ERROR, "unknown delivery tag 999999999")],
    ids=["cancelled", "channel-error"],
)
@one_receiver_else_soak
async def test_a_consumer_that_ends_is_replaced_on_the_same_connection(
    new_site: NewSite, broker: Broker, broker_node: Node, expression: str, reason: str
) -> None:
    """Acks are on their way all the time: one on a channel that is closed would end the connection."""
    async with new_site() as place:
        await place.publish(*busy(4))
        with place.daemon() as daemon:
            await all_at_work(place, 4)
            flow = [scripted(f"flow-{number}", "done") for number in range(300)]
            publishing = asyncio.create_task(place.publish(*flow))
            await evaluate(broker_node, expression.format(vhost=broker.vhost))
            said = await daemon.says("lane.interrupted")
            assert reason in said["reason"]
            await eventually(lambda: len(daemon.said("lane.consuming")) == 2)
            await publishing
            await all_done_once(place, daemon, [job.key for job in [*busy(4), *flow]])
        assert [line["generation"] for line in daemon.said("broker.connected", role="consumer")] == [1]
        assert len(daemon.said("lane.interrupted")) == 1


@one_receiver_else_soak
@pytest.mark.soak
async def test_a_connection_that_is_half_open_is_given_up_on_both_sides(
    new_site: NewSite, broker: Broker
) -> None:
    async with new_site(heartbeat_s=HEARTBEAT_S) as place, Proxy(broker.url) as proxy:
        await place.publish(*busy(2), scripted("again", "transient", "done"))
        with place.daemon(env={"ACKLAST_BROKER_URL": proxy.url}) as daemon:
            await all_at_work(place, 3)
            await place.reaches("again", State.DONE)
            proxy.swallow(True)
            for role in ("consumer", "publisher"):
                await daemon.says("broker.silent", role=role)
            await daemon.says("broker.unavailable", role="consumer")
            proxy.swallow(False)
            for role in ("consumer", "publisher"):
                await place.publish(scripted(f"after-{role}", "transient", "done"))
                await daemon.says("broker.connected", role=role, generation=2)
            place.open_gate("go")
            await place.quiet()
            assert await daemon.drained() == Exit.OK
        assert len(place.log.effects("busy-0")) == len(place.log.effects("busy-1")) == 1
        assert len(place.log.effects()) == 5
        for event in ("lane.interrupted", "broker.unavailable"):
            assert len(daemon.said(event, role="consumer") or daemon.said(event)) == 1, "said once an outage"


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
@pytest.mark.soak
async def test_a_broker_that_stands_still_is_left_and_found_again(
    new_site: NewSite, broker_node: Node, tmp_path: Path
) -> None:
    with Manager(tmp_path) as manager:
        async with new_site(heartbeat_s=HEARTBEAT_S) as place:
            await place.publish(*busy(2))
            with place.daemon(env=manager.env) as daemon:
                await all_at_work(place, 2)
                await daemon.ready()
                broker_node.pause()
                try:
                    await daemon.says("broker.silent", role="consumer")
                    await daemon.says("broker.unavailable", role="consumer")
                    away = "consuming 0 of 1 lanes; no broker can be used"
                    await eventually(lambda: away in manager.statuses()[-1])
                finally:
                    broker_node.resume()
                await eventually(lambda: len(daemon.said("lane.consuming")) == 2)
                await eventually(lambda: manager.statuses()[-1] == "consuming 1 lanes")
                await all_done_once(place, daemon, ["busy-0", "busy-1"])


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_under_an_alarm_retries_wait_and_all_else_goes_on(
    new_site: NewSite, broker_node: Node, tmp_path: Path
) -> None:
    def alarm(limit: str) -> None:
        broker_node.ctl("set_vm_memory_high_watermark", "absolute", limit)

    with Manager(tmp_path) as manager:
        async with new_site(concurrency=1) as place:
            retried = [scripted(f"retried-{number}", "transient", "done") for number in range(3)]
            await place.publish(*busy(1), *retried, scripted("plain", "done"))
            with place.daemon(env=manager.env) as daemon:
                await all_at_work(place, 1)
                await daemon.ready()
                await asyncio.to_thread(alarm, "10MB")
                try:
                    place.open_gate("go")
                    await place.reaches("plain", State.DONE)
                    await daemon.says("broker.blocked", role="publisher")
                    assert await place.exit_of("check") == Exit.UNFIT
                    await eventually(lambda: "retries wait: the broker takes in no" in manager.statuses()[-1])
                finally:
                    await asyncio.to_thread(alarm, "1GB")
                await daemon.says("broker.unblocked")
                await eventually(lambda: manager.statuses()[-1] == "consuming 1 lanes")
                await place.quiet()
                assert await daemon.drained() == Exit.OK
            assert len(place.log.effects()) == 5
            assert len(place.log.calls()) == 8, (
                "a carrier that was not confirmed in time is no second attempt"
            )
            assert not daemon.said("lane.interrupted")
            assert len(daemon.said("broker.blocked")) == 1


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_queue_that_was_made_otherwise_is_not_consumed_until_it_is_put_right(
    new_site: NewSite, broker: Broker, tmp_path: Path
) -> None:
    def delete() -> None:
        path = f"queues/{quote(broker.vhost, safe='')}/{quote(NAMES.work(LANE), safe='')}"
        broker.management.call("DELETE", path)

    async def made_otherwise() -> bool:
        """Whether the classic queue is there: the daemon may be quicker."""
        await asyncio.to_thread(delete)
        try:
            async with place.connection.channel() as channel:
                await channel.declare_queue(NAMES.work(LANE), durable=True)
        except aio_pika.exceptions.ChannelPreconditionFailed:
            return False
        return True

    with Manager(tmp_path) as manager:
        async with new_site(management=broker.management.base) as place:
            await place.publish(*busy(2))
            with place.daemon(env=manager.env) as daemon:
                await all_at_work(place, 2)
                await daemon.ready()
                await eventually(made_otherwise)
                why = await daemon.says("lane.interrupted", level="error")
                assert "x-dead-letter-exchange" in why["reason"]
                assert "acklast topology apply" in why["reason"], "the remedy"
                await eventually(lambda: "consuming 0 of 1 lanes; work: queue" in manager.statuses()[-1])
                assert await place.exit_of("check") == Exit.UNFIT
                await place.publish(scripted("meanwhile", "done"))  # it waits among the unrouted
                await asyncio.to_thread(delete)
                await eventually(lambda: manager.statuses()[-1] == "consuming 1 lanes")
                await place.publish(scripted("after", "done"))
                await all_done_once(place, daemon, ["busy-0", "busy-1", "meanwhile", "after"])
            assert len(daemon.said("lane.interrupted", level="error")) == 1, "said once, and not at each look"
