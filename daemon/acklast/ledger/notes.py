"""Which deliveries were acknowledged, until a flush takes the news along. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Place: TypeAlias = tuple[str, str]

CLAIMS: Final = 20_000
"""Claims whose tickets are remembered. One that is retried is never noted, and makes room in its time."""


@dataclass(slots=True)
class Notes:
    """Acknowledged deliveries: by the tickets of one session's claims, and the others by their fence."""

    session: int = 0
    tickets: list[int] = field(default_factory=list)
    fences: dict[Place, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tickets) + len(self.fences)

    def without(self, places: set[Place]) -> tuple[Notes, Notes]:
        """Those of other jobs than these, and the rest: one statement must not write a row twice."""
        rest = {place: self.fences[place] for place in places if place in self.fences}
        others = {place: fence for place, fence in self.fences.items() if place not in rest}
        return Notes(self.session, self.tickets, others), Notes(fences=rest)

    def add(self, earlier: Notes) -> None:
        """Take back what was not written. Of two sessions' tickets only the later's are kept."""
        self.fences = earlier.fences | self.fences
        if not self.tickets:
            self.session = earlier.session
        if self.session == earlier.session:
            self.tickets = earlier.tickets + self.tickets


@dataclass(slots=True)
class Claims:
    """The claims that this process was given: the fence, the session and the ticket of each job's last."""

    _held: dict[Place, tuple[int, int, int]] = field(default_factory=dict)

    def given(self, place: Place, fence: int, session: int, ticket: int) -> None:
        self._held[place] = (fence, session, ticket)
        if len(self._held) > CLAIMS:
            del self._held[next(iter(self._held))]

    def settle(self, place: Place, fence: int, notes: Notes) -> None:
        """Note that the delivery of this fence was acknowledged: by its ticket where that is known."""
        held_fence, session, ticket = self._held.pop(place, (None, 0, 0))
        if not notes.tickets:
            notes.session = session
        if held_fence == fence and notes.session == session:
            notes.tickets.append(ticket)
        else:
            notes.fences[place] = fence


def ranges(tickets: Iterable[int]) -> list[tuple[int, int]]:
    """The tickets as ranges, both ends included, in order."""
    found: list[tuple[int, int]] = []
    for ticket in sorted(tickets):
        if found and ticket <= found[-1][1] + 1:
            found[-1] = (found[-1][0], ticket)
        else:
            found.append((ticket, ticket))
    return found
