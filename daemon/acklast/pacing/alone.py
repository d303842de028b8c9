"""The one place of a process for jobs that may be what ends it.

A claim that stands when the process ends counts as a crash. So a suspect starts only when no other one is
running, and when those that were claimed together with it have given up their claims.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from acklast.pacing.slots import Slots

Place: TypeAlias = tuple[str, str]


class Alone:
    """Suspects by lane and key, from when they are known as such until their claims are recorded."""

    def __init__(self) -> None:
        self.suspects: set[Place] = set()
        self._slot = Slots(1)
        self._before: set[Place] = set()
        self._gone: asyncio.Future[None] | None = None

    @property
    def taken(self) -> bool:
        """Whether a suspect has the place: the others stand down, and come back later."""
        return bool(self._slot.held)

    async def take(self, place: Place) -> None:
        """Take the place, which must be free, and wait until the other suspects of now have stood down.

        Raises:
            Draining: nothing more is to be started.
        """
        await self._slot.take()
        try:
            self._before = self.suspects - {place}
            if self._before:
                self._gone = asyncio.get_running_loop().create_future()
                await self._gone
        except BaseException:
            self._slot.give()
            raise
        finally:
            self._gone = None

    def give(self) -> None:
        """Leave the place."""
        self._slot.give()

    def recorded(self, place: Place) -> None:
        """The claim of this one stands no more."""
        self.suspects.discard(place)
        self._before.discard(place)
        if self._gone is not None and not self._before and not self._gone.done():
            self._gone.set_result(None)

    def close(self) -> None:
        """Start nothing more."""
        self._slot.close()
