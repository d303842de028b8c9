"""Celery with late acks, on a quorum queue, as its optimisation guide has it for many short tasks."""

from __future__ import annotations

from uuid import uuid4

from celery import Celery
from kombu.serialization import dumps

from bench.contenders.plain import declare
from bench.meter import hit
from bench.queues import Outgoing
from bench.site import QUEUE, Site, text

__all__ = ["declare", "message"]

site = Site.of()
app = Celery("bench", broker=site.broker_url)
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    task_default_queue=QUEUE,
    task_default_queue_type="quorum",
    # "If you have lots of short tasks ... you want this number to be large. Say 64, or 128".
    worker_prefetch_multiplier=max(1, site.prefetch // site.concurrency),
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="bench")
def handle(number: int, text: str) -> None:
    hit()


def message(number: int) -> Outgoing:
    """As ``handle.delay(number, text)`` would send it."""
    task_id = str(uuid4())
    made = app.amqp.as_task_v2(task_id, "bench", (number, text(number)), {})
    content_type, _, encoded = dumps(made.body, "json")
    properties = {
        "content_type": content_type,
        "content_encoding": "utf-8",
        "headers": made.headers,
        "correlation_id": task_id,
    }
    return Outgoing(encoded.encode(), properties)
