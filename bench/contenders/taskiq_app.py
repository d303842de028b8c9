"""taskiq over taskiq-aio-pika: a quorum queue, as it declares it, and an ack when the task was executed."""

from __future__ import annotations

from uuid import uuid4

from aio_pika.abc import AbstractConnection
from taskiq.message import TaskiqMessage
from taskiq_aio_pika import AioPikaBroker
from taskiq_aio_pika.queue import Queue

from bench.meter import hit
from bench.queues import Outgoing
from bench.site import QUEUE, Site, text

site = Site.of()
broker = AioPikaBroker(site.broker_url, qos=site.prefetch, task_queues=[Queue(name=QUEUE)])


@broker.task("bench")
async def handle(number: int, text: str) -> None:
    hit()


async def declare(_: AbstractConnection) -> str:
    await broker.startup()
    await broker.shutdown()
    return QUEUE


def message(number: int) -> Outgoing:
    """As ``handle.kiq(number, text)`` would send it."""
    task_id = uuid4().hex
    told = TaskiqMessage(
        task_id=task_id, task_name="bench", labels={}, args=[number, text(number)], kwargs={}
    )
    made = broker.formatter.dumps(told)
    return Outgoing(made.message, {"headers": {"task_id": task_id, "task_name": "bench"}})
