"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it.

An hour of back-off takes no time, runs the same way each time, and a program that waits for something that
nothing will bring is told so instead of hanging.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

P = ParamSpec("P")
T = TypeVar("T")


_STILL_MAX = 1000


class Stuck(AssertionError):  # noqa: N818 - an assertion that fails
    """Every task waits, and no timer is set."""


class _Selector(selectors.SelectSelector):
    """Never waits: moves the clock on by as long as it was told to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.wakeups = 0
        self._still = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("every task waits for something that nothing will bring")
        self.wakeups += 1
        self.now += max(0.0, timeout)
        self._still = 0 if timeout > 0 else self._still + 1
        if self._still > _STILL_MAX:
            # What waits for less time than the clock's floats can tell waits for a real clock to move on.
            self.now += 1e-6
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """For one thread and no sockets: nothing from outside can wake it."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    @property
    def wakeups(self) -> int:
        """How many turns the loop has made: what a busy wait would drive up."""
        return self._virtual.wakeups


class Monotonic:
    """Stands in for the module ``time`` where only ``time.monotonic`` is asked for."""

    @staticmethod
    def monotonic() -> float:
        return asyncio.get_running_loop().time()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def virtual(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make of an async test one that runs in virtual time."""

    @functools.wraps(test)
    def in_virtual_time(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return in_virtual_time


@contextmanager
def virtual_clock(*modules: ModuleType) -> Iterator[None]:
    """Let these modules read the loop's clock wherever they ask ``time.monotonic``."""
    patches = [patch.object(module, "time", Monotonic) for module in modules]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


async def turns(count: int = 5) -> None:
    """Let everything run that can run now."""
    for _ in range(count):
        await asyncio.sleep(0)


async def elapse(seconds: float) -> None:
    """Let virtual time pass. Refuses a real clock, on which this would be a sleep."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "elapse() is for tests that run in virtual time"
    over = asyncio.Event()
    timer = loop.call_later(seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
