"""Feeds the service manager's watchdog for as long as this process gets on, and no longer.

It runs in the event loop, so a loop that is blocked feeds nothing; and it looks whether what goes on inside
comes round, so a loop that turns around lanes that stand still does not either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from acklast.notify import Notify
from acklast.progress import Part, stuck
from acklast.telemetry.events import Emitter

_BEATS: Final = 3
"""In the time that the manager waits for one: one that is late is no alarm."""


class Watchdog:
    """Does nothing where the manager has no watchdog for this process."""

    def __init__(self, notify: Notify, emitter: Emitter, parts: Callable[[], Iterable[Part]]) -> None:
        """``parts``: what has to come round, and how it stands."""
        self._notify = notify
        self._emitter = emitter
        self._parts = parts
        self._why = ""
        self._task: asyncio.Task[None] | None = None
        self.ending = False
        """All is being brought to its end, within times of its own: from here on it is enough that the loop
        turns."""

    def start(self) -> None:
        if (every_s := self._notify.watchdog_s) is not None:
            self._task = asyncio.create_task(self._run(every_s / _BEATS), name="watchdog")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, every_s: float) -> None:
        while True:
            self.look()
            await asyncio.sleep(every_s)

    def why(self) -> str:
        """Why this process does not get on, or nothing."""
        return "" if self.ending else stuck(self._parts())

    def look(self) -> None:
        """Feed it, or say once why not."""
        why = self.why()
        if not why:
            self._notify.watchdog()
        if why == self._why:
            return
        if why and not self._why:
            self._emitter.notice("daemon.stuck", "error", why=why)
            self._notify.status(f"stuck: {why}")
        elif not why:
            self._emitter.notice("daemon.gets_on", was=self._why)
        self._why = why
