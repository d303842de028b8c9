"""The simulation itself: virtual time, numbered steps, and what goes wrong at each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

import acklast.delivery
import acklast.drain
import acklast.handlers.context
import acklast.judge
from acklast.ledger.api import Claim, Fresh, Record, Recorded, Session
from acklast.testing.broker import Channel
from acklast.testing.process import Process
from acklast.testing.stage import Heir, Stage
from acklast.testing.step import Step
from acklast.testing.virtual import elapse, run, virtual_clock
from simulation.account import Account, Published, Start, Violation
from simulation.acts import app_for
from simulation.scenario import Post, Scenario
from simulation.schedule import ALL_WELL, Blow, Fault, Schedule

T = TypeVar("T")
EPOCH: Final = datetime(2025, 6, 1, tzinfo=UTC)
_LIMIT_S: Final = 3600.0
"""In which every simulation must have come to its end."""
_CLOCKED: Final = (acklast.delivery, acklast.drain, acklast.handlers.context, acklast.judge)


class World(Stage):
    """Everything outside of the processes, and the processes."""

    def __init__(self, scenario: Scenario, schedule: Schedule, seed: int | None) -> None:
        super().__init__(scenario.setting(app_for(scenario)), EPOCH, Random(seed or 0))
        self.scenario = scenario
        self.schedule = schedule
        self.account = Account(self.ledger, self.broker, scenario.policy.on_unknown)
        self.trail: list[str] = []
        """The steps so far, for people to read."""
        self.claims: dict[tuple[Process, str], tuple[int, int]] = {}
        """The fence and the session of the last claim of a process for a key."""
        self._interleaves = seed is not None
        self._starts: dict[asyncio.Task[Any] | None, Start] = {}

    def told(self) -> str:
        """The trail for people: renewals say something only where one went wrong."""
        lines = [line for line in self.trail if not line.endswith(": renew")]
        return "\n".join([*lines[:80], f"... {len(lines)} in all", *map(repr, self.ledger._jobs.values())])

    # --- steps ----------------------------------------------------------------------------------------

    async def step(
        self, process: Process, step: Step, act: Callable[[], Awaitable[T]], *, lost: Callable[[bool], T]
    ) -> T:
        """Do one side effect of a process, or what the schedule has for it.

        ``lost`` gives (or raises) what the caller gets where the call fails; its argument tells whether the
        step was done all the same.
        """
        if self._interleaves:
            await elapse(self.random.choice((0, 0, 0, 0.01, 0.3, 2.0)))
        await process.breathe()
        blow = self.schedule.get(len(self.trail))
        self.trail.append(f"{len(self.trail)} {process}: {step}{f' <- {blow.fault}' if blow else ''}")
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
                process.lose_channels()
            case Fault.FREEZE:
                process.lose_channels()
                await self._stand_still(process)
            case Fault.DRAIN if not process.draining:
                self.spawn(partial(process.drain, lambda: self.follow(process, blow.heir)))
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
        super().crash(process, heir)
        self._check()

    def _check(self) -> None:
        self.account.check()
        if self.account.broken:
            raise self.account.broken[0]

    async def _stand_still(self, process: Process) -> None:
        self.freeze(process)
        await process.moving.wait()

    # --- hears --------------------------------------------------------------------------------------

    def claimed(self, process: Process, session: Session, claim: Claim, fresh: Fresh) -> None:
        self.claims[process, claim.key] = (fresh.fence, session.id)

    def recorded(self, process: Process, record: Record, answer: Recorded) -> None:
        self.account.record(record.key, record.fence, record.outcome, answer)

    def acking(self, process: Process, channel: Channel, tag: int) -> None:
        self.account.ack(self.start_here())

    def connection(self, process: Process) -> list[Start]:
        """The starts that are put in have their effect with the commit."""
        return []

    def committed(self, process: Process, record: Record, connection: list[Start]) -> None:
        for start in connection:
            start.effect = True
        self.recorded(process, record, Recorded.RECORDED)

    def died(self, process: Process) -> None:
        self.account.die(process)

    def started(self, start: Start) -> None:
        self._starts[asyncio.current_task()] = start
        self.account.start(start)

    def start_here(self) -> Start | None:
        """The start of a handler in this very task, if there was one."""
        return self._starts.get(asyncio.current_task())

    # --- from the beginning to the end ------------------------------------------------------------------

    async def play(self) -> None:
        """Publish, work until nothing is left, and check what it came to."""
        for _ in range(self.scenario.processes):
            self.begin()
        posts = [self.spawn(partial(self._post, post)) for post in self.scenario.posts]
        if self.scenario.cancel:
            posts.append(self.spawn(partial(self._cancel, self.scenario.cancel)))
        if self.scenario.cancel_run:
            posts.append(self.spawn(partial(self._cancel_run, self.scenario.cancel_run)))
        ending = asyncio.create_task(self._quiet(posts))
        await asyncio.wait({ending, self.failure}, timeout=_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if self.failure.done():
            ending.cancel()
            self.failure.result()
        self.account.promise(ending.done(), "still not quiet after an hour")
        await self.close()
        if not self.failure.cancelled():
            self.failure.result()
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

    async def _cancel_run(self, run: str) -> None:
        await elapse(1)
        self.ledger.cancel_run(run)

    async def _quiet(self, posts: list[asyncio.Task[None]]) -> None:
        await asyncio.wait(posts)
        await self.quiet()


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
