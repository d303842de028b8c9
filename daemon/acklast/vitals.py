"""What in a daemon has to come round by itself for its lanes to get on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from acklast.progress import Part


class Vital(Protocol):
    """Whatever can tell how it stands."""

    def part(self, now: float) -> Part:
        """How it stands at a moment of the monotonic clock."""


@dataclass(frozen=True, slots=True)
class _Task:
    name: str
    task: asyncio.Task[None]

    def part(self, now: float) -> Part:
        return Part(self.name, ended=self.task.done())


class Vitals:
    """Gathers them as a daemon starts, and asks them all."""

    def __init__(self) -> None:
        self._vital: list[Vital] = []

    def task(self, name: str, task: asyncio.Task[None] | None) -> None:
        """Count on a task that goes on for ever; on nothing where it was not started."""
        if task is not None:
            self._vital.append(_Task(name, task))

    def add(self, *vital: Vital) -> None:
        self._vital += vital

    def parts(self, clock: Callable[[], float] = time.monotonic) -> Iterator[Part]:
        """How each stands now."""
        now = clock()
        return (one.part(now) for one in self._vital)
