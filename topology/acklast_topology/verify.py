"""Looks whether the plan is true on a broker, with no permission to configure anything."""

from __future__ import annotations

from aio_pika.abc import AbstractConnection

from acklast_topology.declare import exists
from acklast_topology.finding import Finding
from acklast_topology.plan import Plan


async def verify(connection: AbstractConnection, plan: Plan) -> list[Finding]:
    """Look for each exchange and queue by a passive declaration; changes nothing.

    That compares no arguments, and bindings can be seen only by making them, or by a message, which would
    then be in the queue: ``inspect`` does both from what the management API shows.

    Raises:
        ConnectionError: the connection ended.
        TimeoutError: the broker did not answer.
    """
    found = [await exists(connection, "exchange", exchange.name) for exchange in plan.exchanges]
    return found + [await exists(connection, "queue", queue.name) for queue in plan.queues]
