"""A budget's permits: what they promise at the provider's own meter."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.config.quota import Quota
from acklast.pacing.budgets import Budget
from acklast.pacing.permit import Permit
from acklast.pacing.slots import Draining
from harness.virtual import VirtualLoop, elapse, turns, virtual


def now() -> float:
    return asyncio.get_running_loop().time()


async def taken(budget: Budget) -> Permit:
    """A permit that may be used."""
    permit = await budget.take()
    await permit.cooled()
    return permit


def loop() -> VirtualLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    return running


@virtual
async def test_a_permit_that_was_spent_comes_back_one_period_after_the_answer() -> None:
    budget, start = Budget("api", Quota(1, 60.0)), now()
    permit = await taken(budget)
    await elapse(7)
    permit.answered()
    await taken(budget)
    assert now() - start == pytest.approx(67, abs=0.01)


@virtual
async def test_a_permit_with_which_nothing_was_called_is_free_at_once() -> None:
    budget, start = Budget("api", Quota(1, 60.0)), now()
    permit = await taken(budget)
    waiting = asyncio.create_task(taken(budget))
    await turns()
    permit.unspent()
    await waiting
    assert now() == start


@virtual
async def test_a_cold_budget_starts_all_that_the_quota_allows_and_not_one_more() -> None:
    budget, start = Budget("api", Quota(3, 60.0)), now()
    for _ in range(3):
        (await taken(budget)).answered()
    assert now() == start
    assert budget.free == 0
    await taken(budget)
    assert now() - start >= 60


@virtual
async def test_a_pause_stops_every_start_and_a_shorter_one_never_shortens_it() -> None:
    budget, start = Budget("api", Quota(5, 1.0)), now()
    budget.pause(30)
    budget.pause(10)
    assert budget.paused_s == pytest.approx(30)
    await taken(budget)
    assert now() - start == pytest.approx(30, abs=0.01)
    assert budget.paused_s == 0


@virtual
async def test_a_pause_that_comes_while_somebody_waits_holds_for_them_too() -> None:
    budget, start = Budget("api", Quota(1, 5.0)), now()
    (await taken(budget)).answered()
    waiting = asyncio.create_task(taken(budget))
    await turns()
    budget.pause(20)
    await waiting
    assert now() - start == pytest.approx(20, abs=0.01)


@virtual
async def test_who_comes_first_gets_the_first_permit_also_when_one_is_free() -> None:
    budget, order = Budget("api", Quota(1, 1.0)), list[str]()
    permit = await taken(budget)

    async def call(name: str) -> None:
        permit = await taken(budget)
        order.append(name)
        permit.answered()

    waiting = [asyncio.create_task(call(name)) for name in "abc"]
    await turns()
    permit.unspent()
    late = asyncio.create_task(call("d"))
    await asyncio.gather(*waiting, late)
    assert order == ["a", "b", "c", "d"]


async def test_who_comes_when_a_permit_has_cooled_does_not_pass_who_waits() -> None:
    clock = [100.0]
    budget, order = Budget("api", Quota(1, 60.0), clock=lambda: clock[0]), list[str]()
    (await taken(budget)).answered()

    async def call(name: str) -> None:
        permit = await taken(budget)
        order.append(name)
        permit.unspent()

    first = asyncio.create_task(call("first"))
    await turns()
    clock[0] += 60  # and the timer has not fired yet
    await asyncio.gather(asyncio.create_task(call("second")), first)
    assert order == ["first", "second"]


async def test_who_is_cancelled_at_the_moment_of_being_let_in_passes_the_permit_on() -> None:
    budget = Budget("api", Quota(1, 60.0))
    permit = await taken(budget)
    first, second = asyncio.create_task(taken(budget)), asyncio.create_task(taken(budget))
    await turns()
    permit.unspent()
    first.cancel()
    passed_on = await asyncio.wait_for(second, 10)
    assert first.cancelled()
    passed_on.unspent()
    assert budget.free == 1


@virtual
async def test_waiting_for_calls_that_take_long_costs_nothing() -> None:
    budget = Budget("api", Quota(1, 1.0))
    permit = await taken(budget)
    waiting = asyncio.create_task(taken(budget))
    before = loop().wakeups
    await elapse(3600)
    assert loop().wakeups - before < 10, "no permit can come back by itself: there is nothing to look for"
    permit.answered()
    await waiting


@virtual
async def test_closing_sends_home_who_waits_and_leaves_no_timer_behind() -> None:
    budget = Budget("api", Quota(1, 3600.0))
    (await taken(budget)).answered()
    waiting = asyncio.create_task(taken(budget))
    await turns()
    budget.close()
    with pytest.raises(Draining):
        await waiting
    with pytest.raises(Draining):
        await taken(budget)
    before = loop().wakeups
    await elapse(2)
    assert loop().wakeups - before < 10


async def test_the_timer_wakes_who_waits_in_real_time() -> None:
    budget = Budget("api", Quota(1, 0.02))
    start = now()
    async with asyncio.timeout(10):
        for _ in range(3):
            (await taken(budget)).answered()
    assert now() - start >= 0.04


@dataclass(frozen=True)
class Call:
    """One start: when it comes, how long the answer takes, and when on its way the provider counts it."""

    at_s: float
    takes_s: float
    counted: float
    spends: bool
    patience_s: float | None
    pause_s: float


calls = st.builds(
    Call,
    at_s=st.floats(0, 20),
    takes_s=st.floats(0, 5),
    counted=st.floats(0, 1),
    spends=st.sampled_from([True, True, True, False]),
    patience_s=st.none() | st.floats(0, 20),
    pause_s=st.sampled_from([0.0, 0.0, 0.0, 2.5]),
)


async def make(call: Call, budget: Budget, meter: list[float]) -> None:
    await elapse(call.at_s)
    try:
        async with asyncio.timeout(call.patience_s):
            permit = await taken(budget)
    except TimeoutError:
        return
    if not call.spends:
        permit.unspent()
        return
    meter.append(now() + call.takes_s * call.counted)
    await elapse(call.takes_s)
    if call.pause_s:
        budget.pause(call.pause_s)
    permit.answered()


@given(st.integers(1, 4), st.floats(0.5, 5), st.lists(calls, min_size=1, max_size=25))
@virtual
async def test_no_window_at_the_provider_holds_more_than_the_quota(
    count: int, period_s: float, script: list[Call]
) -> None:
    budget, meter = Budget("api", Quota(count, period_s)), list[float]()
    await asyncio.gather(*(make(call, budget, meter) for call in script))
    meter.sort()
    for first, beyond in zip(meter, meter[count:], strict=False):
        # Sums of floats: a nanosecond is the rounding of the clock, not a call too early.
        assert beyond - first >= period_s - 1e-9
    await elapse(period_s + 0.01)
    assert budget.free == count, "every permit came back"


@given(st.integers(1, 3), st.lists(calls, min_size=1, max_size=15))
@virtual
async def test_nobody_is_paused_for_longer_than_the_longest_pause(count: int, script: list[Call]) -> None:
    budget, meter = Budget("api", Quota(count, 1.0)), list[float]()
    async with asyncio.timeout(20 + len(script) * (5 + 2.5 + 1)):
        await asyncio.gather(*(make(call, budget, meter) for call in script))
