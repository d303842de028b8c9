"""``TestWorker``: a user's handlers on the real delivery path, in memory and in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

import acklast.delivery
import acklast.drain
import acklast.handlers.calling
import acklast.handlers.context
import acklast.judge
import acklast.settle
import acklast.settled
from acklast import faults
from acklast.config import Budget, Config, Lane
from acklast.handlers.app import App
from acklast.http.request import Request
from acklast.testing.job import TestJob
from acklast.testing.play import Play
from acklast.testing.process import HERE
from acklast.testing.script import Fault, Planned, Script
from acklast.testing.setup import Settings, given
from acklast.testing.story import Event, told
from acklast.testing.virtual import VirtualLoop, elapse, virtual_clock
from acklast_topology.job import Job, JobFields

if TYPE_CHECKING:
    from acklast.testing.http import Responder

T = TypeVar("T")

EPOCH: Final = datetime(2026, 1, 5, 9, tzinfo=UTC)
"""When every test begins, unless it says otherwise: a Monday morning."""
_STOP_S: Final = 60.0
CLOCKED: Final = (
    acklast.delivery,
    acklast.drain,
    acklast.handlers.calling,
    acklast.handlers.context,
    acklast.judge,
    acklast.settle,
    acklast.settled,
)
"""The modules of the delivery path that ask for the time."""


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _end_others() -> None:
    """Cancel what handlers have left behind, as ``asyncio.run`` does."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_STOP_S)


class TestWorker:
    """Takes jobs through the real delivery path: a ledger and a broker in memory, a clock that jumps.

    A context manager. Its methods are plain functions, for a plain ``def`` test: it has an event loop of its
    own, which runs while ``run_until_idle`` or ``advance`` does. In an ``async def`` test they work as well.
    """

    __test__ = False

    def __init__(
        self,
        app: App | Config | Path | str,
        *,
        lanes: Mapping[str, Lane | Settings] | None = None,
        budgets: Mapping[str, Budget | Settings] | None = None,
        http: Mapping[str, Responder] | None = None,
        transaction: Callable[[], Any] = lambda: None,
        workers: int = 1,
        lease_s: float | None = None,
        drain_s: float | None = None,
        seed: int = 0,
        now: datetime = EPOCH,
    ) -> None:
        """``app`` is an ``App``, a ``Config``, or the path of an ``acklast.toml``, whose app is imported.

        ``lanes`` and ``budgets`` have settings as in ``acklast.toml``; those that a configuration has are
        changed by them. ``http`` answers for the downstream of each HTTP lane. ``transaction`` makes what
        ``ctx.transaction()`` yields. ``workers`` daemons begin, and share a quota evenly. ``seed``: of the
        jitter. ``lease_s`` and ``drain_s`` are the configuration's, or 60 and 30.

        Raises:
            ConfigError, InvalidConfig: app and settings cannot be used, or do not fit.
        """
        self._given = given(app, lanes or {}, budgets or {}, http or {}, workers, lease_s, drain_s)
        self._loop = VirtualLoop()
        self._closed = False
        self._keys = count(1)
        self._script = Script()
        self._posts: list[tuple[Job, int]] = []
        self._play = self._run(self._begin(workers, seed, now, transaction))

    async def _begin(self, workers: int, seed: int, now: datetime, transaction: Callable[[], Any]) -> Play:
        chance = Random(seed)  # noqa: S311 - spreads retries, guards nothing
        play = Play(self._given.setting, now, chance, transaction, script=self._script)
        for _ in range(workers):
            play.begin()
        return play

    # --- jobs and faults ----------------------------------------------------------------------------

    def publish(
        self,
        lane: str,
        payload: Any = b"{}",
        *,
        key: str | None = None,
        copies: int = 1,
        **more: Unpack[JobFields],
    ) -> TestJob:
        """Publish a job; it is delivered when the worker runs. ``bytes`` go as they are, all else as JSON.

        ``lane`` may be a fan-out of the configuration: each of its lanes has a job then, and the first one's
        is given.

        ``more``: ``type``, ``run``, ``deadline``, ``not_before``, ``headers`` ... as for ``Job``.

        Raises:
            ValueError: it breaks the contract.
            AssertionError: there is no such lane.
        """
        setting = self._given.setting
        [first, *_] = setting.fan_out.get(lane, (lane,))
        assert first in setting.lanes, f"no lane {lane!r}: {', '.join([*setting.lanes, *setting.fan_out])}"
        key = key or f"job-{next(self._keys)}"
        make = Job if isinstance(payload, bytes) else Job.json
        self._posts.append((make(lane, key, payload, **more), copies))
        return self.job(first, key)

    def fault(
        self, lane: str | None, fault: Fault, *, key: str | None = None, times: int | None = 1, skip: int = 0
    ) -> None:
        """Plan a fault for the next ``times`` jobs of a lane (or of any) that come to its point.

        None stands for any lane, any key, and every time. ``skip``: so many come through first. ``fault`` is
        one of this package's, or an exception that the handler seems to raise: ``RateLimited(30)``.
        """
        self._script.plan(Planned(fault, lane, key, times, skip))

    def effect(self, key: str, what: str = "effect", *, lane: str | None = None) -> None:
        """Note an effect of a job: for the fake of a downstream, where the real one would have it."""
        here = HERE.get(None)
        place = (lane or self._lane_of(key), key)
        self._play.story.add("effect", f"effect: {what}", here.process.name if here else "", place, what=what)

    def _lane_of(self, key: str) -> str:
        lanes = {event.lane for event in self._play.story.events if event.key == key}
        assert len(lanes) == 1, f"which job {key!r}? It is in {sorted(lanes) or 'no lane'}: say lane=..."
        return lanes.pop()

    # --- time ---------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """What the virtual clock says, aware."""
        return self._play.epoch + timedelta(seconds=self.elapsed_s)

    @property
    def elapsed_s(self) -> float:
        """How much virtual time has passed since the beginning."""
        return self._loop.time() - self._play.began_at

    def run_until_idle(self, *, within: timedelta = timedelta(days=365)) -> None:
        """Deliver, wait and retry until nothing is left to be done.

        Raises:
            AssertionError: it is not over ``within`` so much virtual time; a handler reached for the network
                or waits for something that nothing will bring; a fault that was planned never struck.
        """
        self._run(self._until(self._idle, within.total_seconds()))
        left = self._script.unspent()
        __tracebackhide__ = True
        assert not left, f"never struck: {'; '.join(map(str, left))}\n{self.story()}"

    def advance(self, seconds: float) -> None:
        """Let so much virtual time pass, and look in the middle of things. Raises as ``run_until_idle``."""

        async def pass_by() -> bool:
            await elapse(seconds)
            return True

        self._run(self._until(pass_by, seconds + 1))

    async def _idle(self) -> bool:
        await self._play.idle()
        return True

    async def _until(self, what: Callable[[], Coroutine[Any, Any, bool]], limit_s: float) -> None:
        play = self._play
        posts, self._posts = self._posts, []
        for job, copies in posts:
            play.post(job, copies=copies)
        over = asyncio.create_task(what())
        waited: set[asyncio.Future[Any]] = {over, play.failure}
        await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        ended = over.done()
        over.cancel()
        if play.failure.done():
            play.failure.result()
        assert ended, f"still at work after {timedelta(seconds=limit_s)}\n{self.story()}"

    # --- looking ------------------------------------------------------------------------------------

    def job(self, lane: str, key: str) -> TestJob:
        """One job, as it stands."""
        return TestJob(self._play, lane, key)

    @property
    def jobs(self) -> list[TestJob]:
        """Every job that the ledger knows."""
        return [self.job(lane, key) for lane, key in self._play.ledger.places()]

    @property
    def events(self) -> list[Event]:
        """Everything that happened, in order."""
        return self._play.story.events

    @property
    def enqueued(self) -> list[Job]:
        """What completed jobs have promised with ``ctx.enqueue``. Where its lane is here it was published."""
        return list(self._play.ledger.outbox)

    @property
    def requests(self) -> list[Request]:
        """What HTTP lanes have sent, in order."""
        return self._given.requests

    def story(self) -> str:
        """Everything that happened, one line each. The same script tells the same story."""
        return told(self.events, places=True)

    def assert_states(self, **counts: int) -> None:
        """Fail, with the story, unless so many jobs stand in these states and none in another."""
        __tracebackhide__ = True
        found = Counter(str(job.state) for job in self.jobs)
        assert found == counts, f"{dict(found)}, and not {counts}\n{self.story()}"

    # --- the loop -----------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in virtual time; apart from the loop of the test's own, where it has one."""
        if not _has_loop():
            return self._run_here(work)
        answers: list[T] = []
        errors: list[BaseException] = []

        def apart() -> None:
            try:
                answers.append(self._run_here(work))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=copy_context().run, args=(apart,))
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return answers[0]

    def _run_here(self, work: Coroutine[Any, Any, T]) -> T:
        refused = self._loop.refused
        with faults.armed(self._reached), virtual_clock(*CLOCKED, loop=self._loop):
            try:
                return self._loop.run_until_complete(work)
            finally:
                if refused:  # whatever came of it, this is why
                    first = refused[0]
                    refused.clear()
                    raise first

    def _reached(self, point: str) -> None:
        self._play.reached(point)

    # --- the end ------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the daemons, stop the application as a daemon does, and close the loop."""
        if self._closed:
            return
        try:
            self._run(self._end())
        finally:
            self._closed = True
            self._loop.close()

    async def _end(self) -> None:
        await self._play.close()
        await self._given.setting.app.stop()
        await _end_others()
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
