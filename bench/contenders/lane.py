"""acklast: a lane with one real handler. The daemon that runs it is ``acklast run`` itself."""

from __future__ import annotations

import os
from dataclasses import dataclass

from aio_pika.abc import AbstractConnection

from acklast import App, Context
from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from bench.loading import Keys
from bench.meter import hit
from bench.queues import BenchError, Outgoing
from bench.site import body

LANE = "bench"
TYPE = "bench.v1"
NAMES = Names()
KEYS = Keys(os.environ.get("BENCH_KEYS", Keys.RUN))

app = App()


@dataclass(slots=True)
class Payload:
    number: int
    text: str


@app.job(TYPE, lane=LANE)
async def handle(payload: Payload, context: Context) -> None:
    hit()


async def declare(connection: AbstractConnection) -> str:
    """The lane's whole topology, as the daemon would declare it."""
    findings = await apply(connection, plan_for(NAMES, [LANE]))
    if bad := [finding for finding in findings if not finding.fit]:
        raise BenchError(f"the topology does not fit: {bad}")
    return NAMES.work(LANE)


def message(number: int) -> Outgoing:
    """A job whose key begins with its run's name, as ``acklast enqueue`` makes them, or is a hash."""
    properties = {
        "content_type": "application/json",
        "headers": {"job-key": KEYS.new(number), "run": "bench"},
        "message_type": TYPE,
    }
    return Outgoing(body(number), properties, LANE, NAMES.ingress)
