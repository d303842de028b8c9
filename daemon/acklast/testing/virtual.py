"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it.

An hour of back-off takes no time, runs the same way each time, and a program that waits for something that
nothing will bring is told so instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_STILL_MAX = 1000


class Stuck(AssertionError):  # noqa: N818 - an assertion that fails
    """Every task waits, and no timer is set."""


class NotVirtual(AssertionError):  # noqa: N818 - as above
    """Something reached for the network, where no clock can be virtual."""


class _Selector(selectors.SelectSelector):
    """Never waits: moves the clock on by as long as it was told to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.wakeups = 0
        self.threads = 0
        """How many threads are at work, for which the clock stands still."""
        self._still = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.threads and timeout != 0:
            return super().select(None)
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
    """For one process without sockets. The clock stands still while an executor's thread is at work."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        self.refused: list[NotVirtual] = []
        """What reached for the network. Kept, because a handler's failure may hide the exception."""
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    @property
    def wakeups(self) -> int:
        """How many turns the loop has made: what a busy wait would drive up."""
        return self._virtual.wakeups

    def run_in_executor(  # type: ignore[override]  # the overridden one says of each argument its own type
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._virtual.threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        self._virtual.threads += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._virtual.threads -= 1

    def _thread_ended(self, _: object) -> None:
        self._virtual.threads -= 1

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        self._refuse(f"{host}:{port}")

    async def sock_connect(self, sock: Any, address: Any) -> Any:
        self._refuse(str(address))

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        self._refuse(f"{host}:{port}")

    def _refuse(self, where: str) -> NoReturn:
        self.refused.append(
            NotVirtual(f"a connection to {where} was opened in virtual time: give the handler a fake of it")
        )
        raise self.refused[-1]


class Monotonic:
    """Stands in for the module ``time`` where only ``time.monotonic`` is asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """``loop``: whose clock it tells, also to threads; None: the running one's."""
        self._loop = loop

    def monotonic(self) -> float:
        return (self._loop or asyncio.get_running_loop()).time()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@contextmanager
def virtual_clock(*modules: ModuleType, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """Let these modules read the loop's clock wherever they ask ``time.monotonic``."""
    kept = [(module, module.__dict__["time"]) for module in modules]
    stand_in = Monotonic(loop)
    for module in modules:
        module.__dict__["time"] = stand_in
    try:
        yield
    finally:
        for module, real in kept:
            module.__dict__["time"] = real


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
