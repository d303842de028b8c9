"""How long rows stay, what became of those whose time was over, and where to look for them next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Self, TypeAlias

from acklast.errors import AcklastError, Exit

SESSIONS_S: Final = 90 * 86_400.0
"""How long an ended worker session is kept at least, in seconds: other daemons' lanes may name it for longer
than one's own."""
LATE: Final = 0.01
"""How late a row may go, as a part of the shortest window: no stretch is looked at more often than that."""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long one lane's rows stay after their last change, in seconds.

    ``done_s`` is for done and cancelled jobs, ``dead_s`` for dead jobs and letters, ``payload_s`` for what a
    letter holds of its message.
    """

    done_s: float
    dead_s: float
    payload_s: float


Keeps: TypeAlias = Mapping[str, Keep]
"""The windows by lane. Rows of a lane that is not among them stay."""


def shortest_s(keeps: Keeps) -> float:
    """No row that is written now is due earlier than this."""
    return min(min(keep.done_s, keep.dead_s, keep.payload_s) for keep in keeps.values())


def sessions_s(keeps: Keeps) -> float:
    """How long an ended worker session is kept: as long as a job may name it."""
    return max(SESSIONS_S, *(max(keep.done_s, keep.dead_s) for keep in keeps.values()))


@dataclass(frozen=True, slots=True)
class Pruned:
    """Rows that were removed; ``payloads`` are letters that stay without payload and headers; the
    letters of ``redrives`` are not counted."""

    done: int = 0
    dead: int = 0
    cancelled: int = 0
    attempts: int = 0
    letters: int = 0
    payloads: int = 0
    sessions: int = 0
    redrives: int = 0

    def __add__(self, other: Self) -> Pruned:
        return Pruned(*(getattr(self, name) + getattr(other, name) for name in COUNTS))

    @property
    def rows(self) -> int:
        """All of them together."""
        return sum(getattr(self, name) for name in COUNTS)


COUNTS: Final = tuple(one.name for one in fields(Pruned))


@dataclass(frozen=True, slots=True)
class Step:
    """One batch of a pass: what it removed, and how far the pass has come, in pages."""

    pruned: Pruned
    at: int
    of: int


class AlreadyPruning(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """Another pass is under way on the same ledger."""

    exit = Exit.INCOMPLETE

    def __init__(self) -> None:
        super().__init__("another pass prunes this ledger now", "Wait until it has ended, then try again")


@dataclass(slots=True)
class Dues:
    """When each stretch of a table has something to prune again, as its last look told.

    Nothing in a stretch is due before the earliest of what it held then, and what has been written since is
    not due before the shortest window is over. So a pass reads what is due and leaves the rest alone. This is
    a memory and no state: a process that has none looks at everything once.
    """

    clock: Callable[[], float] = time.monotonic
    _keeps: Keeps | None = None
    _due: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def begin(self, keeps: Keeps) -> None:
        """A pass with these windows begins: what was learned with others is forgotten."""
        if keeps != self._keeps:
            self._keeps = dict(keeps)
            self._due.clear()

    def due(self, table: str, node: int, stretch: int) -> bool:
        """Whether to look now. ``node`` is the table's file: a rewritten table holds other rows there."""
        at = self._due.get((table, node, stretch))
        return at is None or at <= self.clock()

    def looked(self, table: str, node: int, stretch: int, next_s: float | None) -> None:
        """Nothing is left there that is due within ``next_s`` seconds (None: nothing at all)."""
        assert self._keeps is not None, "a pass has begun"
        most_s = shortest_s(self._keeps)
        wait_s = most_s if next_s is None else min(max(next_s, most_s * LATE), most_s)
        self._due[table, node, stretch] = self.clock() + wait_s
