"""A lane that an operator pauses: nothing starts, and nothing waits here for nothing."""

from __future__ import annotations

import asyncio

import pytest

from acklast.config.quota import Quota
from acklast.pacing.budgets import Budget, StandBy
from acklast.pacing.gate import Gate
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Slots
from harness.virtual import turns, virtual


def test_the_gate_is_open_where_the_budget_and_the_operator_let_it() -> None:
    gate = Gate()
    gate.pause(True)
    assert not gate.is_open
    gate.move(False)
    gate.pause(False)
    assert not gate.is_open, "the budget had shut it meanwhile"
    gate.move(True)
    assert gate.is_open
    gate.pause(True)
    gate.move(True)
    assert not gate.is_open
    assert gate.shut.is_set()


async def test_nothing_enters_a_paused_lane_that_has_no_budget() -> None:
    pacing = LanePacing(Slots(1))
    pacing.pause(True)
    with pytest.raises(StandBy):
        await pacing.enter()
    pacing.pause(False)
    with await pacing.enter():
        assert pacing.slots.held == 1
    assert pacing.slots.held == 0


async def test_who_waited_for_a_slot_when_the_pause_came_does_not_enter() -> None:
    pacing = LanePacing(Slots(1))
    first = await pacing.enter()
    waiting = asyncio.create_task(pacing.enter())
    await turns()
    pacing.pause(True)
    with first:
        pass
    with pytest.raises(StandBy):
        await waiting
    assert pacing.slots.held == 0, "the slot that it was given has come back"


async def test_who_entered_and_has_not_started_when_the_pause_comes_is_told() -> None:
    pacing = LanePacing(Slots(1))
    with await pacing.enter() as entry:
        assert not entry.paused
        pacing.pause(True)
        assert entry.paused


@virtual
async def test_a_paused_lane_leaves_the_line_of_its_budget_to_the_others() -> None:
    budget = Budget("api", Quota(1, 60.0))
    paused, other = LanePacing(Slots(2), budget), LanePacing(Slots(2), budget)
    entry = await other.enter()
    early, late = asyncio.create_task(paused.enter()), asyncio.create_task(other.enter())
    await turns()
    paused.pause(True)
    with pytest.raises(StandBy):
        await early
    assert paused.slots.held == 0
    with entry:
        pass  # unspent: its permit is free at once
    with await late:
        assert budget.free == 0
    assert budget.free == 1, "no permit was lost on the way"


@virtual
async def test_a_permit_that_was_granted_in_the_moment_of_the_pause_comes_back() -> None:
    budget = Budget("api", Quota(1, 60.0))
    pacing = LanePacing(Slots(2), budget)
    first = await pacing.enter()
    waiting = asyncio.create_task(pacing.enter())
    await turns()
    with first:
        pass  # the permit goes to the one that waits, which has not run since
    pacing.pause(True)
    with pytest.raises(StandBy):
        await waiting
    assert (budget.free, pacing.slots.held) == (1, 0)


def test_a_paused_lane_asks_for_no_permits() -> None:
    budget = Budget("api", Quota(1, 60.0), shared=True, clock=lambda: 0.0)
    pacing = LanePacing(Slots(1), budget)
    pacing.saw_backlog("mail", 7, False)
    assert budget.backlog(unserved=True) == 7
    pacing.gate.pause(True)
    pacing.saw_backlog("mail", 7, False)
    assert budget.backlog(unserved=True) == 0


# --- how many at once -----------------------------------------------------------------------------------


async def test_fewer_slots_let_nobody_in_until_enough_have_left() -> None:
    slots = Slots(3)
    for _ in range(3):
        await slots.take()
    waiting = asyncio.create_task(slots.take())
    await turns()
    slots.resize(1)
    slots.give()
    slots.give()
    await turns()
    assert (slots.held, waiting.done()) == (1, False)
    slots.give()
    await waiting
    assert slots.held == 1


async def test_more_slots_let_in_who_waits_at_once_and_tell_who_may_come() -> None:
    slots, told = Slots(1), list[int]()
    slots.on_free = lambda: told.append(slots.count)
    await slots.take()
    waiting = [asyncio.create_task(slots.take()) for _ in range(2)]
    await turns()
    slots.resize(4)
    await asyncio.gather(*waiting)
    assert (slots.held, told) == (3, [4])
