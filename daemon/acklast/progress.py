"""Whether a process gets on: what decides that the watchdog is fed. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass


class Round:
    """When something that goes on for ever last came round, in seconds on the monotonic clock."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = time.monotonic()

    def again(self) -> None:
        """It came round."""
        self.at = time.monotonic()


@dataclass(frozen=True, slots=True)
class Part:
    """Something that has to come round by itself, whatever broker, ledger and handlers do."""

    name: str
    still_s: float = 0.0
    """Seconds since it last did; 0 where it has nothing to do."""
    within_s: float = 60.0
    """How long it may take where everything that it waits for runs into its time limit."""
    ended: bool = False
    """It goes on no more, and nobody will start it again."""
    excuse: str = ""
    """Why it waits for something that is known to be away."""


def stuck(parts: Iterable[Part]) -> str:
    """What stands still by our own fault, in words; nothing where all goes on.

    A quiet lane, a pause, a long handler and an outage are no fault: none of them keeps a part from coming
    round, or it has that for an excuse.
    """
    for part in parts:
        if part.ended:
            return f"{part.name} has ended"
        if part.still_s > part.within_s and not part.excuse:
            return f"{part.name} stands still for {part.still_s:.0f} s"
    return ""
