"""Dramatiq. By itself it declares classic queues; told to declare a quorum queue, it runs on that."""

from __future__ import annotations

from typing import Any

import dramatiq
from aio_pika.abc import AbstractConnection
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from bench.meter import hit
from bench.queues import QUORUM, Outgoing
from bench.site import QUEUE, Site, text


class QuorumBroker(RabbitmqBroker):
    def _build_queue_arguments(self, queue_name: str) -> dict[str, Any]:
        return {**super()._build_queue_arguments(queue_name), **QUORUM}


broker = QuorumBroker(url=Site.of().broker_url)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=QUEUE)
def handle(number: int, text: str) -> None:
    hit()


async def declare(_: AbstractConnection) -> str:
    broker.declare_queue(QUEUE, ensure=True)
    return QUEUE


def message(number: int) -> Outgoing:
    """As ``handle.send(number, text)`` would send it."""
    return Outgoing(handle.message(number, text(number)).encode())
