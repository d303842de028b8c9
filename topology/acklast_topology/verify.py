"""Looks whether the plan is true on a broker, with no permission to configure anything."""

from __future__ import annotations

from aio_pika.abc import AbstractConnection

from acklast_topology.declare import exists
from acklast_topology.finding import Finding, Found
from acklast_topology.plan import Plan


async def verify(connection: AbstractConnection, plan: Plan) -> list[Finding]:
    """Look for each exchange and queue by a passive declaration; changes nothing.

    The last finding says what AMQP does not show: a passive declaration compares no arguments, and bindings
    can be seen only by making them, or by a message, which would then be in the queue.

    Raises:
        ConnectionError: the connection ended.
        TimeoutError: the broker did not answer.
    """
    found = [await exists(connection, "exchange", exchange.name) for exchange in plan.exchanges]
    found += [await exists(connection, "queue", queue.name) for queue in plan.queues]
    return [*found, _unseen(plan)]


def _unseen(plan: Plan) -> Finding:
    arguments = len(plan.queues) + len(plan.exchanges)
    return Finding(
        "binding",
        "arguments and bindings",
        Found.UNSEEN,
        f"the arguments of {arguments} exchanges and queues and {len(plan.bindings)} bindings cannot be seen "
        "over AMQP without configure permission",
        "`acklast topology apply` checks them, run by a user that may configure them",
    )
