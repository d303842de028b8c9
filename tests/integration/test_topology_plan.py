"""``acklast topology plan`` and ``verify`` against a real broker: what would change, and what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aio_pika
import pytest

from acklast.errors import Exit
from acklast_topology.carrier import carrier_properties
from acklast_topology.declare import apply
from acklast_topology.message import RawMessage
from acklast_topology.names import Names, wait_key
from acklast_topology.plan import plan_for
from acklast_topology.publish import Status
from acklast_topology.sender import Sender
from harness import Broker
from harness.command import Command

NAMES = Names()
LANE = "cleanup"
FRESH = {"action": "unseen", "name": "policies"}


@pytest.fixture
def command(tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    made = Command(tmp_path, broker.url, ledger_dsn, capsys)
    made.configure(broker=f'management_url = "{broker.management.base}"')
    return made


def planned(command: Command, *options: str) -> dict[str, dict[str, Any]]:
    """The changes by name; that policies of new queues cannot be seen yet is no word here."""
    document = command("topology", "plan", "--json", *options).document
    found = [one for one in document["changes"] if (one["action"], one["name"]) != tuple(FRESH.values())]
    assert document["to_do"] is any(one["action"] not in ("leave", "unseen") for one in found)
    return {one["name"]: one for one in found}


def on_broker(broker: Broker, act: Callable[[aio_pika.abc.AbstractConnection], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with await broker.connect() as connection:
            await act(connection)

    asyncio.run(run())


def test_an_empty_broker_is_to_get_everything(command: Command) -> None:
    found = planned(command)
    assert {one["action"] for one in found.values()} == {"create"}
    assert {NAMES.ingress, NAMES.work(LANE), NAMES.unrouted} <= found.keys()
    assert command("topology", "plan", "--exit-code").exit == Exit.UNFIT
    assert command("topology", "plan").exit == Exit.OK


def test_nothing_to_do_is_said(command: Command) -> None:
    command("topology", "apply")
    done = command("topology", "plan", "--exit-code")
    assert done.exit == Exit.OK
    assert done.out.startswith("Nothing is to be changed.")


def test_each_kind_of_change_has_its_line(command: Command, broker: Broker) -> None:
    vhost = quote(broker.vhost, safe="")

    async def spoil(connection: aio_pika.abc.AbstractConnection) -> None:
        await apply(connection, plan_for(NAMES, ["old"], (1,)))
        sender = await Sender.open(connection)
        properties = carrier_properties(RawMessage(b"{}"), "k")
        sent = await sender.send(NAMES.route, "old.work", b"{}", properties)
        assert sent.status is Status.CONFIRMED

    broker.management.call(
        "PUT",
        f"queues/{vhost}/{NAMES.work(LANE)}",
        {"durable": True, "arguments": {"x-queue-type": "classic"}},
    )
    on_broker(broker, spoil)
    broker.management.call("POST", f"bindings/{vhost}/e/{NAMES.ingress}/e/amq.fanout", {"routing_key": "#"})
    found = planned(command)
    assert found[NAMES.wait(LANE, 1)]["action"] == "create"
    assert found[NAMES.work(LANE)]["action"] == "migrate"
    assert "classic" in found[NAMES.work(LANE)]["detail"]
    assert found[NAMES.work("old")] | {"messages": 1, "action": "correct"} == found[NAMES.work("old")]
    assert found[NAMES.wait("old", 1)]["action"] == "remove"
    assert found[f"{NAMES.ingress} -> amq.fanout by #"]["action"] == "leave"
    said = command("topology", "plan").out
    assert f"~ migrate  queue    {NAMES.work(LANE)}: it is a classic queue" in said
    assert f"! correct  queue    {NAMES.work('old')}: holds 1 jobs, and no daemon reads lane old" in said
    verified = command("topology", "verify", "--json")
    assert verified.exit == Exit.CONFIG
    left = {one["name"] for one in verified.document["findings"] if one["status"] == "left"}
    assert left == {NAMES.work("old")}


def test_without_the_api_arguments_are_compared_and_the_rest_is_said_to_be_unseen(
    command: Command, broker: Broker
) -> None:
    command.configure(broker='management_url = "http://127.0.0.1:9"')
    on_broker(broker, lambda connection: apply(connection, plan_for(NAMES, [LANE], (1,))))
    on_broker(broker, lambda connection: odd(connection, NAMES.wait(LANE, 5)))
    document = command("topology", "plan", "--json").document
    actions = {one["name"]: one["action"] for one in document["changes"]}
    assert actions.pop("policies") == "unseen"
    assert actions.pop(NAMES.wait(LANE, 5)) == "migrate"
    assert set(actions.values()) == {"create"}
    assert NAMES.work(LANE) not in actions


async def odd(connection: aio_pika.abc.AbstractConnection, queue: str) -> None:
    async with connection.channel() as channel:
        await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})


def test_a_bucket_that_left_the_configuration_drains_by_itself(command: Command, broker: Broker) -> None:
    command("topology", "apply")

    async def wait(connection: aio_pika.abc.AbstractConnection) -> None:
        await apply(connection, plan_for(NAMES, [LANE], (1, 90)))
        sender = await Sender.open(connection)
        properties = carrier_properties(RawMessage(b"{}"), "k")
        assert (
            await sender.send(NAMES.route, wait_key(LANE, 90), b"{}", properties)
        ).status is Status.CONFIRMED

    on_broker(broker, wait)
    one = planned(command)[NAMES.wait(LANE, 90)]
    assert (one["action"], one["messages"]) == ("leave", 1)
    assert "by themselves, within 90 s" in one["detail"]
    assert command("topology", "verify").exit == Exit.OK
