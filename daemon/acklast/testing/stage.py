"""What stands around simulated daemons: a broker and a ledger in memory, and how daemons come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import count
from random import Random
from typing import Any, TypeVar

from acklast.ledger.api import Claim, Fresh, Record, Recorded, Session
from acklast.ledger.memory import MemoryLedger
from acklast.telemetry.events import Event
from acklast.testing.broker import Broker, Channel
from acklast.testing.process import Killed, Process
from acklast.testing.setting import Setting
from acklast.testing.step import Step

T = TypeVar("T")


class Heir(StrEnum):
    """Who goes on with the work of a process that is gone."""

    SAME = "same instance"
    """Its restart: ends the old session at once."""
    OTHER = "other instance"
    """Another one, which has to wait for the lease to run out."""


class Stage:
    """Made inside of the running loop, whose clock is everybody's.

    What subclasses want to know of the processes they hear by the methods below ``hears``.
    """

    def __init__(self, setting: Setting, epoch: datetime, random: Random) -> None:
        self.setting = setting
        self.random = random
        self.broker = Broker()
        self.ledger = MemoryLedger(self.now)
        self.processes: list[Process] = []
        self.epoch = epoch
        self._loop = asyncio.get_running_loop()
        self.began_at = self._loop.time()
        self._names = count(1)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Ends with the first defect of a process: an exception that is none of its handlers'."""

    def now(self) -> datetime:
        """The ledger's clock."""
        return self.epoch + timedelta(seconds=self.elapsed_s())

    def elapsed_s(self) -> float:
        """How long the stage has been standing."""
        return self._loop.time() - self.began_at

    async def step(
        self, process: Process, step: Step, act: Callable[[], Awaitable[T]], *, lost: Callable[[bool], T]
    ) -> T:
        """Do one side effect of a process.

        ``lost`` gives (or raises) what the caller gets where the call fails; its argument tells whether the
        step was done all the same.
        """
        await process.breathe()
        return await act()

    # --- hears --------------------------------------------------------------------------------------

    def claimed(self, process: Process, session: Session, claim: Claim, fresh: Fresh) -> None:
        """A process has a claim, and knows it."""

    def recorded(self, process: Process, record: Record, answer: Recorded) -> None:
        """The ledger has answered to a verdict."""

    def acking(self, process: Process, channel: Channel, tag: int) -> None:
        """The broker is about to take in an ack."""

    def connection(self, process: Process) -> Any:
        """What ``ctx.transaction`` yields."""
        return None

    def committed(self, process: Process, record: Record, connection: Any) -> None:
        """A handler's transaction has committed, and completed its job."""

    def died(self, process: Process) -> None:
        """A process is gone, with all that it had not said."""

    def said(self, process: Process, event: Event) -> None:
        """A process says something."""

    # --- processes ----------------------------------------------------------------------------------

    def begin(self, instance: str | None = None) -> Process:
        """Start a process; of an ``instance`` that is known already it is the restart."""
        number = next(self._names)
        process = Process(self, f"p{number}", instance or f"i{number}")
        self.processes.append(process)
        self.spawn(process.live)
        return process

    @property
    def alive(self) -> list[Process]:
        """The processes that are not dead."""
        return [process for process in self.processes if not process.dead]

    def crash(self, process: Process, heir: Heir) -> None:
        """End a process as a SIGKILL does, and start its successor."""
        process.die()
        self.follow(process, heir)

    def follow(self, process: Process, heir: Heir) -> None:
        """Start the successor of a process that is gone."""
        self.begin(process.instance if heir is Heir.SAME else None)

    def freeze(self, process: Process) -> None:
        """Have it stand still for longer than its lease; somebody else is there to notice."""
        process.moving.clear()
        if len(self.alive) == 1:
            self.begin()
        # Not by a task of its own: a time-out that fires in the frozen process may cancel it.
        self._loop.call_later(2 * self.setting.lease_s, process.thaw)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run a part of a process as a task."""
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let a process die in silence, and nothing else."""
        try:
            await work()
        except Killed:
            return
        except Exception as defect:
            self.fail(defect)

    def fail(self, defect: BaseException) -> None:
        """End the play with this."""
        if not self.failure.done():
            self.failure.set_exception(defect)

    # --- the end ------------------------------------------------------------------------------------

    async def quiet(self) -> None:
        """Wait until the broker holds nothing, and nobody is at work."""
        await self.broker.quiet()
        while running := [task for process in self.alive for task in process.running]:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            await self.broker.quiet()

    async def close(self) -> None:
        """End every process where it stands."""
        for process in self.processes:
            process.die()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(process.ended() for process in self.processes), return_exceptions=True)
        if self.failure.done():
            self.failure.exception()  # whoever waited for it has heard of it
        self.failure.cancel()
