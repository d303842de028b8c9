"""The gate of a lane: shut while its budget cannot start anything soon or an operator has paused it, so that
no delivery waits here for nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

HOARD_S: Final = 30.0
"""A delivery that would wait longer for its start waits in the broker's queue, where any daemon takes it."""
OPEN_AHEAD_S: Final = 1.0
"""How long before the next start a shut gate opens: a consumer takes a few milliseconds to be set up."""


def serves(open_now: bool, held: int, wait_s: float) -> bool:
    """Whether a lane may take deliveries in: it holds permits, and the next is free in ``wait_s``."""
    return held > 0 and wait_s <= (HOARD_S if open_now else OPEN_AHEAD_S)


class Gate:
    """What a lane's consumers and its deliveries tell each other."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.opened = asyncio.Event()
        self.shut = asyncio.Event()
        self.quiet = asyncio.Event()
        """No consumer takes anything in: what is given back goes to somebody else."""
        self.quiet.set()
        self._taking: set[object] = set()
        self.paused = False
        """An operator has paused the lane: nothing starts, whatever its budget allows."""
        self._would = is_open
        self._set()

    @property
    def is_open(self) -> bool:
        return self.opened.is_set()

    def move(self, to_open: bool) -> None:
        """Open or shut, as far as the budget goes."""
        self._would = to_open
        self._set()

    def pause(self, paused: bool) -> None:
        """Shut whatever the budget says, or leave it to the budget again."""
        self.paused = paused
        self._set()

    def _set(self) -> None:
        to_open = self._would and not self.paused
        (self.opened if to_open else self.shut).set()
        (self.shut if to_open else self.opened).clear()

    def takes(self, consumer: object) -> None:
        """A consumer of the lane takes deliveries in."""
        self._taking.add(consumer)
        self.quiet.clear()

    def rests(self, consumer: object) -> None:
        """It takes nothing in now."""
        self._taking.discard(consumer)
        if not self._taking:
            self.quiet.set()

    async def left(self) -> bool:
        """Wait until a delivery can be given back (True), or until the gate is open again (False)."""
        quiet, opened = asyncio.ensure_future(self.quiet.wait()), asyncio.ensure_future(self.opened.wait())
        try:
            await asyncio.wait({quiet, opened}, return_when=asyncio.FIRST_COMPLETED)
            return not self.is_open
        finally:
            quiet.cancel()
            opened.cancel()
