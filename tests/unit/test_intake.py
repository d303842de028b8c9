"""The intake: a delivery gets its task when a slot is free for it, in order, and none is left behind."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from acklast.intake import Intake
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Draining, Slots
from acklast.settle import Delivery
from acklast_topology.contract import RawMessage
from harness.virtual import turns, virtual


def delivery(tag: int) -> Delivery:
    return Delivery(RawMessage(b""), tag, cast("Any", None))


class Works:
    """A lane's work: each delivery takes a slot until it is told to end, except those that need none."""

    def __init__(self, count: int, *, slotless: frozenset[int] = frozenset()) -> None:
        self.pacing = LanePacing(Slots(count))
        self.intake = Intake(self.pacing.slots, self._start)
        self.started: list[int] = []
        self.sent_home: list[int] = []
        self.running: dict[int, asyncio.Event] = {}
        self.most = 0
        self._slotless = slotless
        self.tasks: set[asyncio.Task[None]] = set()

    def _start(self, delivery: Delivery) -> None:
        self.tasks.add(asyncio.create_task(self._run(delivery.tag)))

    async def _run(self, tag: int) -> None:
        self.intake.begun()
        try:
            if tag not in self._slotless:
                with await self.pacing.enter():
                    await self._work(tag)
                await asyncio.sleep(0)  # its record
            else:
                self.started.append(tag)
        except Draining:
            self.sent_home.append(tag)
        finally:
            self.intake.go_on()

    async def finish(self) -> None:
        """Let all end who are there."""
        while not all(task.done() for task in self.tasks):
            for working in self.running.values():
                working.set()
            await turns()
        await asyncio.gather(*self.tasks)

    async def _work(self, tag: int) -> None:
        self.started.append(tag)
        self.running[tag] = asyncio.Event()
        self.most = max(self.most, len(self.running))
        await self.running[tag].wait()
        del self.running[tag]


async def test_no_task_is_made_before_a_slot_is_free() -> None:
    works = Works(2)
    for tag in range(2):
        works.intake.take(delivery(tag))
    await turns()
    for tag in range(2, 10):
        works.intake.take(delivery(tag))
    await turns()
    assert works.started == [0, 1]
    assert len(works.intake) == 8
    works.running[0].set()
    await turns()
    assert works.started == [0, 1, 2]
    assert len(works.intake) == 7
    await works.finish()


async def test_of_many_that_come_in_one_read_no_more_are_started_than_slots_are_free() -> None:
    works = Works(3)
    for tag in range(10):
        works.intake.take(delivery(tag))
    assert (len(works.tasks), len(works.intake)) == (3, 7)
    await turns()
    works.running[1].set()
    await turns()
    assert (len(works.tasks), len(works.intake)) == (4, 6)
    await works.finish()
    assert works.started == list(range(10))


async def test_what_waits_can_be_recalled_and_what_was_started_cannot() -> None:
    works = Works(1)
    for tag in range(5):
        works.intake.take(Delivery(RawMessage(b""), tag, cast("Any", None), taken_at=float(tag)))
    await turns()
    assert [one.tag for one in works.intake.recall(3.0)] == [1, 2]
    assert [one.tag for one in works.intake.recall(math.inf)] == [3, 4]
    assert works.intake.recall(math.inf) == []
    works.intake.take(delivery(5))
    await works.finish()
    assert works.started == [0, 5]


async def test_those_that_need_no_slot_hold_nobody_up() -> None:
    works = Works(1, slotless=frozenset({1, 2, 3, 5}))
    works.intake.take(delivery(0))
    await turns()
    for tag in range(1, 7):
        works.intake.take(delivery(tag))
    works.running[0].set()
    await turns()
    await works.finish()
    assert works.started == list(range(7))
    assert len(works.intake) == 0


async def test_closing_the_lane_hands_on_all_who_wait() -> None:
    works = Works(1)
    works.intake.take(delivery(0))
    await turns()
    for tag in range(1, 5):
        works.intake.take(delivery(tag))
    works.pacing.close()
    works.intake.take(delivery(5))
    await turns()
    assert works.sent_home == [1, 2, 3, 4, 5]
    assert len(works.intake) == 0
    assert list(works.running) == [0], "who works already is left to finish"
    works.running[0].set()
    await turns()


@given(st.integers(1, 4), st.frozensets(st.integers(0, 30)), st.lists(st.integers(-20, 20), max_size=60))
@virtual
async def test_every_delivery_is_started_once_in_order(
    count: int, slotless: frozenset[int], acts: list[int]
) -> None:
    works, come = Works(count, slotless=slotless), 0
    for act in acts:
        if act < 0:
            works.intake.take(delivery(come))
            come += 1
        elif works.running:
            list(works.running.values())[act % len(works.running)].set()
        if act % 3:
            await turns()
    await works.finish()
    assert sorted(works.started) == list(range(come))
    slotted = [tag for tag in works.started if tag not in slotless]
    assert slotted == sorted(slotted)
    assert works.most <= count
    assert len(works.intake) == works.pacing.slots.held == 0
