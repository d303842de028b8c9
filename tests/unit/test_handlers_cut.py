"""A drain cuts a handler, and only that: any other cancellation goes on to whoever it is for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast import Context, errors
from acklast.handlers.run import Stop, who_stopped
from acklast.outcome import Done, Interrupted, Outcome
from harness.jobs import LANE, Gate, Trial, here, unknown


async def test_a_cut_leaves_a_running_handlers_effect_unknown() -> None:
    gate = Gate()
    trial = Trial(gate.handler)
    await gate.entered()
    trial.cut()
    outcome = unknown(await trial.outcome())
    assert (outcome.reason, outcome.cut, trial.open_cancels) == ("drain_cut", True, 0)


async def test_a_job_that_had_not_started_is_given_back() -> None:
    started = asyncio.Event()

    async def handler(payload: Any) -> None:
        started.set()

    trial = Trial(handler)
    trial.cutting = True
    assert await trial.outcome() == Interrupted()
    assert not started.is_set()


async def test_a_cut_handler_may_say_that_nothing_had_happened() -> None:
    gate = Gate()
    draining = asyncio.Event()
    draining.set()

    async def handler(payload: Any) -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            raise errors.Interrupted from None

    trial = Trial(handler, context=Context("k-1", LANE, draining=draining))
    await gate.entered()
    trial.cut()
    assert await trial.outcome() == Interrupted()
    assert trial.open_cancels == 0


async def test_a_cut_handler_that_returns_has_happened() -> None:
    gate = Gate()

    async def handler(payload: Any) -> str:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            return "happened"
        raise AssertionError

    trial = Trial(handler)
    await gate.entered()
    trial.cut()
    assert await trial.outcome() == Done("happened")
    assert trial.open_cancels == 0


async def test_a_cut_that_comes_again_ends_here_as_well() -> None:
    first, second = Gate(), Gate()

    async def handler(payload: Any) -> None:
        try:
            await first.wait()
        except asyncio.CancelledError:
            await second.wait()

    trial = Trial(handler)
    for gate in (first, second):
        await gate.entered()
        trial.cut()
    assert unknown(await trial.outcome()).reason == "drain_cut"
    assert trial.open_cancels == 0


async def test_a_cut_after_the_timeout_is_still_a_timeout() -> None:
    overdue = asyncio.Event()

    async def handler(payload: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            overdue.set()
            await asyncio.Event().wait()

    trial = Trial(handler, timeout_s=0.01)
    await asyncio.wait_for(overdue.wait(), 10)
    trial.cut()
    outcome = unknown(await trial.outcome())
    assert (outcome.reason, outcome.cut, trial.open_cancels) == ("timeout", False, 0)


async def test_the_task_goes_on_after_a_cut() -> None:
    gate = Gate()
    record = asyncio.Event()

    async def process() -> Outcome:
        outcome = await here(gate.handler, cut=gate.began.is_set)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(record.wait())
        return outcome

    task = asyncio.create_task(process())
    await gate.entered()
    task.cancel()
    record.set()
    assert unknown(await asyncio.wait_for(task, 10)).cut
    assert task.cancelling() == 0


# --- cancelled by somebody else ----------------------------------------------------------------------


async def test_a_cancellation_from_outside_goes_on() -> None:
    gate = Gate()
    trial = Trial(gate.handler)
    await gate.entered()
    trial.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial.outcome()
    assert trial.task.cancelled()


async def test_a_timeout_around_the_attempt_works() -> None:
    gate = Gate()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await here(gate.handler)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_goes_on_even_after_the_timeout() -> None:
    overdue = asyncio.Event()

    async def handler(payload: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            overdue.set()
            await asyncio.Event().wait()

    trial = Trial(handler, timeout_s=0.01)
    await asyncio.wait_for(overdue.wait(), 10)
    trial.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial.outcome()
    assert trial.task.cancelling() == 1


@given(st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_who_stopped(ours: int, others: int, cut: bool) -> None:
    stop = who_stopped(ours + others, ours, cut)
    assert (stop is Stop.NOBODY) is (ours == 0 and others == 0)
    assert (stop is Stop.OUTER) is (others > 0 and not cut)
    assert (stop is Stop.CUT) is (others > 0 and cut and ours == 0)
