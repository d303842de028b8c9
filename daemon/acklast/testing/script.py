"""What goes wrong in a test, and where: planned faults, which strike when a job comes to their point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from acklast.faults import POINTS, Point
from acklast.testing.stage import Heir


@dataclass(frozen=True, slots=True)
class Crash:
    """The daemon dies as by SIGKILL, ``after_s`` seconds after the point. By default: after the effect.

    ``heir``: its restart goes on at once, or ``Heir.OTHER``, another one, when its lease has run out.
    """

    at: Point = "effect"
    after_s: float = 0.0
    heir: Heir = Heir.SAME


@dataclass(frozen=True, slots=True)
class Freeze:
    """The daemon stands still for two leases, its channels die, and another daemon takes over.

    When it goes on, its verdict comes from somebody who owns the job no more.
    """

    at: Point = "effect"
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Drain:
    """SIGTERM: the daemon drains, then its restart goes on. By default: in the middle of the attempt."""

    at: Point = "started"
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The broker ends the daemon's channels: what is unacked comes again, though it is being worked on."""

    at: Point = "started"
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The broker delivers another copy of the job's message."""

    at: Point = "started"
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LedgerAway:
    """The ledger answers nobody for ``for_s`` seconds."""

    for_s: float = 5.0
    at: Point = "effect"
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Hang:
    """Instead of the handler something runs that never ends: its timeout has to end it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The handler runs to its end, and then this is what it raises: the answer to its call was lost."""

    error: BaseException = field(default_factory=lambda: ConnectionResetError("the answer was lost"))


Struck: TypeAlias = Crash | Freeze | Drain | Disconnect | Duplicate | LedgerAway
"""What strikes the daemon, at a point."""
Acted: TypeAlias = Hang | Lost | BaseException
"""What the handler seems to do. An exception (``RateLimited(30)``) is raised in its place."""
Fault: TypeAlias = Struck | Acted


@dataclass(slots=True)
class Planned:
    """One entry of a script. None stands for any lane, any key."""

    fault: Fault
    lane: str | None
    key: str | None
    left: int | None
    """How often it is still to strike; None: every time."""
    skip: int = 0
    struck: bool = False

    def __post_init__(self) -> None:
        """
        Raises:
            TypeError: the fault is none, such as a class in the place of one of it.
            ValueError: there is no such point.
        """
        if not isinstance(self.fault, Fault):
            raise TypeError(
                f"{self.fault!r} is no fault: give one like Crash(), or an exception, not its class"
            )
        if isinstance(self.fault, Struck) and self.fault.at not in POINTS:
            raise ValueError(f"no point {self.fault.at!r} in a delivery: there is {', '.join(POINTS)}")

    def fits(self, lane: str, key: str) -> bool:
        """Whether it is meant for this job, now. The first ``skip`` that fit are let go by."""
        if self.left == 0 or self.lane not in (None, lane) or self.key not in (None, key):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.left is not None:
            self.left -= 1
        self.struck = True
        return True

    def __str__(self) -> str:
        whose = "/".join(part for part in (self.lane, self.key) if part) or "any job"
        return f"{self.fault!r} for {whose}"


class Script:
    """The faults of a test, in the order in which they were planned."""

    def __init__(self) -> None:
        self._planned: list[Planned] = []

    def plan(self, planned: Planned) -> None:
        self._planned.append(planned)

    def striking(self, point: str, lane: str, key: str) -> list[Struck]:
        """What strikes the daemon that takes this job past this point; spent by being asked for."""
        return [
            one.fault
            for one in self._planned
            if isinstance(one.fault, Struck) and one.fault.at == point and one.fits(lane, key)
        ]

    def acting(self, lane: str, key: str) -> Acted | None:
        """What the handler that starts now seems to do; spent by being asked for."""
        for one in self._planned:
            if isinstance(one.fault, Acted) and one.fits(lane, key):
                return one.fault
        return None

    def unspent(self) -> list[Planned]:
        """What was planned and never struck: such a test proves nothing."""
        return [one for one in self._planned if one.left or not one.struck]
