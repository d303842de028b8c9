"""The sieve of a lane that is fair: what is kept to be started from here, and what is set aside.

A queue shows its head alone, so whoever is to find a small run behind a large one has to take the large one
out of the way. What is kept of a flow is bounded; the rest of it goes to one of the lane's fair queues, once,
and comes from there as it is started. So the lane's work queue stays short, and whatever comes new is seen.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

LODGED_S: Final = 10.0
"""A flow of which nothing came out of its fair queue for so long may be kept here again: where it shares the
queue with a larger one, what is new of it does not wait behind that."""


@dataclass(slots=True)
class _Lodging:
    """Where a flow's jobs are set aside."""

    queue: int
    seen: float
    """When the first of them went there or the last one came from there; later ones that go do not count."""
    aside: int = 0
    """Jobs that went and have not come, as far as this daemon knows."""
    waiting: int = 0
    """Jobs that came from there and wait here."""


class Sieve:
    """Decides for each job that comes from the work queue. Times are in seconds, of any monotonic clock."""

    def __init__(self, room: int, queues: int) -> None:
        """``room``: how many jobs from the work queue may wait here. Fair queues count from 1."""
        self._room = room
        self._queues = range(1, queues + 1)
        self._kept: dict[Hashable, int] = {}
        self._total = 0
        self._lodgings: dict[Hashable, _Lodging] = {}

    def place(self, flow: Hashable, now: float, *, returned: bool = False) -> int | None:
        """The fair queue for a job from the work queue; None where it is kept, and counted as such.

        A flow may have as many jobs here as there is room left: one alone half of it, and of ten each an
        eleventh. So there always is room for the next.

        ``returned``: it has waited in its turn once before, and need not go behind what is aside.
        """
        lodging = self._lodging(flow, now)
        if (lodging is None or returned) and self._kept.get(flow, 0) < self._room - self._total:
            self._kept[flow] = self._kept.get(flow, 0) + 1
            self._total += 1
            return None
        if lodging is None:
            lodging = self._lodgings[flow] = _Lodging(self._emptiest(now), now)
        lodging.aside += 1
        return lodging.queue

    def gone(self, flow: Hashable) -> None:
        """A job that was kept waits no more."""
        self._total -= 1
        left = self._kept[flow] - 1
        if left:
            self._kept[flow] = left
        else:
            del self._kept[flow]

    def came(self, flow: Hashable, queue: int, now: float) -> None:
        """A job came from a fair queue, to wait here: more of its flow may be behind it."""
        lodging = self._lodgings.get(flow)
        if lodging is None:
            lodging = self._lodgings[flow] = _Lodging(queue, now)
        if lodging.queue == queue:
            lodging.seen = now
            lodging.aside = max(0, lodging.aside - 1)
            lodging.waiting += 1

    def went(self, flow: Hashable, queue: int, now: float) -> None:
        """A job from a fair queue waits no more."""
        lodging = self._lodgings.get(flow)
        if lodging is not None and lodging.queue == queue:
            lodging.seen = now
            lodging.waiting = max(0, lodging.waiting - 1)

    def _lodging(self, flow: Hashable, now: float) -> _Lodging | None:
        lodging = self._lodgings.get(flow)
        if lodging is not None and _over(lodging, now):
            del self._lodgings[flow]
            return None
        return lodging

    def _emptiest(self, now: float) -> int:
        """The queue with the least in it, as far as this daemon knows: with nothing where there is one."""
        self._lodgings = {flow: one for flow, one in self._lodgings.items() if not _over(one, now)}
        load = dict.fromkeys(self._queues, 0)
        for lodging in self._lodgings.values():
            load[lodging.queue] += 1 + lodging.aside + lodging.waiting
        return min(load, key=load.__getitem__)


def _over(lodging: _Lodging, now: float) -> bool:
    return not lodging.waiting and now - lodging.seen > LODGED_S
