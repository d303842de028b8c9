"""A broker that others administer: imported definitions, and users with the least rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias
from urllib.parse import quote, urlsplit, urlunsplit

import aio_pika
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.declare import apply
from acklast_topology.definitions import Permission, definitions, permissions
from acklast_topology.finding import Found
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from acklast_topology.publish import Publisher, Status
from harness.broker import Broker
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
Login: TypeAlias = Callable[[str], str]

NAMES = Names()


@pytest.fixture
def login(broker: Broker) -> Iterator[Login]:
    """Makes a user with the rights of a role in the test's virtual host; the URL to connect with."""
    made: list[str] = []
    vhost = quote(broker.vhost, safe="")

    def make(role: str) -> str:
        permission: Permission = next(one for one in permissions(NAMES) if one.role == role)
        user = f"{role}-{broker.vhost}"
        broker.management.call("PUT", f"users/{user}", {"password": "secret", "tags": ""})
        made.append(user)
        rights = {"configure": permission.configure, "write": permission.write, "read": permission.read}
        broker.management.call("PUT", f"permissions/{vhost}/{user}", rights)
        parts = urlsplit(broker.url)
        return urlunsplit(parts._replace(netloc=f"{user}:secret@{parts.hostname}:{parts.port}"))

    yield make
    for user in made:
        broker.management.call("DELETE", f"users/{user}")


async def test_imported_definitions_are_the_plan(broker: Broker) -> None:
    plan = plan_for(NAMES, ["rent", "mail"])
    vhost = quote(broker.vhost, safe="")
    broker.management.call("POST", f"definitions/{vhost}", definitions(plan, broker.vhost))
    bindings = broker.management.call("GET", f"bindings/{vhost}")
    async with await broker.connect() as connection:
        found = await apply(connection, plan)
    assert {finding.status for finding in found if finding.kind != "binding"} == {Found.PRESENT}
    assert broker.management.call("GET", f"bindings/{vhost}") == bindings


async def test_a_declarer_makes_all_of_it(login: Login) -> None:
    async with await aio_pika.connect(login("acklast-declarer")) as connection:
        assert all(finding.fit for finding in await apply(connection, plan_for(NAMES, ["rent"])))


async def test_a_daemon_that_may_configure_nothing_does_all_of_its_work(
    new_site: NewSite, login: Login
) -> None:
    async with new_site() as place:
        jobs = [scripted("again", "transient", "done"), scripted("never", "permanent")]
        await place.promise(jobs)
        async with Publisher.connect(login("acklast-publisher")) as publisher:
            async for result in publisher.publish_many(jobs):
                assert result.status is Status.CONFIRMED
        limited = {"ACKLAST__BROKER__URL": login("acklast-daemon"), "ACKLAST__DECLARE": "verify"}
        with place.daemon(env=limited) as daemon:
            await place.quiet()
            assert await daemon.drained() == Exit.OK
            assert not daemon.said("carrier.unconfirmed")
        assert (await place.job("again")).state is State.DONE
        assert (await place.job("never")).state is State.DEAD
