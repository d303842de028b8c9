"""What the service manager is told while a drain lasts, and when it is asked for more time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from acklast.notify import Notify

MORE_S: Final = 15.0
"""What is asked for at a time: a process that stands still is ended so much later, whatever its deadline."""
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Left:
    """How far a drain has come."""

    running: int
    """Handlers at work."""
    held: int
    """Deliveries that are not settled, theirs included."""
    settled: int
    """Since the drain began."""
    left_s: float
    """Until the deadline; below 0 past it."""
    away: str = ""
    """Which server it waits for in vain, if any."""

    def text(self) -> str:
        """The line that the manager shows."""
        said = f"draining: {self.running} running, {self.held - self.running} to give back or record"
        said += f", {self.settled} settled, {max(0.0, self.left_s):.0f} s left"
        return f"{said}; {self.away}" if self.away else said


def gets_on(before: Left, after: Left) -> bool:
    """Whether there is a reason for more time: something was settled, or a handler may be at work still."""
    if after.settled > before.settled or after.held < before.held:
        return True
    return after.running > 0 and after.left_s > 0


@asynccontextmanager
async def leaving(notify: Notify, look: Callable[[], Left]) -> AsyncIterator[None]:
    """Tell the manager how the drain goes while the context lasts; at its end ask for the time to close."""
    notify.stopping(look().text(), MORE_S)
    task = asyncio.create_task(_tell(notify, look), name="leaving")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    notify.extend("drained; closing connections", MORE_S)


async def _tell(notify: Notify, look: Callable[[], Left]) -> None:
    before = look()
    while True:
        await asyncio.sleep(_LOOK_S)
        after = look()
        if gets_on(before, after):
            notify.extend(after.text(), MORE_S)
        else:
            notify.status(after.text())
        before = after
