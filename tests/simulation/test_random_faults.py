"""Random messages, handlers, lanes, faults and interleavings: what nobody thought of."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from acklast.policy import OnUnknown
from acklast.testing.stage import Heir
from harness.drawn import drawn
from simulation.acts import FIT
from simulation.scenario import POLICY, Post, Scenario
from simulation.schedule import CRASHES, Blow, Fault, Schedule
from simulation.world import play

KEYS = "abc"
seconds = st.sampled_from([0.0, 0.5, 3.0, 20.0])
acts = st.lists(st.sampled_from(FIT), min_size=1, max_size=3).map(tuple)
posts = st.builds(
    Post,
    key=st.sampled_from(KEYS),
    acts=acts,
    body=st.sampled_from([b"{}", b"{}", b"{}", b"[]"]),
    type=st.sampled_from(["work.v1"] * 5 + ["other.v1"]),
    at_s=seconds,
    deadline_s=st.sampled_from([None, None, None, 2.0, 30.0]),
    not_before_s=st.sampled_from([None, None, None, 4.0]),
    headers=st.sampled_from([{}] * 5 + [{"not-before": "soon"}] + [{"run": "r"}] * 3),
)
scenarios = st.builds(
    Scenario,
    posts=st.lists(posts, min_size=1, max_size=5).map(tuple),
    policy=st.sampled_from([replace(POLICY, on_unknown=choice) for choice in OnUnknown]),
    reconcile=st.sampled_from(["", "truth", "truth", "shrug"]),
    processes=st.integers(1, 2),
    concurrency=st.integers(1, 3),
    quota=st.sampled_from([None, None, (1, 1.0), (2, 3.0)]),
    cancel=st.sampled_from(["", "", "", "a"]),
    cancel_run=st.sampled_from(["", "r"]),
)
all_blows = st.builds(Blow, st.sampled_from(list(Fault)), st.sampled_from(list(Heir)))
crashes = st.builds(Blow, st.sampled_from(CRASHES), st.sampled_from(list(Heir)))


def schedules(blows: st.SearchStrategy[Blow]) -> st.SearchStrategy[Schedule]:
    return st.dictionaries(st.integers(0, 60), blows, max_size=8)


@drawn(50, 1500)
@given(scenarios, schedules(all_blows), st.integers(0, 2**32))
def test_whatever_goes_wrong_no_promise_is_broken(scenario: Scenario, schedule: Schedule, seed: int) -> None:
    play(scenario, schedule, seed)


@drawn(25, 500)
@given(st.lists(acts, min_size=1, max_size=4), schedules(crashes), st.integers(0, 2**32))
def test_a_lane_that_holds_has_each_effect_at_most_once(
    scripts: list[tuple[str, ...]], schedule: Schedule, seed: int
) -> None:
    made = tuple(Post(f"k{number}", script) for number, script in enumerate(scripts))
    world = play(Scenario(made, replace(POLICY, on_unknown=OnUnknown.HOLD), processes=2), schedule, seed)
    assert all(world.account.effects(post.key) <= 1 for post in made)


@drawn(25, 500)
@given(st.integers(1, 4), schedules(crashes), st.integers(0, 2**32))
def test_a_reconcile_that_knows_gives_each_job_its_one_effect_through_any_crashes(
    jobs: int, schedule: Schedule, seed: int
) -> None:
    policy = replace(POLICY, on_unknown=OnUnknown.RECONCILE, max_attempts=20)
    made = tuple(Post(f"k{number}") for number in range(jobs))
    world = play(Scenario(made, policy, reconcile="truth", processes=2), schedule, seed)
    assert [world.account.effects(post.key) for post in made] == [1] * jobs


def test_the_same_seed_is_the_same_simulation() -> None:
    scenario = Scenario((Post("a", ("transient", "do")), Post("b"), Post("a")), processes=2)
    schedule = {5: Blow(Fault.CRASH_AFTER, Heir.OTHER), 9: Blow(Fault.CHANNEL)}
    first, second, other = (play(scenario, schedule, seed).trail for seed in (1, 1, 2))
    assert first == second
    assert first != other
