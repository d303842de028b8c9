"""The intake of a lane: what the broker handed over and no slot is free for waits here as it came.

A delivery gets its task when a slot is free for it, and not before: a thousand tasks that wait in line would
cost more than the deliveries that they hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from acklast.pacing.slots import Slots
from acklast.settle import Delivery


class Intake:
    """Hands deliveries to ``start``, in their order, as the lane's slots come free."""

    def __init__(self, slots: Slots, start: Callable[[Delivery], None]) -> None:
        self._slots = slots
        self._start = start
        self._waiting: deque[Delivery] = deque()
        slots.on_free = self.go_on

    def __len__(self) -> int:
        """Deliveries that wait."""
        return len(self._waiting)

    def take(self, delivery: Delivery) -> None:
        """Start it now if a slot is free and nobody came before, else when its turn comes."""
        if self._slots.free and not self._waiting:
            self._start(delivery)
        else:
            self._waiting.append(delivery)

    def go_on(self) -> None:
        """Start the next one if a slot is free; all of them where the lane was closed: to be given back.

        Called when a slot came free and when a delivery has ended: one that broke the contract never took
        the slot that it was started for.
        """
        while self._waiting and self._slots.free:
            delivery = self._waiting.popleft()
            self._start(delivery)
            if not self._slots.closed:
                # Its task takes the slot a moment later. Should another come first, it waits in line there.
                return
