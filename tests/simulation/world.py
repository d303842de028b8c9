"""The simulation itself: virtual time, numbered steps, and what goes wrong at each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

import acklast.delivery
import acklast.drain
import acklast.handlers.context
import acklast.judge
from acklast.ledger.memory import MemoryLedger
from harness.virtual import elapse, run, virtual_clock
from simulation.account import Account, Published, Start, Violation
from simulation.broker import Broker
from simulation.process import Killed, Process
from simulation.scenario import LEASE_S, Post, Scenario
from simulation.schedule import ALL_WELL, Blow, Fault, Heir, Schedule

T = TypeVar("T")
EPOCH: Final = datetime(2025, 6, 1, tzinfo=UTC)
_LIMIT_S: Final = 3600.0
"""In which every simulation must have come to its end."""
_CLOCKED: Final = (acklast.delivery, acklast.drain, acklast.handlers.context, acklast.judge)


class World:
    """Everything outside of the processes, and the processes."""

    def __init__(self, scenario: Scenario, schedule: Schedule, seed: int | None) -> None:
        self.scenario = scenario
        self.schedule = schedule
        self.random = Random(seed or 0)
        self.broker = Broker()
        self.ledger = MemoryLedger(self.now)
        self.account = Account(self.ledger, self.broker, scenario.policy.on_unknown)
        self.processes: list[Process] = []
        self.trail: list[str] = []
        """The steps so far, for people to read."""
        self.claims: dict[tuple[Process, str], tuple[int, int]] = {}
        """The fence and the session of the last claim of a process for a key."""
        self._interleaves = seed is not None
        self._starts: dict[asyncio.Task[Any] | None, Start] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._names = count(1)
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def now(self) -> datetime:
        """The ledger's clock."""
        return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())

    def told(self) -> str:
        """The trail for people: renewals say something only where one went wrong."""
        lines = [line for line in self.trail if not line.endswith(": renew")]
        return "\n".join([*lines[:80], f"... {len(lines)} in all", *map(repr, self.ledger._jobs.values())])

    # --- steps ----------------------------------------------------------------------------------------

    async def step(
        self, process: Process, name: str, act: Callable[[], Awaitable[T]], *, lost: Callable[[bool], T]
    ) -> T:
        """Do one side effect of a process, or what the schedule has for it.

        ``lost`` gives (or raises) what the caller gets where the call fails; its argument tells whether the
        step was done all the same.
        """
        if self._interleaves:
            await elapse(self.random.choice((0, 0, 0, 0.01, 0.3, 2.0)))
        await process.breathe()
        blow = self.schedule.get(len(self.trail))
        self.trail.append(f"{len(self.trail)} {process}: {name}{f' <- {blow.fault}' if blow else ''}")
        if blow is not None:
            await self._before(process, blow)
            await process.breathe()
            if blow.fault is Fault.FAIL_BEFORE:
                return lost(False)
        answer = await act()
        self._check()
        if blow is not None:
            await self._after(process, blow)
            await process.breathe()
            if blow.fault is Fault.FAIL_AFTER:
                return lost(True)
        return answer

    async def _before(self, process: Process, blow: Blow) -> None:
        match blow.fault:
            case Fault.CRASH_BEFORE:
                self.crash(process, blow.heir)
            case Fault.CHANNEL:
                process.lose_channel()
            case Fault.FREEZE:
                process.lose_channel()
                await self._stand_still(process)
            case Fault.DRAIN if not process.draining:
                self.spawn(partial(process.drain, lambda: self._follow(process, blow.heir)))
                await asyncio.sleep(0)
            case _:
                pass

    async def _after(self, process: Process, blow: Blow) -> None:
        match blow.fault:
            case Fault.CRASH_AFTER:
                self.crash(process, blow.heir)
            case Fault.STALL:
                await self._stand_still(process)
            case _:
                pass

    def crash(self, process: Process, heir: Heir) -> None:
        process.die()
        self._follow(process, heir)
        self._check()

    def _check(self) -> None:
        self.account.check()
        if self.account.broken:
            raise self.account.broken[0]

    def _follow(self, process: Process, heir: Heir) -> None:
        self.begin(process.instance if heir is Heir.SAME else None)

    async def _stand_still(self, process: Process) -> None:
        """For longer than a lease; somebody else is there to notice."""
        process.moving.clear()
        if len([other for other in self.processes if not other.dead]) == 1:
            self.begin()
        # Not by this task: a time-out that fires in the frozen process may cancel it.
        asyncio.get_running_loop().call_later(2 * LEASE_S, process.thaw)
        await process.moving.wait()

    def started(self, start: Start) -> None:
        self._starts[asyncio.current_task()] = start
        self.account.start(start)

    def start_here(self) -> Start | None:
        """The start of a handler in this very task, if there was one."""
        return self._starts.get(asyncio.current_task())

    # --- from the beginning to the end ------------------------------------------------------------------

    def begin(self, instance: str | None = None) -> None:
        """Start a process."""
        number = next(self._names)
        process = Process(self, f"p{number}", instance or f"i{number}")
        self.processes.append(process)
        self.spawn(process.live)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)
        return task

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let a process die in silence, and nothing else."""
        try:
            await work()
        except Killed:
            return
        except Exception as defect:
            if not self._failure.done():
                self._failure.set_exception(defect)

    async def play(self) -> None:
        """Publish, work until nothing is left, and check what it came to."""
        for _ in range(self.scenario.processes):
            self.begin()
        posts = [self.spawn(partial(self._post, post)) for post in self.scenario.posts]
        if self.scenario.cancel:
            posts.append(self.spawn(partial(self._cancel, self.scenario.cancel)))
        ending = asyncio.create_task(self._quiet(posts))
        await asyncio.wait({ending, self._failure}, timeout=_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            ending.cancel()
            self._failure.result()
        self.account.promise(ending.done(), "still not quiet after an hour")
        await self._close()
        self._check()
        self.account.check_end()

    async def _post(self, post: Post) -> None:
        await elapse(post.at_s)
        raw = post.message(self.now())
        self.account.published.append(Published.of(raw))
        self.broker.publish("work.work", raw)

    async def _cancel(self, key: str) -> None:
        await elapse(1)
        await self.ledger.cancel("work", key)

    async def _quiet(self, posts: list[asyncio.Task[None]]) -> None:
        """Wait until the broker holds nothing, and nobody is at work."""
        await asyncio.wait(posts)
        await self.broker.quiet()
        while running := [task for process in self.processes if not process.dead for task in process.running]:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            await self.broker.quiet()

    async def _close(self) -> None:
        for process in self.processes:
            process.die()
        leases = [process.lease._task for process in self.processes if process.lease._task]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *leases, return_exceptions=True)
        if self._failure.done():
            self._failure.result()
        self._failure.cancel()


def play(scenario: Scenario, schedule: Schedule = ALL_WELL, seed: int | None = None) -> World:
    """Run a simulation to its end.

    With a ``seed`` the processes and their tasks interleave at random, the same way for the same seed.

    Raises:
        Violation: a promise was broken; its notes say after which steps.
    """
    made: list[World] = []

    async def main() -> World:
        made.append(World(scenario, schedule, seed))
        await made[0].play()
        return made[0]

    try:
        with virtual_clock(*_CLOCKED):
            return run(main())
    except Exception as error:
        error.add_note(made[0].told())
        raise


__all__ = ["Violation", "World", "play"]
