"""When runs would be finished, by hand-made numbers that anybody can check."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.forecast import Forecast, LanePace, Load, flow, forecast, joined, shared

NOW = datetime(2030, 1, 1, tzinfo=UTC)
API = {"api": 10.0}
ON_API = {"a": LanePace("api"), "b": LanePace("api")}


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else NOW + timedelta(seconds=seconds)


def due(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def cast(
    loads: list[Load], new: Load, lanes: dict[str, LanePace], budgets: dict[str, float] = API
) -> Forecast:
    return forecast(NOW, loads, new, lanes, budgets)


def test_a_run_alone_goes_at_the_budgets_rate() -> None:
    found = cast([], Load("a", "new", 100, due(10)), ON_API)
    assert (found.finish, found.met, found.jobs, found.before) == (at(10), True, 100, 0)
    assert cast([], Load("a", "new", 101, due(10)), ON_API).met is False


def test_in_a_lane_who_came_first_goes_first() -> None:
    found = cast([Load("a", "old", 50, due(5))], Load("a", "new", 100), ON_API)
    assert found.finish == at(15)
    [old] = found.effects
    assert (old.run, old.without, old.with_, old.met_without, old.met_with) == (
        *("old", at(5), at(5)),
        *(True, True),
    )


def test_in_a_fair_lane_runs_take_turns_and_a_deadline_may_be_missed_for_it() -> None:
    lanes = {"a": LanePace("api", in_turns=True)}
    found = cast([Load("a", "old", 50, due(6))], Load("a", "new", 100), lanes)
    assert found.finish == at(15)
    [old] = found.effects
    assert (old.without, old.with_, old.met_without, old.met_with) == (at(5), at(10), True, False)


def test_lanes_share_a_budget_by_weight_and_what_one_leaves_is_the_others() -> None:
    lanes = {"a": LanePace("api", weight=1), "b": LanePace("api", weight=4)}
    found = cast([Load("b", "other", 80, due(9))], Load("a", "new", 100), lanes)
    [other] = found.effects
    assert (other.without, other.with_) == (at(8), at(10))
    assert found.finish == at(18)


def test_a_run_of_two_lanes_is_finished_with_the_last_of_them() -> None:
    lanes = {"a": LanePace("api"), "b": LanePace(None, most_per_s=1.0)}
    found = cast([Load("a", "both", 10, due(5)), Load("b", "both", 20, due(30))], Load("a", "new", 10), lanes)
    [both] = found.effects
    assert (both.jobs, both.deadline, both.with_) == (30, due(30), at(20))


def test_what_is_open_of_the_run_already_counts_with_it() -> None:
    found = cast([Load("a", "new", 30, due(1)), Load("a", None, 20)], Load("a", "new", 50, due(1)), ON_API)
    assert (found.jobs, found.before, found.finish, found.effects) == (80, 20, at(10), ())


def test_a_lane_that_is_paused_for_a_while_begins_later() -> None:
    lanes = {"a": LanePace("api", opens_s=60), "b": LanePace("api")}
    found = cast([Load("b", "other", 1000, due(100))], Load("a", "new", 100), lanes)
    assert found.effects[0].with_ == at(110)  # 60 s alone, then half the rate until the new one is through
    assert found.finish == at(80)


@pytest.mark.parametrize(
    "pace", [LanePace(None), LanePace("api", opens_s=None), LanePace("gone"), LanePace(None, most_per_s=0.0)]
)
def test_what_cannot_be_known_is_not_made_up(pace: LanePace) -> None:
    found = cast(
        [Load("b", "other", 10, due(5))], Load("a", "new", 10, due(5)), {"a": pace, "b": ON_API["b"]}
    )
    assert (found.finish, found.met) == (None, None)
    assert found.effects[0].with_ == at(1)


def test_nothing_new_is_finished_at_once() -> None:
    assert cast([], Load("a", "new", 0), ON_API).finish == NOW


def test_a_lane_that_cannot_use_its_part_leaves_it_to_the_others() -> None:
    lanes = {"a": LanePace("api", most_per_s=2.0), "b": LanePace("api"), "c": LanePace("api", weight=3)}
    assert shared(10, lanes) == {"a": 2.0, "b": 2.0, "c": 6.0}
    assert shared(20, lanes) == {"a": 2.0, "b": 4.5, "c": 13.5}


def test_what_only_the_broker_knows_of_is_reckoned_with() -> None:
    loads = joined([Load("a", "r", 30)], {"a": 50, "b": 0, "c": 7})
    assert loads == [Load("a", "r", 30), Load("a", None, 20), Load("c", None, 7)]
    assert joined([Load("a", "r", 30)], {"a": 10}) == [Load("a", "r", 30)]


def step_by_step(
    loads: list[Load], lanes: dict[str, LanePace], budgets: dict[str, float]
) -> dict[tuple[str, str | None], float]:
    """The same flow load by load; every lane opens some time, and goes then."""
    rest = {number: float(load.jobs) for number, load in enumerate(loads) if load.jobs}
    ended = {(load.lane, load.run): 0.0 for load in loads}
    now = 0.0
    while rest:
        mine = {name: [n for n in rest if loads[n].lane == name] for name in {loads[n].lane for n in rest}}
        going = {name: lanes[name] for name in mine if (lanes[name].opens_s or 0.0) <= now}
        rates: dict[int, float] = {}
        for name, lane in going.items():
            beside = {other: one for other, one in going.items() if one.budget == lane.budget}
            starts = shared(budgets[lane.budget], beside)[name] if lane.budget else lane.most_per_s or 0.0
            per_s = starts / lane.starts_per_job if lane.budget else starts
            first = mine[name] if lane.in_turns else mine[name][:1]
            rates |= {n: per_s / len(first) for n in first}
        opens = [lanes[name].opens_s or 0.0 for name in mine]
        step = min([rest[n] / per_s for n, per_s in rates.items()] + [at - now for at in opens if at > now])
        now += step
        for n, per_s in rates.items():
            rest[n] -= per_s * step
            if rest[n] < 1e-6:
                ended[loads[n].lane, loads[n].run] = now
                del rest[n]
    return ended


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("rstu"), st.integers(0, 1000)), max_size=12),
    st.lists(st.sampled_from([0.0, 5.0, 50.0]), min_size=4, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_a_lane_at_a_time_comes_to_the_same_as_a_run_at_a_time(
    open_: list[tuple[str, str, int]], opens: list[float], turns: list[bool]
) -> None:
    made = [
        LanePace("api", weight=3.0, starts_per_job=1.5),
        LanePace("api", most_per_s=2.0),
        LanePace("api"),
        LanePace(None, most_per_s=3.0),
    ]
    lanes = {
        name: replace(lane, opens_s=opens_s, in_turns=in_turns)
        for name, lane, opens_s, in_turns in zip("abcd", made, opens, turns, strict=True)
    }
    loads = [Load(*one) for one in open_]
    assert flow(loads, lanes, API) == pytest.approx(step_by_step(loads, lanes, API), abs=1e-3)


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["r", "s", "t"]), st.integers(0, 1000)), max_size=8
    ),
    st.integers(0, 1000),
)
def test_all_of_a_budget_is_used_and_nobody_is_finished_sooner_for_one_more(
    open_: list[tuple[str, str, int]], jobs: int
) -> None:
    loads = [Load(lane, run, count, due(1)) for lane, run, count in open_]
    found = cast(loads, Load("a", "new", jobs), ON_API)
    total = jobs + sum(load.jobs for load in loads)
    last = max([found.finish, *(effect.with_ for effect in found.effects)], key=lambda end: end or NOW)
    assert last is not None
    assert (last - NOW).total_seconds() == pytest.approx(total / 10, abs=1e-3)
    for effect in found.effects:
        assert effect.without is not None
        assert effect.with_ is not None
        assert effect.with_ - effect.without >= timedelta(microseconds=-100)
