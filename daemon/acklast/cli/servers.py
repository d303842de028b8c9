"""Connections of one command: to the broker and to the ledger, closed when it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from aio_pika.abc import AbstractConnection

from acklast.broker import Link
from acklast.config import Config, Declare
from acklast.config.rotation import Servers
from acklast.errors import BrokerUnavailable, TopologyError
from acklast.ledger.connect import Address
from acklast.ledger.migrate import check_schema_of
from acklast.ledger.postgres import PostgresLedger
from acklast.management import inspected, seen
from acklast.telemetry.events import Emitter
from acklast_topology.declare import apply
from acklast_topology.finding import Finding, Found
from acklast_topology.leftovers import stray_bindings
from acklast_topology.plan import Plan, plan_for
from acklast_topology.verify import left_behind, leftovers, verify

Look: TypeAlias = Callable[[AbstractConnection, Plan], Awaitable[list[Finding]]]


@asynccontextmanager
async def link_of(config: Config) -> AsyncIterator[Link]:
    """The broker, for as long as the command takes.

    Raises:
        BrokerUnavailable: the connection ended on the way.
    """
    link = Link(
        config.broker.addresses(),
        "command",
        Emitter(),
        heartbeat_s=config.broker.heartbeat_s,
        connect_timeout_s=config.broker.connect_timeout_s,
    )
    try:
        yield link
    except (ConnectionError, TimeoutError) as error:
        raise BrokerUnavailable(
            f"the broker stopped answering: {error or type(error).__name__}", "See its log, and try again"
        ) from error
    finally:
        await link.close()


@asynccontextmanager
async def broker_of(config: Config) -> AsyncIterator[AbstractConnection]:
    """A plain connection to the first broker that answers.

    Raises:
        BrokerUnavailable: none answers, or the connection ended on the way.
    """
    async with link_of(config) as link:
        yield await link.connect()


@asynccontextmanager
async def ledger_of(config: Config) -> AsyncIterator[PostgresLedger]:
    """The ledger, with as few connections as it needs.

    Raises:
        ConfigError, SchemaError: it must not be used like this.
        LedgerUnavailable: it does not answer.
    """
    ledger = await PostgresLedger.connect(
        config.ledger.address(), pool_size=1, allow_unsafe_server=config.ledger.allow_unsafe_server
    )
    try:
        yield ledger
    finally:
        await ledger.close()


async def fit_ledger(config: Config, servers: Servers) -> Address:
    """The ledger's address, with the password of the moment whenever it is used; its schema fits.

    Raises:
        ConfigError, SchemaError: it must not be used like this.
        LedgerUnavailable: it does not answer.
    """
    address = Address.of(servers.ledger, allow_unsafe_server=config.ledger.allow_unsafe_server)
    connection = await address.open()
    try:
        await check_schema_of(connection)
    finally:
        connection.terminate()
    return address


async def require_lane(config: Config, lane: str) -> None:
    """See that a lane is there to publish to, as ``declare`` allows: make it, or look for it.

    Raises:
        TopologyError: it is not. A job would end in the unrouted queue, confirmed and never run.
    """
    act = apply if config.declare is Declare.APPLY else verify
    async with broker_of(config) as connection:
        unfit = faults(await act(connection, plan_for(config.names, [lane], config.wait_buckets_s)))
    if unfit:
        first = unfit[0]
        raise TopologyError(f"{first.kind} {first.name} does not fit: {first.detail}", first.remedy)


async def verified(
    connection: AbstractConnection, plan: Plan, config: Config, look: Look = verify
) -> list[Finding]:
    """All that can be seen of the plan on the broker, by whatever way; changes nothing.

    ``look`` is what AMQP can tell where the management API cannot be asked.
    """
    shown = await seen(config.broker.addresses(), config.broker.management_url)
    found = inspected(plan, shown, config.broker.longest_unacked_s)
    if isinstance(shown, Finding):
        left = await left_behind(connection, config.names, config.unfair_lanes)
        return [*await look(connection, plan), *found, *left]
    found += await leftovers(connection, config.names, plan, shown.queues)
    return [*found, *stray_bindings(config.names, plan, shown.bindings), *_too_new(plan, shown.queues)]


def _too_new(plan: Plan, queues: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """A queue shows its policies once it has statistics, some seconds after it was made."""
    planned = {queue.name for queue in plan.queues}
    new = [row for row in queues if row["name"] in planned and "effective_policy_definition" not in row]
    if not new:
        return []
    detail = f"policies of {len(new)} queues that are new cannot be seen yet"
    return [Finding("policy", "policies", Found.UNSEEN, detail, "Look again in some seconds")]


def faults(findings: Sequence[Finding]) -> list[Finding]:
    """What keeps a daemon from starting."""
    return [finding for finding in findings if not finding.fit]
