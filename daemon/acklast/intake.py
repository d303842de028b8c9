"""The intake of a lane: what the broker handed over and no slot is free for waits here as it came.

A delivery gets its task when a slot is free for it, and not before: a thousand tasks that wait in line would
cost more than the deliveries that they hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from acklast.pacing.slots import Slots
from acklast.progress import Part, Round
from acklast.settle import Delivery


class Line(Protocol):
    """Deliveries that wait, in the order in which they are to start."""

    def __len__(self) -> int: ...

    def popleft(self) -> Delivery:
        """Take out who is next."""


class Intake:
    """Hands deliveries to ``start``, in their order, as the lane's slots come free."""

    def __init__(self, slots: Slots, start: Callable[[Delivery], None], line: Line | None = None) -> None:
        """``line``: another order than that in which they came."""
        self._slots = slots
        self._start = start
        self._came: deque[Delivery] = deque()
        self._waiting: Line = self._came if line is None else line
        self.lane = ""
        """Its name, for people."""
        self._round = Round()
        self._starting = 0
        """Tasks that were made and have not run yet: each takes its slot when it does."""
        slots.on_free = self.go_on

    def __len__(self) -> int:
        """Deliveries that wait."""
        return len(self._waiting)

    def take(self, delivery: Delivery) -> None:
        """Start it now if a slot is free and nobody came before, else when its turn comes."""
        if self._has_room() and not self._waiting:
            self._begin(delivery)
        else:
            self._came.append(delivery)

    def go_on(self) -> None:
        """Start the next one if a slot is free; all of them where the lane was closed: to be given back.

        Called when a slot came free and when a delivery has ended: one that broke the contract never took
        the slot that it was started for.
        """
        while self._waiting and self._has_room():
            self._begin(self._waiting.popleft())

    def begun(self) -> None:
        """The first act of each task that was started."""
        self._starting -= 1

    def recall(self, before: float) -> list[Delivery]:
        """Take out what came before a moment of the monotonic clock and waits still: the oldest first."""
        recalled = []
        while self._came and self._came[0].taken_at < before:
            recalled.append(self._came.popleft())
        return recalled

    def part(self, now: float) -> Part:
        """Whether what waits is started while slots are free, at a moment of the monotonic clock.

        A slot is held by whoever waits for a permit, for the ledger or for a handler: nothing of that is
        standing still.
        """
        idle = len(self) > 0 and self._slots.held < self._slots.count and not self._slots.closed
        return Part(f"lane {self.lane}, with jobs and free slots,", now - self._round.at if idle else 0.0)

    def _has_room(self) -> bool:
        return self._slots.closed or self._slots.held + self._starting < self._slots.count

    def _begin(self, delivery: Delivery) -> None:
        self._round.again()
        self._starting += 1
        self._start(delivery)
