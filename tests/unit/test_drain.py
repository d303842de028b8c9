"""The drain: what runs may finish, what cannot is cut and settled, and what is left is said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

import acklast.drain
from acklast.consumer import Consumer
from acklast.drain import Cutter, Receipt, Tally, Tasks, drain, said
from acklast.handlers.app import App
from acklast.lane import Drain, Lane
from acklast.ledger.watch import LedgerWatch
from acklast.notify import Notify
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Draining, Slots
from acklast.policy import Policy
from acklast.settle import Delivery
from acklast.telemetry.events import Emitter, Event, Notice, Settled
from acklast_topology.contract import RawMessage
from harness.jobs import Trial
from harness.virtual import elapse, turns, virtual, virtual_clock

DEADLINE_S = 30.0
NOT_ASKED: Any = None
"""What a drain has no business with."""


class Canceller:
    """Stands in for a consumer: the drain only cancels it."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.cancelled = False

    async def cancel(self) -> None:
        await elapse(self.takes_s)
        self.cancelled = True


@dataclass
class Site:
    """A daemon's parts around a drain, with jobs that end as they are told."""

    state: Drain = field(default_factory=Drain)
    tasks: Tasks = field(default_factory=Tasks)
    tally: Tally = field(default_factory=Tally)
    cutter: Cutter = field(default_factory=Cutter)
    consumers: list[Canceller] = field(default_factory=lambda: [Canceller()])
    told: list[str] = field(default_factory=list)
    lane: Lane = field(init=False)

    def __post_init__(self) -> None:
        self.emitter = Emitter(self.tally, self._tell)
        self.lane = Lane(
            name="rent",
            app=App(),
            policy=Policy(),
            ledger=NOT_ASKED,
            lease=NOT_ASKED,
            pacing=LanePacing(Slots(2)),
            settler=NOT_ASKED,
            emitter=self.emitter,
            drain=self.state,
            worker="w",
            version="1",
            chance=lambda: 0.0,
            watch=LedgerWatch(self.emitter),
        )

    def _tell(self, event: Event) -> None:
        assert isinstance(event, Notice | Settled)
        self.told.append(event.name if isinstance(event, Notice) else event.disposition)

    def add(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(job)
        self.tasks.add(Delivery(RawMessage(b""), 1, NOT_ASKED), task)
        return task

    def settle(self, disposition: str, outcome: str = "", *, acked: bool = True) -> None:
        self.emitter.emit(Settled(disposition, "rent", "k", outcome=outcome or None, acked=acked))

    async def handle(self, takes_s: float, record_s: float = 0.0) -> None:
        """A job: an attempt that a drain may cut, then a record that it may not."""
        task = asyncio.current_task()
        assert task is not None
        self.lane.attempting.add(task)
        disposition, outcome = "complete", "done"
        try:
            await elapse(takes_s)
        except asyncio.CancelledError:
            if not self.state.cuts():
                raise
            disposition, outcome = "give_back", "interrupted"
        finally:
            self.lane.attempting.discard(task)
        await elapse(record_s)
        self.settle(disposition, outcome)

    async def drain(self, deadline_s: float = DEADLINE_S) -> Receipt:
        return await drain(
            self.state,
            [self.lane],
            cast("list[Consumer]", self.consumers),
            self.tasks,
            self.tally,
            self.cutter,
            Notify({}),
            self.emitter,
            deadline_s,
        )


@pytest.fixture(autouse=True)
def _loop_time() -> Iterator[None]:
    """Let the drain read the loop's own clock: the virtual one where there is one."""
    with virtual_clock(acklast.drain):
        yield


@virtual
async def test_nothing_to_do_is_done_at_once() -> None:
    site = Site()
    assert await site.drain() == Receipt(0, 0, 0, 0, 0.0, DEADLINE_S, cut=False)
    assert site.consumers[0].cancelled


@virtual
async def test_what_runs_may_finish_and_no_handler_is_cut() -> None:
    site = Site()
    site.add(site.handle(10))
    site.add(site.handle(29))
    await turns()
    assert await site.drain() == Receipt(2, 0, 0, 0, 29.0, DEADLINE_S, cut=False)


@virtual
async def test_what_runs_past_the_deadline_is_cut_and_settled() -> None:
    site = Site()
    site.add(site.handle(10))
    site.add(site.handle(3600, record_s=2))
    await turns()
    assert await site.drain() == Receipt(1, 1, 0, 0, 32.0, DEADLINE_S, cut=True)


@virtual
async def test_a_job_that_is_being_recorded_at_the_deadline_is_not_cut() -> None:
    site = Site()
    recording = site.add(site.handle(1, record_s=32))
    await turns()
    assert await site.drain() == Receipt(1, 0, 0, 0, 33.0, DEADLINE_S, cut=True)
    assert not recording.cancelled()


@virtual
async def test_a_second_interrupt_ends_the_wait_at_once() -> None:
    site = Site()
    site.add(site.handle(3600))
    await turns()
    draining = asyncio.create_task(site.drain())
    await elapse(3)
    site.cutter.now.set()
    assert await draining == Receipt(0, 1, 0, 0, 3.0, DEADLINE_S, cut=True)


@virtual
async def test_what_cannot_be_settled_while_the_ledger_is_away_is_left_and_said() -> None:
    site = Site()
    left = site.add(site.handle(1, record_s=3600))
    await turns()
    receipt = await site.drain()
    assert (receipt.left, receipt.completed, receipt.cut) == (1, 0, True)
    assert receipt.seconds <= DEADLINE_S + acklast.drain.SETTLE_S + 1
    assert left.cancelled()
    assert site.state.abandoned


@virtual
async def test_no_time_at_all_cuts_what_runs() -> None:
    site = Site()
    site.add(site.handle(3600))
    await turns()
    assert await site.drain(deadline_s=0) == Receipt(0, 1, 0, 0, 0.0, 0, cut=True)


@virtual
async def test_nothing_starts_once_the_drain_has_begun() -> None:
    site = Site()
    draining = asyncio.create_task(site.drain())
    await turns()
    with pytest.raises(Draining):
        await site.lane.pacing.enter()
    await draining


@virtual
async def test_what_has_not_started_goes_back_only_when_no_consumer_takes_it_in_again() -> None:
    site = Site(consumers=[Canceller(takes_s=4), Canceller()])
    draining = asyncio.create_task(site.drain())
    await elapse(3)
    assert site.state.started.is_set()
    assert not site.state.quiet.is_set()
    await draining
    assert site.state.quiet.is_set()


@virtual
async def test_a_slow_cancel_of_the_consumers_is_part_of_the_deadline() -> None:
    site = Site(consumers=[Canceller(takes_s=5)])
    site.add(site.handle(3600))
    await turns()
    assert (await site.drain()).seconds == DEADLINE_S


@virtual
async def test_a_broker_that_is_silent_does_not_hold_up_the_deadline() -> None:
    site = Site(consumers=[Canceller(takes_s=40)])
    site.add(site.handle(3600))
    await turns()
    assert await site.drain() == Receipt(0, 1, 0, 0, DEADLINE_S, DEADLINE_S, cut=True)
    assert not site.state.quiet.is_set()


@virtual
async def test_a_second_interrupt_does_not_wait_for_a_broker_that_is_silent() -> None:
    site = Site(consumers=[Canceller(takes_s=40)])
    draining = asyncio.create_task(site.drain())
    await elapse(3)
    site.cutter.now.set()
    assert await draining == Receipt(0, 0, 0, 0, 3.0, DEADLINE_S, cut=True)


@virtual
async def test_a_defect_of_a_consumer_is_told_once_all_is_drained() -> None:
    class Defective(Canceller):
        async def cancel(self) -> None:
            raise ZeroDivisionError

    site = Site(consumers=[Defective()])
    handled = site.add(site.handle(10))
    await turns()
    with pytest.raises(ZeroDivisionError):
        await site.drain()
    assert handled.done()


async def test_a_thread_that_nobody_can_stop_does_not_keep_the_process() -> None:
    release, busy = threading.Event(), threading.Event()

    def handler(payload: bytes) -> None:
        busy.set()
        release.wait(30)

    state = Drain()
    trial = Trial(handler)
    try:
        await asyncio.to_thread(busy.wait, 10)
        trial.cutting = True
        state.cutting = True
        assert state.cuts()
        trial.task.cancel()
        await turns()
        assert not trial.task.done(), "its effect may still come: the outcome must wait for it"
        state.abandoned = True
        trial.cutting = state.cuts()
        trial.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(trial.task), 10)
    finally:
        release.set()


EVENTS: list[tuple[Event, str]] = [
    (Settled("complete", "rent", "k", outcome="done"), "completed"),
    (Settled("retry", "rent", "k", outcome="transient"), "completed"),
    (Settled("give_back", "rent", "k", outcome="interrupted"), "given_back"),
    (Settled("give_back", "rent", "k", outcome="unknown"), "unknown"),
    (Settled("hold", "rent", "k", outcome="unknown"), "unknown"),
    (Settled("complete", "rent", "k", outcome="done", acked=False), "left"),
]


@pytest.mark.parametrize(("event", "counted"), EVENTS)
def test_each_delivery_is_counted_once(event: Event, counted: str) -> None:
    tally = Tally()
    tally(event)
    assert sum(tally.counts.values()) == 0, "before the drain nothing is counted"
    tally.start()
    tally(event)
    tally(Notice("session.opened"))
    assert {name for name, count in tally.counts.items() if count} == {counted}


def test_the_receipt_is_a_log_line() -> None:
    receipt = Receipt(1, 2, 3, 4, 5.5, 30.0, cut=True)
    assert said(receipt) == {
        "completed": 1,
        "given_back": 2,
        "unknown": 3,
        "left": 4,
        "seconds": 5.5,
        "deadline_s": 30.0,
        "cut": True,
    }
