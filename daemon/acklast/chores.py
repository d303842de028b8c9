"""What goes on beside the lanes: tasks that a drain does not wait for."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from acklast.errors import AcklastError, LedgerUnavailable
from acklast.progress import Part
from acklast.telemetry.events import Emitter
from acklast.unquoted import unquoted
from acklast_topology.calls import only_real_cancellation


class Chore(ABC):
    """One such task."""

    name: ClassVar[str]
    _emitter: Emitter
    _task: asyncio.Task[None] | None = None
    _complained: frozenset[str] = frozenset()
    """The kinds of errors that were told of, and are not over."""

    def start(self) -> None:
        self._task = asyncio.create_task(self.run(), name=self.name)

    def stop(self) -> None:
        """Begin nothing more, at once."""
        if self._task is not None:
            self._task.cancel()

    def part(self, now: float) -> Part:
        """Whether it goes on, at a moment of the monotonic clock."""
        return Part(f"the {self.name}", ended=self._task is not None and self._task.done())

    async def close(self) -> None:
        """Stop, and wait until its connections are gone."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def complain(self, error: Exception) -> None:
        """Say what is wrong, once for each kind until it goes well again."""
        kind = type(error).__name__
        if kind not in self._complained:
            self._complained |= {kind}
            # The daemon tells of a ledger that is away once, and not with each of its parts.
            level = "debug" if isinstance(error, LedgerUnavailable) else "warning"
            self._emitter.notice(f"{self.name}.failed", level, error=unquoted(error))

    def fine(self) -> None:
        """It goes well: what is wrong next is told again."""
        self._complained = frozenset()

    @abstractmethod
    async def run(self) -> None:
        """Go on for ever."""


class Pass(Chore):
    """A chore that comes about every ``every_s`` seconds; never where that is 0.

    ``chance`` gives random numbers in [0, 1). The first pass comes no earlier than the others.
    """

    taken: ClassVar[type[AcklastError]]
    """Says that another process is at it: then it is left to that one."""

    def __init__(self, emitter: Emitter, every_s: float, chance: Callable[[], float]) -> None:
        self._emitter = emitter
        self._every_s = every_s
        self._chance = chance

    def start(self) -> None:
        if self._every_s:
            super().start()

    async def run(self) -> None:
        while True:
            # Half to one and a half times as long: daemons that start together do not come together.
            await asyncio.sleep(self._every_s * (0.5 + self._chance()))
            try:
                with only_real_cancellation():
                    await self.once()
            except self.taken:
                self._emitter.notice(f"{self.name}.left_to_another", "debug")
            except Exception as error:
                # Not only an outage: a defect here must not end it for good, in silence.
                self._emitter.notice(f"{self.name}.failed", "warning", error=unquoted(error))

    @abstractmethod
    async def once(self) -> None:
        """One pass."""
