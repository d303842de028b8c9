"""The daemon outlives its connections: it comes back, and what it was at work on is done once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias
from urllib.parse import quote

from acklast.errors import Exit
from acklast.ledger.api import State
from harness import Broker, eventually
from harness.daemon import Daemon
from harness.scripted import LANE
from harness.site import BUCKETS_S, NAMES, Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]


async def close_connections(broker: Broker, *roles: str) -> None:
    """Have the broker close the daemon's connections of these roles, as an operator would."""
    wanted = {f"acklast {role}" for role in roles}

    def connections() -> dict[str, str]:
        found: list[dict[str, Any]] = broker.management.call("GET", f"vhosts/{broker.vhost}/connections")
        named = ((one.get("client_properties", {}).get("connection_name"), one["name"]) for one in found)
        return {role: name for role, name in named if role in wanted}

    # The API learns of a connection a few seconds after the broker does.
    await eventually(lambda: connections().keys() == wanted, 20, f"the API knows {wanted}")
    for name in connections().values():
        broker.management.call("DELETE", f"connections/{quote(name, safe='')}")


async def came_back(daemon: Daemon, role: str) -> None:
    await daemon.says("broker.connected", role=role, generation=2)


@one_receiver_else_soak
async def test_a_lost_connection_is_replaced_and_no_effect_repeats(new_site: NewSite, broker: Broker) -> None:
    async with new_site() as place:
        await place.publish(
            scripted("waits", "transient", "done"), scripted("busy", {"do": "wait", "gate": "go"})
        )
        with place.daemon() as daemon:
            await place.reaches("waits", State.DONE)
            await close_connections(broker, "consumer", "publisher")
            await came_back(daemon, "consumer")
            # The copy that the broker delivered again meets its own job at work, and waits.
            await daemon.says("job.settled", disposition="held", key="busy")
            await came_back(daemon, "publisher")
            await place.publish(scripted("after", "transient", "done"))
            await place.reaches("after", State.DONE)
            place.open_gate("go")
            await place.reaches("busy", State.DONE)
            await place.quiet()
            assert await daemon.drained() == Exit.OK
        assert len(place.log.calls("busy")) == len(place.log.effects("busy")) == 1
        assert [call.ambiguous for call in place.log.calls()] == [False] * 5


def delete_queue(broker: Broker, name: str) -> None:
    broker.management.call("DELETE", f"queues/{broker.vhost}/{quote(name, safe='')}")


async def test_a_deleted_queue_is_declared_again(new_site: NewSite, broker: Broker) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            await daemon.ready()
            delete_queue(broker, NAMES.work(LANE))
            await daemon.says("topology.repaired")
            await place.publish(scripted("again", "done"))
            await place.reaches("again", State.DONE)
            for seconds in BUCKETS_S:
                delete_queue(broker, NAMES.wait(LANE, seconds))
            await place.publish(scripted("waits", "transient", "done"))
            await place.reaches("waits", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert [call.key for call in place.log.calls()] == ["again", "waits", "waits"]


@one_receiver_else_soak
async def test_a_handler_that_cancels_its_own_task_ends_in_an_outcome(new_site: NewSite) -> None:
    async with new_site() as place:
        await place.publish(scripted("odd", "cancel_itself", "done"))
        with place.daemon() as daemon:
            await place.reaches("odd", State.DONE)
            await place.quiet()
            assert await daemon.drained() == Exit.OK
        assert [call.ambiguous for call in place.log.calls("odd")] == [False, True]
