"""Fair turns: who is next where some have more waiting than others.

Start-time fair queueing. Every flow that waits has the virtual time of its next turn, and the least of them
is next; a turn costs its flow 1 / weight. So two flows that both wait get turns by their weights, whatever
each has waiting. One that comes new begins at the line's own virtual time, without credit for when it had
nothing waiting. That goes on with every turn, by one over the weights that wait: so whoever waits has its
turn, even if all the others come new each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_FORGET: Final = 64
"""So many flows that have nothing waiting are remembered before any is forgotten."""


class _Flow(Generic[T]):
    __slots__ = ("finish", "items", "queued", "weight")

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.weight = 1.0
        self.finish = 0.0
        """The virtual time at which its last turn is paid for."""
        self.queued = False
        """Whether it stands in the heap."""


class Fair(Generic[T]):
    """A line in which flows take turns by their weights. Within a flow the order is that of arrival.

    Of two flows that both wait all the while, with weights v and w, neither gets ahead of its part by more
    than a turn: over any time, turns / weight of the two differ by at most 1 / v + 1 / w.
    """

    def __init__(self) -> None:
        self._flows: dict[Hashable, _Flow[T]] = {}
        self._heads: list[tuple[float, int, Hashable]] = []
        self._now = 0.0
        self._weights = 0.0
        """The sum of the weights in the heap."""
        self._paid = 0.0
        """The latest virtual time at which a flow has paid for its last turn."""
        self._joined = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, item: T, flow: Hashable, weight: float = 1.0) -> None:
        """Stand at the end of a flow. ``weight`` is above 0; the latest counts."""
        line = self._flows.get(flow)
        if line is None:
            line = self._flows[flow] = _Flow()
        if line.queued:
            self._weights += weight - line.weight
        line.weight = weight
        line.items.append(item)
        self._size += 1
        if not line.queued:
            self._queue(flow, line, max(self._now, line.finish))

    def first(self) -> T:
        """Who is next.

        Raises:
            IndexError: nobody waits.
        """
        return self._flows[self._next()].items[0]

    def popleft(self) -> T:
        """Take out who is next: its flow pays a turn.

        Raises:
            IndexError: nobody waits.
        """
        flow = self._next()
        line, start = self._flows[flow], self._heads[0][0]
        self._now = max(start, self._now + 1 / max(self._weights, line.weight))
        self._unqueue(line)
        line.finish = start + 1 / line.weight
        self._paid = max(self._paid, line.finish)
        item = line.items.popleft()
        self._size -= 1
        if not self._size:
            self._forget_all()
        elif line.items:
            self._queue(flow, line, line.finish)
        elif len(self._flows) > _FORGET + 2 * len(self._heads):
            self._forget()
        return item

    def drop(self) -> None:
        """Take out who is next, who has left: no flow pays for it.

        Raises:
            IndexError: nobody waits.
        """
        flow = self._next()
        line, start = self._flows[flow], self._heads[0][0]
        self._unqueue(line)
        line.items.popleft()
        self._size -= 1
        if not self._size:
            self._forget_all()
        elif line.items:
            self._queue(flow, line, start)

    def take_out(self, wanted: Callable[[T], bool]) -> list[T]:
        """Take out all that are wanted; no flow pays for it."""
        taken: list[T] = []
        for line in self._flows.values():
            if any(map(wanted, line.items)):
                taken += filter(wanted, line.items)
                line.items = deque(item for item in line.items if not wanted(item))
        self._size -= len(taken)
        if not self._size:
            self._forget_all()
        return taken

    def _queue(self, flow: Hashable, line: _Flow[T], start: float) -> None:
        line.queued = True
        self._weights += line.weight
        self._joined += 1  # of equal times, who stood in line first
        heappush(self._heads, (start, self._joined, flow))

    def _unqueue(self, line: _Flow[T]) -> None:
        """Take the first out of the heap."""
        heappop(self._heads)
        line.queued = False
        self._weights -= line.weight

    def _next(self) -> Hashable:
        while True:
            flow = self._heads[0][2]
            line = self._flows[flow]
            if line.items:
                return flow
            # All that it had was taken out.
            self._unqueue(line)

    def _forget_all(self) -> None:
        """Nobody waits, so nobody was held up: all begin anew."""
        self._now, self._weights = max(self._now, self._paid), 0.0
        self._flows.clear()
        self._heads.clear()

    def _forget(self) -> None:
        """Drop the flows that have nothing waiting and nothing to pay off."""
        now = self._now
        self._flows = {flow: line for flow, line in self._flows.items() if line.queued or line.finish > now}
