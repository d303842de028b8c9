"""The slots of a lane: first come, first served, and none is ever lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.config.quota import Quota
from acklast.pacing.budgets import Budget
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Draining, Slots
from harness.virtual import elapse, turns, virtual


async def test_no_more_than_the_count_are_in() -> None:
    slots = Slots(2)
    await slots.take()
    await slots.take()
    third = asyncio.create_task(slots.take())
    await turns()
    assert not third.done()
    assert slots.held == 2
    slots.give()
    await third
    assert slots.held == 2


async def test_whoever_came_first_is_let_in_first() -> None:
    slots, order = Slots(1), list[int]()
    await slots.take()

    async def enter(number: int) -> None:
        await slots.take()
        order.append(number)
        slots.give()

    waiting = [asyncio.create_task(enter(number)) for number in range(5)]
    await turns()
    slots.give()
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]
    assert slots.held == 0


async def test_closing_sends_home_who_waits_and_who_comes_later() -> None:
    slots = Slots(1)
    await slots.take()
    waiting = asyncio.create_task(slots.take())
    await turns()
    slots.close()
    with pytest.raises(Draining):
        await waiting
    slots.give()
    with pytest.raises(Draining):
        await slots.take()
    assert slots.held == 0


async def test_who_is_cancelled_at_the_moment_of_being_let_in_passes_the_slot_on() -> None:
    slots = Slots(1)
    await slots.take()
    first, second = asyncio.create_task(slots.take()), asyncio.create_task(slots.take())
    await turns()
    slots.give()
    first.cancel()
    await second
    assert first.cancelled()
    slots.give()
    assert slots.held == 0


async def test_a_lane_that_gets_no_permit_returns_its_slot() -> None:
    slots, budget = Slots(2), Budget("api", Quota(1, 60.0))
    pacing = LanePacing(slots, budget)
    with await pacing.enter():
        impatient, patient = asyncio.create_task(pacing.enter()), asyncio.create_task(pacing.enter())
        await turns()
        assert slots.held == 2
        impatient.cancel()
        await turns()
        assert impatient.cancelled()
        assert slots.held == 2, "the next in line has it"
        pacing.close()
        with pytest.raises(Draining):
            await patient
        assert slots.held == 1


async def test_an_entry_returns_slot_and_permit_as_they_were_used() -> None:
    slots, budget = Slots(2), Budget("api", Quota(2, 60.0))
    pacing = LanePacing(slots, budget)
    with await pacing.enter():
        assert (slots.held, budget.free) == (1, 1)
    assert (slots.held, budget.free) == (0, 2), "nothing was called: the permit is free at once"
    with suppress(RuntimeError), await pacing.enter() as entry:
        entry.spend()
        raise RuntimeError("the handler's own")
    assert (slots.held, budget.free) == (0, 1), "a permit that was spent cools, however the call ended"


@dataclass
class Door:
    """Slots with people before and behind the door."""

    slots: Slots
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    inside: list[asyncio.Task[None]] = field(default_factory=list)

    def act(self, action: str, which: int) -> None:
        match action:
            case "come":
                self.tasks.append(asyncio.create_task(self._enter()))
            case "leave" if self.inside:
                self.inside.pop(which % len(self.inside))
                self.slots.give()
            case "lose patience" if self.tasks:
                self.tasks[which % len(self.tasks)].cancel()
            case _:
                pass

    async def _enter(self) -> None:
        await self.slots.take()
        task = asyncio.current_task()
        assert task is not None
        self.inside.append(task)


actions = st.tuples(st.sampled_from(["come", "leave", "lose patience", "turn"]), st.integers(0, 9))


@given(st.integers(1, 3), st.lists(actions, max_size=40))
@virtual
async def test_no_slot_is_ever_lost_or_given_twice(count: int, script: list[tuple[str, int]]) -> None:
    door = Door(Slots(count))
    for action, which in script:
        if action == "turn":
            await turns()
            assert door.slots.held == len(door.inside) <= count
        door.act(action, which)
    await turns()
    waiting = sum(not task.done() for task in door.tasks)
    assert door.slots.held == len(door.inside), "each slot that is taken has somebody in it"
    assert len(door.inside) == count or not waiting, "nobody waits before an open door"
    door.slots.close()
    await asyncio.gather(*door.tasks, return_exceptions=True)
    while door.inside:
        door.act("leave", 0)
    assert door.slots.held == 0


@virtual
async def test_a_second_call_under_one_slot_waits_for_a_permit_of_its_own() -> None:
    budget = Budget("api", Quota(1, 60.0))
    pacing, start = LanePacing(Slots(1), budget), asyncio.get_running_loop().time()
    with await pacing.enter() as entry:
        entry.spend()
        await entry.again()
        assert asyncio.get_running_loop().time() - start == pytest.approx(60, abs=0.01)
        entry.spend()
    assert budget.free == 0
    await elapse(60.01)
    assert budget.free == 1


@virtual
async def test_who_is_sent_home_while_waiting_for_the_second_permit_returns_none() -> None:
    budget = Budget("api", Quota(1, 60.0))
    pacing = LanePacing(Slots(1), budget)
    with await pacing.enter() as entry:
        entry.spend()
        second = asyncio.create_task(entry.again())
        await turns()
        pacing.close()
        with pytest.raises(Draining):
            await second
    assert budget.free == 0
    assert pacing.slots.held == 0


@virtual
async def test_an_entry_is_let_in_ahead_of_its_permit_and_waits_for_it_before_the_call() -> None:
    budget = Budget("api", Quota(1, 60.0))
    pacing, start = LanePacing(Slots(2), budget), asyncio.get_running_loop().time()
    with await pacing.enter() as entry:
        entry.spend()
    with await pacing.enter() as entry:
        assert entry.early
        assert 59 < asyncio.get_running_loop().time() - start < 60
        await entry.cooled()
        assert asyncio.get_running_loop().time() - start >= 60
        assert not entry.early


@virtual
async def test_a_permit_that_was_taken_early_and_not_used_is_free_when_it_is_cool_and_not_before() -> None:
    budget = Budget("api", Quota(1, 60.0))
    pacing = LanePacing(Slots(2), budget)
    with await pacing.enter() as entry:
        entry.spend()
    with await pacing.enter() as entry:
        assert entry.early
    assert budget.free == 0
    await elapse(0.02)
    assert budget.free == 1


@virtual
async def test_an_entry_knows_of_a_pause_that_came_after_it() -> None:
    budget = Budget("api", Quota(5, 1.0))
    with await LanePacing(Slots(2), budget).enter() as entry:
        assert not entry.paused
        budget.pause(30)
        assert entry.paused
        await elapse(30)
        assert not entry.paused


@virtual
async def test_a_call_whose_sending_was_told_gives_its_permit_back_while_the_answer_is_late() -> None:
    budget = Budget("api", Quota(1, 10.0))
    pacing, start = LanePacing(Slots(2), budget), asyncio.get_running_loop().time()
    with await pacing.enter() as slow:
        slow.spend()
        slow.sent()
        with await pacing.enter() as next_one:
            await next_one.cooled()
            assert asyncio.get_running_loop().time() - start == pytest.approx(10.25, abs=0.01)
    assert budget.starts.held == 1


@virtual
async def test_a_call_without_an_answer_holds_its_permit_for_as_long_as_it_may_be_on_its_way() -> None:
    budget = Budget("api", Quota(1, 10.0))
    pacing, start = LanePacing(Slots(2), budget), asyncio.get_running_loop().time()
    with await pacing.enter() as lost:
        lost.spend()
        await elapse(2)
        lost.unanswered()
    with await pacing.enter() as next_one:
        await next_one.cooled()
    assert asyncio.get_running_loop().time() - start == pytest.approx(12.25, abs=0.01)
