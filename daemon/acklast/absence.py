"""When a job is surely not in the broker: what looks at its lane's queues prove. Pure.

The broker cannot be asked for a job. But where a lane's queues are empty, and no daemon holds a delivery that
it has not started, every job that was due before has reached the ledger: whichever of those is still open
there, with nobody at work on it, has no carrier any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

SLACK: Final = timedelta(seconds=120)
"""How long a job may be on its way between two queues, or wait for another's claim to end."""
_DOUBTS: Final = 3
"""So many answers in a row that count neither a message nor a consumer are believed: a broker that is busy
gives one instead of an error."""


@dataclass(frozen=True, slots=True)
class Look:
    """A lane's queues at a moment of the ledger's clock, and what its daemons held when that was read.

    ``ready`` is None where the broker did not say. ``held`` was read after the look before this one.
    """

    at: datetime
    ready: int | None
    consumers: int
    held: int


@dataclass(slots=True)
class Absence:
    """What the looks at one lane prove.

    ``hold``: whoever holds a delivery longer than that without starting it gives it back to its queue.
    """

    hold: timedelta
    proven: datetime | None = None
    """A job that was due before, less ``SLACK``, is not in the broker unless it came back there since."""
    _empty: list[datetime] = field(default_factory=list)
    _doubtful: int = 0

    def saw(self, look: Look) -> None:
        """Take a look into account. They come in order."""
        if self._empty and look.held == 0:
            # What had left the queue by then, and is not held, is claimed or done.
            self._prove(self._empty[-1])
        past = [at for at in self._empty if look.at - at >= self.hold]
        if past:
            self._prove(past[-1])
            self._empty = self._empty[len(past) :]
        if self._is_empty(look):
            self._empty.append(look.at)

    def _is_empty(self, look: Look) -> bool:
        doubtful = look.ready == 0 and not look.consumers
        self._doubtful = self._doubtful + 1 if doubtful else 0
        return look.ready == 0 and (not doubtful or self._doubtful >= _DOUBTS)

    def _prove(self, at: datetime) -> None:
        self.proven = max(at, self.proven or at)

    def covers(self, due_at: datetime) -> bool:
        """Whether a job that was due then, and has not moved since, is surely not in the broker."""
        return self.proven is not None and due_at < self.proven - SLACK
