"""Looks whether the plan is true on a broker, with no permission to configure anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aio_pika.abc import AbstractConnection

from acklast_topology.declare import exists, ready
from acklast_topology.finding import Finding, Found
from acklast_topology.inspect import Rows
from acklast_topology.leftovers import Holding, leftover, unplanned
from acklast_topology.names import Names
from acklast_topology.plan import FAIR_QUEUES, Plan


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


async def left_behind(connection: AbstractConnection, names: Names, lanes: Iterable[str]) -> list[Finding]:
    """The fair queues of ``lanes`` that hold jobs: of lanes that are fair no more, and read none.

    Raises:
        ConnectionError: the connection ended.
        TimeoutError: the broker did not answer.
    """
    found = []
    for lane in lanes:
        if (await exists(connection, "queue", names.fair(lane, FAIR_QUEUES[0]))).fit:
            queues = [names.fair(lane, number) for number in FAIR_QUEUES]
            counts = [(await ready(connection, queue))[0] for queue in queues]
            found += [_left(lane, queue, count) for queue, count in zip(queues, counts, strict=True) if count]
    return found


async def leftovers(connection: AbstractConnection, names: Names, plan: Plan, queues: Rows) -> list[Finding]:
    """The queues of the namespace that the plan does not name, with what they hold.

    ``queues`` are as the management API lists them.

    Raises:
        ConnectionError: the connection ended.
        TimeoutError: the broker did not answer.
    """
    rows = {row["name"]: row for row in queues}
    return [
        leftover(names, plan, queue, await _holding(connection, queue, rows[queue]))
        for queue in unplanned(names, plan, queues)
    ]


async def _holding(connection: AbstractConnection, queue: str, row: Mapping[str, Any]) -> Holding:
    """The API knows what is under way, some seconds late; the queue itself what is ready now."""
    messages, consumers = await ready(connection, queue)
    listed = int(row.get("messages", 0)) + int(row.get("messages_dlx", 0))
    return Holding(max(messages, listed), max(consumers, int(row.get("consumers", 0))))


def _left(lane: str, queue: str, count: int) -> Finding:
    return Finding(
        "queue",
        queue,
        Found.LEFT,
        f"holds {count} jobs, and lane {lane} has no fair_by to read them",
        f"Set fair_by in [lanes.{lane}] again until its fair queues are empty, then run `acklast topology"
        " apply --prune`",
        count,
    )
