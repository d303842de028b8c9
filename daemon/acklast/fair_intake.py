"""The intake of a lane that is fair: jobs start in the turns of their flows, and no flow fills the lane.

What waits in the work queue behind a large flow can start only when it is seen. So what is too much of a flow
is set aside on the broker, at once and once, and the work queue stays short (``pacing.sieve``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from acklast.intake import Intake
from acklast.pacing.fair import Fair
from acklast.pacing.sieve import Sieve
from acklast.pacing.slots import Slots
from acklast.pacing.turn import Turn, Turns
from acklast.settle import Delivery
from acklast_topology.contract import Malformed, parse

_DEATH: Final = "x-death"
"""The broker's own header: the message has waited in a wait queue."""

SetAside: TypeAlias = Callable[[Delivery, str, int], None]
"""Moves a delivery, with the key of its job, to a fair queue."""


class FairLine:
    """The deliveries of one lane that wait, each with the fair queue that it came from, 0 for none."""

    def __init__(self, sieve: Sieve) -> None:
        self._sieve = sieve
        self._line: Fair[tuple[Delivery, Turn, int]] = Fair()

    def __len__(self) -> int:
        return len(self._line)

    def join(self, delivery: Delivery, turn: Turn, queue: int) -> None:
        """Stand in line; counted by the sieve already."""
        self._line.append((delivery, turn, queue), turn.flow, turn.weight)

    def popleft(self) -> Delivery:
        """Take out who is next."""
        return self._out(*self._line.popleft())

    def recall(self, before: float, queue: int) -> list[Delivery]:
        """Take out what came from one queue before a moment of the monotonic clock: the oldest first."""
        found = self._line.take_out(lambda one: one[2] == queue and one[0].taken_at < before)
        return sorted((self._out(*one) for one in found), key=_taken_at)

    def _out(self, delivery: Delivery, turn: Turn, queue: int) -> Delivery:
        if queue:
            self._sieve.went(turn.flow, queue, time.monotonic())
        else:
            self._sieve.gone(turn.flow)
        return delivery


class FairIntake(Intake):
    """Hands deliveries to ``start`` in fair turns, as the lane's slots come free."""

    def __init__(
        self,
        slots: Slots,
        start: Callable[[Delivery], None],
        set_aside: SetAside,
        turns: Turns,
        sieve: Sieve,
    ) -> None:
        self._line = FairLine(sieve)
        super().__init__(slots, start, self._line)
        self._set_aside = set_aside
        self._turns = turns
        self._sieve = sieve

    def take(self, delivery: Delivery) -> None:
        """Take what came from the work queue: start it, have it wait here, or set it aside."""
        if self._slots.closed:
            self._begin(delivery)
            return
        turn = delivery.turn = self._turns.of(delivery.raw)
        returned = _DEATH in delivery.raw.headers
        queue = self._sieve.place(turn.flow, time.monotonic(), returned=returned)
        if queue is None:
            self._line.join(delivery, turn, 0)
            self.go_on()
            return
        envelope = parse(delivery.raw)
        if isinstance(envelope, Malformed):
            # It has no key to travel under, and its end takes no slot.
            self._begin(delivery)
        else:
            self._set_aside(delivery, envelope.key, queue)

    def take_from(self, queue: int, delivery: Delivery) -> None:
        """Take what came from a fair queue."""
        turn = delivery.turn = self._turns.of(delivery.raw)
        self._sieve.came(turn.flow, queue, time.monotonic())
        self._line.join(delivery, turn, queue)
        self.go_on()

    def recall(self, before: float) -> list[Delivery]:
        """Take out what came from the work queue before a moment and waits still: the oldest first."""
        return self._line.recall(before, 0)

    def recall_from(self, queue: int, before: float) -> list[Delivery]:
        """The same for a fair queue."""
        return self._line.recall(before, queue)

    def inlet(self, queue: int) -> tuple[Callable[[Delivery], None], Callable[[float], list[Delivery]]]:
        """What the consumer of a fair queue hands its deliveries to, and asks them back from."""
        return partial(self.take_from, queue), partial(self.recall_from, queue)


def _taken_at(delivery: Delivery) -> float:
    return delivery.taken_at
