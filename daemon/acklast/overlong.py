"""The broker allows no delivery to be held for ever: what is at work goes on under a carrier, and what only
waits goes back to its queue.

RabbitMQ ends the channel (up to 4.2) or the consumer (from 4.3) of whoever leaves a delivery unacknowledged
for longer than ``consumer_timeout``, 30 minutes by default, and every other delivery on it is sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from acklast.drain import Tasks
from acklast.lane import Lane
from acklast.progress import Part
from acklast.settle import Delivery
from acklast_topology import contract
from acklast_topology.contract import Envelope


class Overlong:
    """Looks after deliveries that have been held for ``longest_s`` seconds."""

    def __init__(self, lanes: Sequence[Lane], tasks: Tasks, longest_s: float) -> None:
        self._lanes = lanes
        self._tasks = tasks
        self._longest_s = longest_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="overlong")

    def part(self, now: float) -> Part:
        """Whether it looks, at a moment of the monotonic clock."""
        return Part("the look at long deliveries", ended=self._task is not None and self._task.done())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(min(self._longest_s / 10, 10.0))
            held = [one for one, _ in self._tasks.since(time.monotonic() - self._longest_s) if not one.over]
            await self.look_after(held)

    async def look_after(self, held: Sequence[Delivery]) -> None:
        """Have each of these leave its channel.

        One whose claim stands in the ledger leaves a carrier. One that waits (for a permit, for the ledger,
        for the broker to take its carrier) goes back: its task finds that out when it is let go on.
        """
        given_back = 0
        for delivery in held:
            lane = next((lane for lane in self._lanes if delivery in lane.claimed), None)
            if lane is not None:
                await _hand_on(lane, delivery)
            elif not delivery.over:
                given_back += await self._lanes[0].settler.give_back(delivery)  # the same for every lane
        if given_back:
            self._lanes[0].emitter.notice("deliveries.given_back", count=given_back, held_s=self._longest_s)


async def _hand_on(lane: Lane, delivery: Delivery) -> None:
    envelope = contract.parse(delivery.raw)
    if isinstance(envelope, Envelope) and await lane.settler.hand_on(delivery, envelope.key):
        held_s = round(time.monotonic() - delivery.taken_at, 3)
        lane.emitter.notice("delivery.handed_on", lane=lane.name, **delivery.told(), held_s=held_s)
