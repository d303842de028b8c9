"""The drain: take nothing more in, finish what runs, give back what cannot be finished, and say so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

from acklast.consumer import Consumer
from acklast.lane import Drain, Lane
from acklast.leaving import Left, leaving
from acklast.notify import Notify
from acklast.settle import Delivery
from acklast.telemetry.events import Emitter, Event, Settled

SETTLE_S: Final = 5.0
"""Time after the deadline in which cut jobs are recorded and given back."""
_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a drain came to: the last line of the log. Counts are deliveries since the drain began."""

    completed: int
    given_back: int
    unknown: int
    left: int
    """Left unacked: the ledger or the broker was away until the end. The broker delivers them again."""
    seconds: float
    deadline_s: float
    cut: bool
    """Whether the deadline came first (or a second SIGINT): a handler that still ran was cancelled."""


def nothing_begun(deadline_s: float) -> Receipt:
    """The receipt of a process that was told to stop before there was anything to drain."""
    return Receipt(0, 0, 0, 0, 0.0, deadline_s, cut=False)


class Tally:
    """A sink that counts what becomes of the deliveries, from ``start`` on."""

    def __init__(self) -> None:
        self._counting = False
        self.counts = {"completed": 0, "given_back": 0, "unknown": 0, "left": 0}

    def start(self) -> None:
        self._counting = True

    def __call__(self, event: Event) -> None:
        if self._counting and isinstance(event, Settled):
            self.counts[_tallied(event)] += 1


def _tallied(event: Settled) -> str:
    if event.outcome == "unknown":
        return "unknown"
    if not event.acked:
        return "left"
    return "given_back" if event.disposition == "give_back" else "completed"


class Tasks:
    """The running deliveries of all lanes, and whatever else is at work on a job."""

    def __init__(self) -> None:
        self._tasks: dict[Delivery, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running())

    def add(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        """Hold on to a task. It takes itself out by ``end``: a callback at its end would cost it a turn."""
        self._tasks[delivery] = task

    def end(self, delivery: Delivery) -> None:
        """The last act of a delivery's task."""
        del self._tasks[delivery]

    @contextmanager
    def beside(self, task: asyncio.Task[None]) -> Iterator[None]:
        """A task that is at work on a job without a delivery: a drain waits for it all the same."""
        self._others.add(task)
        try:
            yield
        finally:
            self._others.discard(task)

    def since(self, before: float) -> list[tuple[Delivery, asyncio.Task[None]]]:
        """Those that run, of deliveries that came before a moment of the monotonic clock."""
        return [
            (delivery, task)
            for delivery, task in self._tasks.items()
            if delivery.taken_at < before and not task.done()
        ]

    async def wait(self, seconds: float | None = None) -> bool:
        """Whether all have ended within ``seconds``, if there is a limit."""
        if running := self._running():
            await asyncio.wait(running, timeout=seconds)
        return not self._running()

    def cancel(self) -> None:
        for task in self._running():
            task.cancel()

    def _running(self) -> set[asyncio.Task[None]]:
        # One that was cancelled before its first step never came to its end.
        return {task for task in (*self._tasks.values(), *self._others) if not task.done()}


class Cutter:
    """Ends the wait for the deadline early: the second SIGINT does."""

    def __init__(self) -> None:
        self.now = asyncio.Event()


async def drain(
    state: Drain,
    lanes: Iterable[Lane],
    consumers: Sequence[Consumer],
    tasks: Tasks,
    tally: Tally,
    cutter: Cutter,
    notify: Notify,
    emitter: Emitter,
    deadline_s: float,
    away: Callable[[], str] = lambda: "",
) -> Receipt:
    """Drain within ``deadline_s`` seconds (and a few more to record what was cut); the receipt.

    ``away`` tells which server cannot be reached, if any: the service manager is told.
    """
    began = time.monotonic()
    lanes = list(lanes)
    tally.start()
    state.ends = began + deadline_s

    async with leaving(notify, lambda: left_of(state, lanes, tasks, tally, away())):
        await _drain(state, lanes, consumers, tasks, cutter, emitter, state.ends)
    return Receipt(
        **tally.counts | {"left": tally.counts["left"] + state.left},
        seconds=round(time.monotonic() - began, 3),
        deadline_s=deadline_s,
        cut=state.cutting,
    )


def left_of(state: Drain, lanes: Iterable[Lane], tasks: Tasks, tally: Tally, away: str = "") -> Left:
    """How far a drain has come by now. ``away``: which server cannot be reached, if any."""
    running = sum(len(lane.attempting) for lane in lanes)
    settled = sum(tally.counts[what] for what in ("completed", "given_back", "unknown"))
    return Left(running, len(tasks), settled, state.ends - time.monotonic(), away)


async def _drain(
    state: Drain,
    lanes: Sequence[Lane],
    consumers: Sequence[Consumer],
    tasks: Tasks,
    cutter: Cutter,
    emitter: Emitter,
    ends: float,
) -> None:
    state.started.set()
    running = sum(len(lane.attempting) for lane in lanes)
    for lane in lanes:
        lane.pacing.close()
    # Said now: those who waited for a slot have become tasks, to be given back.
    emitter.notice("drain.started", running=running, held=len(tasks))
    resting = asyncio.create_task(_rest(state, consumers), name="rest")
    try:
        finished = await _wait_or_cut(resting, tasks, cutter, ends)
        if not finished:
            state.cutting = True
            finished = await _cut(lanes, tasks)
        state.abandoned = True
        if not finished:
            state.left = len(tasks)
            tasks.cancel()
            await tasks.wait(1.0)
    finally:
        resting.cancel()
        await asyncio.wait({resting})
    if not resting.cancelled():
        resting.result()  # a defect of ours


async def _rest(state: Drain, consumers: Sequence[Consumer]) -> None:
    """Take nothing more in. A broker that is silent has this take seconds, of which no deadline waits."""
    await asyncio.gather(*(consumer.cancel() for consumer in consumers))
    state.quiet.set()


async def _cut(lanes: Sequence[Lane], tasks: Tasks) -> bool:
    """Cancel what runs, and again every second: some code swallows a cancellation. Whether all have ended."""
    ends = time.monotonic() + SETTLE_S
    while (left_s := ends - time.monotonic()) > 0:
        for task in [task for lane in lanes for task in lane.attempting]:
            task.cancel()
        if await tasks.wait(min(_AGAIN_S, left_s)):
            return True
    return False


async def _wait_or_cut(resting: asyncio.Task[None], tasks: Tasks, cutter: Cutter, ends: float) -> bool:
    """Wait until all is over, no longer than until ``ends`` and no longer than the operator's patience."""
    waiting = asyncio.ensure_future(_over(resting, tasks))
    impatient = asyncio.ensure_future(cutter.now.wait())
    left_s = max(0.0, ends - time.monotonic())
    await asyncio.wait({waiting, impatient}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
    impatient.cancel()
    waiting.cancel()
    await asyncio.gather(waiting, impatient, return_exceptions=True)
    return resting.done() and len(tasks) == 0


async def _over(resting: asyncio.Task[None], tasks: Tasks) -> None:
    await asyncio.wait({resting})
    await tasks.wait()


def said(receipt: Receipt) -> dict[str, Any]:
    """The receipt as the fields of a log line."""
    return asdict(receipt)
