"""Long handlers: the broker allows no delivery to be held for ever, so a carrier takes its place.

RabbitMQ ends the channel (up to 4.2) or the consumer (from 4.3) of whoever leaves a delivery unacknowledged
for longer than ``consumer_timeout``, 30 minutes by default, and every other delivery on it is sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from acklast.drain import Tasks
from acklast.lane import Lane
from acklast.settle import Delivery
from acklast_topology import contract
from acklast_topology.contract import Envelope


class Overlong:
    """Looks after deliveries whose handlers have run for ``longest_s`` seconds."""

    def __init__(self, lanes: Sequence[Lane], tasks: Tasks, longest_s: float) -> None:
        self._lanes = lanes
        self._tasks = tasks
        self._longest_s = longest_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="overlong")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(min(self._longest_s / 10, 10.0))
            for lane, delivery in self.found(time.monotonic()):
                await _hand_on(lane, delivery)

    def found(self, now: float) -> list[tuple[Lane, Delivery]]:
        """The deliveries whose turn it is, and their lanes.

        Only those inside an attempt: their claim stands in the ledger. One that waits for the ledger or for
        a permit would come back as one more that waits.
        """
        before = now - self._longest_s
        return [
            (lane, delivery)
            for delivery, task in self._tasks.since(before)
            for lane in self._lanes
            if task in lane.attempting and not delivery.over
        ]


async def _hand_on(lane: Lane, delivery: Delivery) -> None:
    envelope = contract.parse(delivery.raw)
    if isinstance(envelope, Envelope) and await lane.settler.hand_on(delivery, envelope.key):
        held_s = round(time.monotonic() - delivery.taken_at, 3)
        lane.emitter.notice("delivery.handed_on", lane=lane.name, key=envelope.key, held_s=held_s)
