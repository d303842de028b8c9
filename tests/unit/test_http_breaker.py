"""The circuit breaker, and the circuit that it keeps."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.config.quota import Quota
from acklast.pacing.breaker import Breaker, State
from acklast.pacing.budgets import Budget
from acklast.pacing.circuit import Circuit
from acklast.pacing.lanes import Entry, LanePacing
from acklast.pacing.slots import Draining, Slots
from acklast.policy import BreakerRules
from harness.virtual import elapse, turns, virtual

RULES = BreakerRules(after=3, pause_s=5, pause_cap_s=12)


def opened(now_s: float = 100.0, rules: BreakerRules = RULES) -> Breaker:
    breaker = Breaker(rules)
    for _ in range(rules.after):
        breaker = breaker.failed(now_s, probe=False)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = Breaker(RULES).failed(1, probe=False).failed(1, probe=False)
    assert breaker.state(1) is State.CLOSED
    assert breaker.succeeded().failed(1, probe=False).state(1) is State.CLOSED
    assert breaker.failed(1, probe=False).state(1) is State.OPEN


def test_an_open_breaker_admits_nobody_and_then_one() -> None:
    breaker = opened(100)
    assert not breaker.admits(104.9)
    assert breaker.admits(105)
    probing = breaker.started(105)
    assert not probing.admits(106)
    assert not probing.admits(10_000)
    assert probing.gave_up().admits(106)


def test_the_probe_decides() -> None:
    probing = opened(100).started(105)
    assert probing.succeeded() == Breaker(RULES)
    again = probing.failed(106, probe=True)
    assert (again.state(115.9), again.state(116)) == (State.OPEN, State.HALF_OPEN)
    # 5, 10, and no longer than the cap.
    third = again.started(116).failed(116, probe=True)
    assert (third.until_s, third.opened) == (128, 3)


def test_jobs_that_had_started_before_change_nothing_by_failing() -> None:
    late = opened(100).failed(104, probe=False)
    assert (late.until_s, late.opened) == (105, 1)
    probing = opened(100).started(105).failed(105, probe=False)
    assert probing.probing
    assert probing.state(105) is State.HALF_OPEN


def test_a_late_success_closes_it() -> None:
    assert opened(100).succeeded().admits(100)


def test_zero_turns_it_off() -> None:
    breaker = Breaker(BreakerRules(after=0))
    for _ in range(100):
        breaker = breaker.failed(1, probe=False)
    assert breaker.admits(1)


@given(st.lists(st.sampled_from(["start", "up", "down", "nothing", "time"]), max_size=60))
def test_while_it_is_not_closed_no_two_are_under_way_that_it_admitted(acts: list[str]) -> None:
    breaker, now, probes = Breaker(RULES), 0.0, 0
    for act in acts:
        match act:
            case "time":
                now += 3
            case "start" if breaker.admits(now):
                before, breaker = breaker, breaker.started(now)
                probes += breaker is not before
            case "up" if probes:
                breaker, probes = breaker.succeeded(), 0
            case "down":
                breaker = breaker.failed(now, probe=probes > 0)
                probes = 0
            case "nothing" if probes:
                breaker, probes = breaker.gave_up(), 0
        assert probes <= 1
        assert breaker.until_s - now <= RULES.pause_cap_s
        if breaker.state(now) is State.OPEN:
            assert not breaker.admits(now)


# --- the circuit ------------------------------------------------------------------------------------------


def through(entry: Entry, up: bool | None) -> None:
    with entry:
        entry.spend()
        entry.saw(up)


def pacing(circuit: Circuit, *, concurrency: int = 10, quota: int = 100) -> LanePacing:
    return LanePacing(Slots(concurrency), Budget("api", Quota(quota, 1.0)), circuit)


async def broken(circuit: Circuit, lane: LanePacing) -> None:
    for _ in range(3):
        through(await lane.enter(), up=False)
    assert circuit.state is State.OPEN


@virtual
async def test_while_the_gate_is_shut_nothing_starts_and_then_one_alone() -> None:
    circuit = Circuit(RULES)
    lane = pacing(circuit)
    await broken(circuit, lane)
    waiting = [asyncio.create_task(lane.enter()) for _ in range(5)]
    await elapse(4.9)
    assert not any(task.done() for task in waiting)
    await elapse(0.2)
    [probe] = [task for task in waiting if task.done()]
    await elapse(100)
    assert sum(task.done() for task in waiting) == 1
    through(probe.result(), up=True)
    await turns()
    assert all(task.done() for task in waiting)
    assert circuit.state is State.CLOSED


@virtual
async def test_a_probe_that_met_nobody_lets_another_go() -> None:
    circuit = Circuit(RULES)
    lane = pacing(circuit)
    await broken(circuit, lane)
    waiting = [asyncio.create_task(lane.enter()) for _ in range(3)]
    await elapse(5.1)
    [first] = [task for task in waiting if task.done()]
    through(first.result(), up=None)
    await turns()
    assert sum(task.done() for task in waiting) == 2


@virtual
async def test_a_failed_probe_pauses_the_whole_budget_for_longer() -> None:
    circuit = Circuit(RULES)
    lane = pacing(circuit)
    await broken(circuit, lane)
    await elapse(5.1)
    through(await lane.enter(), up=False)
    assert lane.budget is not None
    assert lane.budget.paused_s == pytest.approx(10, abs=0.2)


@virtual
async def test_who_waits_for_a_permit_while_the_downstream_goes_down_does_not_start() -> None:
    circuit = Circuit(RULES)
    lane = pacing(circuit, quota=3)
    entries = [await lane.enter() for _ in range(3)]
    late = asyncio.create_task(lane.enter())
    await turns()
    for entry in entries:
        through(entry, up=False)
    await elapse(4)
    assert not late.done()
    assert lane.budget is not None
    await elapse(2)
    through(await late, up=True)
    assert circuit.state is State.CLOSED


@virtual
async def test_who_is_cancelled_while_the_probe_is_away_leaves_nothing_behind() -> None:
    circuit = Circuit(RULES)
    lane = pacing(circuit)
    await broken(circuit, lane)
    await elapse(5.1)
    probe = await lane.enter()
    waiting = [asyncio.create_task(lane.enter()) for _ in range(2)]
    await elapse(1)
    waiting[0].cancel()
    await turns()
    through(probe, up=True)
    through(await waiting[1], up=True)
    assert waiting[0].cancelled()
    assert lane.slots.held == 0


@virtual
async def test_who_waited_for_a_probe_that_failed_waits_with_the_budget() -> None:
    circuit = Circuit(RULES)
    lane = pacing(circuit)
    await broken(circuit, lane)
    await elapse(5.1)
    probe = await lane.enter()
    waiting = asyncio.create_task(lane.enter())
    await turns()
    through(probe, up=False)
    await elapse(9.9)
    assert not waiting.done()
    await elapse(0.2)
    through(waiting.result(), up=True)
    assert circuit.state is State.CLOSED


@virtual
async def test_a_drain_sends_home_who_waits_at_the_circuit() -> None:
    circuit = Circuit(RULES)
    lane = pacing(circuit)
    await broken(circuit, lane)
    waiting = asyncio.create_task(lane.enter())
    await turns()
    lane.close()
    with pytest.raises(Draining):
        await waiting
    assert lane.slots.held == 0


@virtual
async def test_the_log_is_told_when_it_shuts_and_opens() -> None:
    told: list[str] = []
    circuit = Circuit(
        RULES, opened=lambda _, pause_s: told.append(f"{pause_s:g}"), closed=lambda: told.append("up")
    )
    lane = pacing(circuit)
    await broken(circuit, lane)
    await elapse(5.1)
    through(await lane.enter(), up=True)
    through(await lane.enter(), up=True)
    assert told == ["5", "up"]
