"""FastStream: a subscriber that acks when its handler has returned."""

from __future__ import annotations

from dataclasses import dataclass

from faststream import AckPolicy, FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

from bench.contenders.plain import declare, message
from bench.meter import hit
from bench.site import QUEUE, Site

__all__ = ["declare", "message"]


@dataclass(slots=True)
class Payload:
    number: int
    text: str


site = Site.of()
broker = RabbitBroker(site.broker_url, default_channel=Channel(prefetch_count=site.prefetch))
app = FastStream(broker)


@broker.subscriber(RabbitQueue(QUEUE, declare=False), ack_policy=AckPolicy.REJECT_ON_ERROR, no_reply=True)
async def handle(payload: Payload) -> None:
    hit()
