"""Fair turns: shares within a turn of what the weights say, nobody starves, and each flow keeps its order."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.config.fair import FairBy, parse_fair_by
from acklast.config.quota import Quota
from acklast.pacing.budgets import Budget, StandBy
from acklast.pacing.fair import Fair
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Slots
from acklast.pacing.turn import Turn, Turns, weight_of
from acklast_topology.contract import RawMessage
from harness.virtual import elapse, turns, virtual

WEIGHTS = st.sampled_from([0.2, 0.5, 1.0, 1.4, 2.0, 10.0])
EPS = 1e-6


def filled(weights: dict[str, float], each: int) -> Fair[str]:
    line: Fair[str] = Fair()
    for flow, weight in weights.items():
        for _ in range(each):
            line.append(flow, flow, weight)
    return line


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=2), WEIGHTS, min_size=2, max_size=6), st.data())
def test_over_any_time_two_that_wait_get_turns_by_their_weights(
    weights: dict[str, float], data: st.DataObject
) -> None:
    line = filled(weights, 200)
    order = [line.popleft() for _ in range(150)]
    start = data.draw(st.integers(0, 149))
    got = Counter(order[start : data.draw(st.integers(start, 150))])
    for one, other in combinations(weights, 2):
        apart = abs(got[one] / weights[one] - got[other] / weights[other])
        assert apart <= 1 / weights[one] + 1 / weights[other] + EPS


@given(
    st.integers(1, 5000),
    st.lists(WEIGHTS, min_size=1, max_size=5),
    WEIGHTS,
    st.integers(0, 60),
)
def test_who_comes_new_is_next_whatever_the_others_have_waiting(
    backlog: int, others: list[float], own: float, before: int
) -> None:
    weights = {f"old-{number}": weight for number, weight in enumerate(others)}
    line = filled(weights, min(backlog, 200))
    for _ in range(min(before, len(line) - 1)):
        line.popleft()
    line.append("new", "new", own)
    came = 1
    while line.popleft() != "new":
        came += 1
    # At most two turns of each other, as far as they weigh the same.
    assert came <= 1 + sum(2 + weight / own for weight in others)


@given(st.lists(st.tuples(st.sampled_from("abc"), WEIGHTS) | st.none() | st.integers(0, 40), max_size=300))
def test_each_flow_keeps_its_order_and_nothing_is_lost(acts: list[Any]) -> None:
    line: Fair[tuple[str, int]] = Fair()
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for number, act in enumerate(acts):
        match act:
            case None:
                if len(line):
                    assert line.first() == (item := line.popleft())
                    assert waiting[item[0]].popleft() == item[1]
            case int():
                gone = line.take_out(lambda item: item[1] % 7 == act % 7)  # noqa: B023 - used at once
                for flow, left in waiting.items():
                    assert [one for name, one in gone if name == flow] == [
                        n for n in left if n % 7 == act % 7
                    ]
                    waiting[flow] = deque(n for n in left if n % 7 != act % 7)
            case (flow, weight):
                line.append((flow, number), flow, weight)
                waiting[flow].append(number)
        assert len(line) == sum(map(len, waiting.values()))
    while len(line):
        flow, number = line.popleft()
        assert waiting[flow].popleft() == number
    assert not any(waiting.values())
    with pytest.raises(IndexError):
        line.popleft()


def test_who_had_nothing_waiting_saves_nothing_up() -> None:
    line = filled({"busy": 1.0}, 100)
    for _ in range(50):
        line.popleft()
    for _ in range(10):
        line.append("idle", "idle")
    order = [line.popleft() for _ in range(10)]
    assert Counter(order) == {"busy": 5, "idle": 5}


def test_a_stream_of_ever_new_flows_starves_nobody() -> None:
    line, came = filled({"large": 1.0, "slow": 0.1}, 100), list[str]()
    for number in range(300):
        line.append(f"new-{number}", f"new-{number}")
        came.append(line.popleft())
    # There are more of them all the time, and each has its part; the two that wait have theirs.
    assert came.count("large") >= 10
    assert came.count("slow") >= 2


def test_flows_that_are_over_are_forgotten() -> None:
    line: Fair[int] = Fair()
    for number in range(10_000):
        line.append(number, f"run-{number}")
        assert line.popleft() == number
    assert len(line._flows) == 0
    line.append(-1, "always there", 0.01)
    for number in range(10_000):
        line.append(number, f"run-{number}")
        line.popleft()
    assert len(line._flows) < 300


# --- whose turn it is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("run", "r1"), ("type", "t1"), ("priority", ""), ("header:tenant", "blue"), ("header:none", "")],
)
def test_what_jobs_are_told_apart_by(text: str, expected: str) -> None:
    raw = RawMessage(b"", type="t1", headers={"run": "r1", "tenant": b"blue"})
    assert parse_fair_by(text).key(raw) == expected


@pytest.mark.parametrize("text", ["", "runs", "header", "header:", "header:a b", "Run"])
def test_what_it_is_not_told_apart_by(text: str) -> None:
    with pytest.raises(ValueError, match='must be "run", "type", "priority" or "header:NAME"'):
        parse_fair_by(text)


@pytest.mark.parametrize("odd", [b"\xff", 7, None, {"a": [1]}, float("nan")])
def test_any_message_has_a_flow(odd: Any) -> None:
    of = Turns("lane", 1.0, parse_fair_by("run")).of
    turn = of(RawMessage(b"", headers={"run": odd}, type=b"\xff"))
    assert hash(turn) == hash(of(RawMessage(b"", headers={"run": odd})))


def test_priorities_are_weights() -> None:
    assert [weight_of(priority) for priority in (0, None, 4, 9, 200, -3)] == [0.2, 1.0, 1.0, 2.0, 2.0, 0.2]
    of = Turns("lane", 3.0, FairBy()).of
    assert of(RawMessage(b"", priority=9)) == Turn("lane", 3.0, ("", 9), 2.0)
    assert of(RawMessage(b"")).flow == of(RawMessage(b"", priority=4)).flow


# --- a budget ----------------------------------------------------------------------------------------


async def drain_of(budget: Budget, demand: dict[Turn, int], starts: int) -> list[Turn]:
    """The turns of the first ``starts`` permits, where so many wait for each turn. One that did not wait, and
    so took no turn, is left out.
    """
    order: list[Turn] = []

    async def call(turn: Turn) -> None:
        permit = await budget.take(turn)
        order.append(turn)
        permit.answered()

    waiting = [asyncio.create_task(call(turn)) for turn, count in demand.items() for _ in range(count)]
    while len(order) <= starts:
        await elapse(1.0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return order[1 : starts + 1]


@virtual
async def test_lanes_share_a_budget_by_their_weights_whatever_each_has_waiting() -> None:
    many, few, heavy = Turn("many"), Turn("few"), Turn("heavy", 2.0)
    order = await drain_of(Budget("api", Quota(1, 1.0)), {many: 300, few: 20, heavy: 50}, 40)
    assert Counter(turn.lane for turn in order) == {"many": 10, "few": 10, "heavy": 20}


@virtual
async def test_the_flows_of_one_lane_take_nothing_from_another() -> None:
    flows = {Turn("many", 1.0, f"run-{number}"): 10 for number in range(20)}
    order = await drain_of(Budget("api", Quota(1, 1.0)), {**flows, Turn("one"): 50}, 60)
    assert Counter(turn.lane for turn in order) == {"many": 30, "one": 30}
    assert set(Counter(turn.flow for turn in order if turn.lane == "many").values()) <= {1, 2}


@virtual
async def test_a_low_priority_is_slower_and_never_starves() -> None:
    of = Turns("lane", 1.0, FairBy()).of
    high, low = of(RawMessage(b"", priority=9)), of(RawMessage(b"", priority=0))
    order = await drain_of(Budget("api", Quota(1, 1.0)), {high: 200, low: 50}, 110)
    assert Counter(order) == {high: 100, low: 10}


@virtual
async def test_a_lane_that_is_paused_and_goes_on_owes_nothing_for_those_who_left() -> None:
    budget = Budget("api", Quota(1, 1.0))
    lanes = {name: LanePacing(Slots(50), budget, turn=Turn(name)) for name in ("a", "b")}
    order: list[str] = []

    async def call(lane: str) -> None:
        try:
            with await lanes[lane].enter() as entry:
                entry.spend()
                order.append(lane)
        except StandBy:
            pass

    first = [asyncio.create_task(call(lane)) for lane in "ab" for _ in range(40)]
    await elapse(4.5)
    lanes["a"].pause(True)
    await turns()
    lanes["a"].pause(False)
    order.clear()
    again = [asyncio.create_task(call("a")) for _ in range(20)]
    await elapse(20.0)
    assert abs(order.count("a") - order.count("b")) <= 1
    for pacing in lanes.values():
        pacing.close()
    await asyncio.gather(*first, *again, return_exceptions=True)


@virtual
async def test_a_waiter_that_is_cancelled_leaks_no_permit() -> None:
    budget = Budget("api", Quota(1, 1.0))
    (await budget.take()).answered()
    slots = Slots(10)
    pacings = [LanePacing(slots, budget, turn=Turn(lane)) for lane in ("a", "b")]
    waiting = [asyncio.create_task(pacing.enter()) for pacing in pacings * 3]
    await turns()
    for task in waiting[:5]:
        task.cancel()
    await turns()
    await elapse(1.0)
    with await waiting[5]:
        pass
    assert (budget.free, slots.held, budget.waiting) == (1, 0, 0)
