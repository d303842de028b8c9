"""What AMQP does not show, asked of the broker's management API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias
from urllib.parse import quote

import pytest

from acklast.errors import Exit
from acklast.management import looked_into
from acklast_topology.declare import apply
from acklast_topology.finding import Found
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from harness import eventually
from harness.broker import Broker
from harness.site import Site

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

SetPolicy: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

NAMES = Names()
PLAN = plan_for(NAMES, ["work"])


@pytest.fixture
def policy(broker: Broker) -> SetPolicy:
    """Sets a policy on every queue of the test's virtual host, and waits until it is in force."""
    vhost = quote(broker.vhost, safe="")

    def in_force(definition: dict[str, Any]) -> bool:
        queues = broker.management.call("GET", f"queues/{vhost}")
        return all(queue.get("effective_policy_definition") == definition for queue in queues)

    async def put(definition: dict[str, Any]) -> None:
        body = {"pattern": ".*", "definition": definition, "apply-to": "queues", "priority": 1}
        broker.management.call("PUT", f"policies/{vhost}/tidy", body)
        await eventually(lambda: in_force(definition), what="the policy is in force")

    return put


@pytest.mark.soak
async def test_a_policy_is_found_by_whoever_can_ask(broker: Broker, policy: SetPolicy) -> None:
    async with await broker.connect() as connection:
        await apply(connection, PLAN)
    base = broker.management.base
    assert await looked_into(PLAN, [broker.url], base) == []
    await policy({"expires": 3_600_000})
    found = await looked_into(PLAN, [broker.url], base)
    assert {finding.name for finding in found} == {queue.name for queue in PLAN.queues}
    assert {finding.status for finding in found} == {Found.DIFFERS}


async def test_where_nobody_answers_a_remark_says_what_was_not_seen(broker: Broker) -> None:
    [remark] = await looked_into(PLAN, [broker.url], "http://127.0.0.1:9")
    assert remark.status is Found.UNSEEN
    assert "policies" in remark.detail
    wrong = broker.url.replace("@", "-wrong@")
    [refused] = await looked_into(PLAN, [wrong], broker.management.base)
    assert refused.status is Found.UNSEEN
    assert "401" in refused.detail


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_daemon_does_not_start_on_a_policy_that_loses_messages(
    new_site: NewSite, broker: Broker, policy: SetPolicy
) -> None:
    async with new_site() as place:
        env = {"ACKLAST__BROKER__MANAGEMENT_URL": broker.management.base}
        with place.daemon(env=env) as well:
            await well.ready()
            assert await well.drained() == Exit.OK
            assert not well.said("topology.unseen")
        await policy({"delivery-limit": 20})
        with place.daemon(env=env) as daemon:
            assert await daemon.ended() == Exit.CONFIG
        with place.daemon() as blind:
            await blind.says("topology.unseen")
            await blind.ready()
            assert await blind.drained() == Exit.OK
