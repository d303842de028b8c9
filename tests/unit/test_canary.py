"""How a redrive goes on: one step after the other, and no further than it goes well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast import canary
from acklast.canary import (
    LIVE,
    OTHER,
    SAME,
    YIELD_SHARE,
    Accepted,
    Ask,
    Finished,
    GoOn,
    Live,
    Standing,
    Stop,
    Traffic,
    Wait,
)
from simulation.mutation import Mutation

BEGUN = Standing(steps=(1, 5, 20, 100), step=0, letters=100)
WELL = Live(before=0, since=0)
WORSE = Live(before=2, since=40)


def at(**more: Any) -> Standing:
    return replace(BEGUN, **more)


FOLLOWS: Final = [
    (at(), Wait()),
    (at(released=1), Wait()),
    (at(released=1, done=1), GoOn(1)),
    (at(step=1, released=5, done=4), Wait()),
    (at(step=1, released=5, done=5), GoOn(2)),
    (at(step=3, released=100, done=99), Wait()),
    (at(step=3, released=100, done=100), Finished()),
    # What was refused is no sample: the step wants as many that were tried.
    (at(refused=3), Wait()),
    (at(refused=99), Wait()),
    (at(released=1, done=1, refused=3), GoOn(1)),
    (at(released=1, done=1, refused=99), Finished()),
    (at(refused=100), Finished()),
    # One that fails as before, at once: also in the midst of a step.
    (at(released=1, same=1), Stop(SAME)),
    (at(step=2, released=12, done=3, same=1), Stop(SAME)),
    (at(released=1, other=1), Ask(OTHER)),
    (at(step=2, released=12, done=3, same=1, other=1), Stop(SAME)),
    # As many as is tolerated of the step.
    (at(step=2, released=20, done=19, same=1, tolerate=0.05), GoOn(3)),
    (at(step=2, released=20, done=18, same=2, tolerate=0.05), Stop(SAME)),
    (at(step=2, released=20, done=18, other=2, tolerate=0.05), Ask(OTHER)),
    (at(step=2, released=20, done=18, same=1, other=1, tolerate=0.05), GoOn(3)),
    (at(step=1, released=5, done=4, same=1, tolerate=0.05), Stop(SAME)),
    # After a person has said to go on, as many as then, and no more.
    (at(released=1, same=1, accepted=Accepted(same=1)), GoOn(1)),
    (at(step=1, released=5, done=3, same=2, accepted=Accepted(same=1)), Stop(SAME)),
    (at(step=1, released=5, done=4, other=1, accepted=Accepted(same=1)), Ask(OTHER)),
    (at(step=2, released=20, done=18, same=2, tolerate=0.05, accepted=Accepted(same=1)), Stop(SAME)),
    # Where nothing is left to try there is nothing to stop.
    (at(step=3, released=100, done=90, same=5), Wait()),
    (at(step=3, released=100, done=90, same=10), Finished()),
]


@pytest.mark.parametrize(("now", "decision"), FOLLOWS)
def test_what_follows(now: Standing, decision: object) -> None:
    assert canary.decide(now) == canary.decide(now, WELL) == decision


def test_a_step_that_is_overtaken_is_passed_over() -> None:
    assert canary.decide(at(steps=(1, 2, 3, 100), released=2, done=2)) == GoOn(2)


def test_it_asks_where_other_jobs_fail_more_often_since_it_began() -> None:
    assert canary.decide(at(released=1, done=1), WORSE) == Ask(LIVE)
    assert canary.decide(at(released=1, done=1, accepted=Accepted(live=True)), WORSE) == GoOn(1)
    assert canary.decide(at(released=1, same=1), WORSE) == Stop(SAME)


@pytest.mark.parametrize(
    ("live", "more"),
    [
        (Live(0, 0), False),
        (Live(0, 9), False),
        (Live(0, 20), True),
        (Live(50, 0), False),
        (Live(50, 60), False),
        (Live(50, 100), True),
        (Live(10_000, 11_000), False),
        (Live(10_000, 16_000), True),
    ],
)
def test_more_often_is_more_than_chance_has(live: Live, more: bool) -> None:
    assert live.fails_more is more


@st.composite
def standings(draw: st.DrawFn) -> Standing:
    letters = draw(st.integers(1, 200))
    steps = tuple(sorted(draw(st.sets(st.integers(1, letters), max_size=4)) | {letters}))
    released = draw(st.integers(0, letters))
    refused = draw(st.integers(0, letters - released))
    done = draw(st.integers(0, released))
    same = draw(st.integers(0, released - done))
    other = draw(st.integers(0, released - done - same))
    tolerate = draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    accepted = Accepted(draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    step = draw(st.integers(0, len(steps) - 1))
    return Standing(steps, step, letters, released, refused, done, same, other, tolerate, accepted)


@given(standings())
def test_it_only_goes_on_forwards_when_everything_is_known(now: Standing) -> None:
    match canary.decide(now):
        case GoOn(step):
            assert now.out == 0
            assert now.steps[step] > now.released >= now.steps[now.step]
        case Finished():
            assert (now.left, now.out) == (0, 0)
        case Wait():
            assert now.out or now.room
        case Stop() | Ask():
            assert now.left


@given(standings())
def test_without_tolerance_one_failure_ends_it(now: Standing) -> None:
    now = replace(now, tolerate=0.0, accepted=Accepted())
    if now.left and (now.same or now.other):
        assert canary.decide(now) == (Stop(SAME) if now.same else Ask(OTHER))


@given(standings(), st.data())
def test_one_failure_more_never_makes_it_go_on(now: Standing, data: st.DataObject) -> None:
    if now.out and isinstance(canary.decide(now), Stop | Ask):
        field = data.draw(st.sampled_from(["same", "other", "done"]))
        worse = replace(now, **{field: getattr(now, field) + 1})
        assert isinstance(canary.decide(worse), Stop | Ask)


@given(standings(), st.lists(st.sampled_from(["done", "same", "other", "refused"]), min_size=1, max_size=12))
def test_it_comes_to_an_end_whatever_its_letters_come_to(start: Standing, fates: list[str]) -> None:
    now = replace(start, step=0, released=0, refused=0, done=0, same=0, other=0)
    for turn in range(2 * now.letters + len(now.steps) + 1):
        match canary.decide(now):
            case Finished() | Stop() | Ask():
                return
            case GoOn(step):
                now = replace(now, step=step)
            case Wait():
                fate = fates[turn % len(fates)]
                now = replace(
                    now, **{fate: getattr(now, fate) + 1}, released=now.released + (fate != "refused")
                )
                assert now.released <= now.steps[now.step]
    pytest.fail("it is still going on")


# --- pace --------------------------------------------------------------------------------------------

BUSY = Traffic(held=20, starts_per_s=50.0, open=True)


def test_it_yields_to_other_jobs_that_wait() -> None:
    assert canary.pace_per_s(5.0, BUSY, live_waits=False) == 5.0
    assert canary.pace_per_s(5.0, BUSY, live_waits=True) == pytest.approx(YIELD_SHARE * 50)
    assert canary.pace_per_s(1.0, BUSY, live_waits=True) == 1.0
    assert canary.pace_per_s(5.0, replace(BUSY, starts_per_s=0.0), live_waits=True) == 0.0


def test_it_asks_no_more_than_the_budget_has() -> None:
    assert canary.pace_per_s(5.0, replace(BUSY, most_per_s=2.0), live_waits=False) == 2.0


def test_where_nothing_starts_nothing_is_released() -> None:
    assert canary.pace_per_s(5.0, replace(BUSY, open=False), live_waits=False) == 0.0
    assert canary.quantity(BEGUN, 5.0, 0.0, 0) == 0


@given(st.floats(0.01, 100), st.lists(st.floats(0.01, 2), min_size=1, max_size=100))
def test_no_more_are_released_than_the_rate_allows(rate: float, looks: list[float]) -> None:
    saved, released = 0.0, 0
    now = at(steps=(10**6,), letters=10**6)
    for elapsed_s in looks:
        saved = canary.earned(saved, rate, elapsed_s)
        count = canary.quantity(now, saved, rate, 0)
        saved, released = saved - count, released + count
    assert released <= rate * sum(looks) + 1


def test_a_second_is_saved_and_no_more() -> None:
    assert canary.earned(0.0, 5.0, 3600.0) == 5.0
    assert canary.earned(0.0, 0.1, 3600.0) == 1.0
    assert canary.earned(0.5, 5.0, 0.1) == 1.0


def test_a_rate_below_one_a_look_adds_up() -> None:
    saved = 0.0
    for _ in range(20):
        saved = canary.earned(saved, 0.25, 0.25)
    assert int(saved) == 1


def test_a_few_seconds_worth_is_in_the_queue_and_a_minutes_worth_is_out() -> None:
    now = at(step=3)
    assert canary.quantity(now, 50.0, 5.0, 0) == 10
    assert canary.quantity(now, 50.0, 5.0, 8) == 2
    assert canary.quantity(now, 50.0, 5.0, 30) == 0
    waiting = at(steps=(1000,), letters=1000, released=299)
    assert canary.quantity(waiting, 50.0, 5.0, 0) == 1
    assert canary.quantity(replace(waiting, released=300), 50.0, 5.0, 0) == 0
    assert canary.quantity(now, 50.0, 0.1, 0) == 1


def test_no_more_than_belongs_to_the_step() -> None:
    assert canary.quantity(BEGUN, 50.0, 50.0, 0) == 1
    assert canary.quantity(at(step=1, released=3), 50.0, 50.0, 0) == 2
    assert canary.quantity(at(step=3, released=20, refused=79), 50.0, 50.0, 0) == 1


# --- these tests can fail ----------------------------------------------------------------------------

MUTATIONS: Final = {
    "goes on though some are out": ("decide", "now.room == 0 and now.out == 0", "now.room == 0"),
    "ends while some are out": ("decide", "Wait() if now.out else Finished()", "Finished()"),
    "stops only at the end of a step": ("decide", "if now.same >", "if now.out == 0 and now.same >"),
    "takes another failure for the same": ("decide", "now.other >", "now.same + now.other >"),
    "never asks": ("decide", "return Ask(OTHER)", "pass"),
    "goes on with what is accepted no more": ("_allowed", "max(accepted, ", "(accepted + "),
    "tolerates of the whole set": ("_allowed", "now.steps[now.step]", "now.letters"),
    "rounds in its own favour": ("_allowed", "math.floor", "math.ceil"),
    "begins a step anew": ("decide", "upto > now.released", "upto >= now.released"),
    "yields to nobody": ("pace_per_s", "if live_waits", "if False"),
    "knows no budget": ("pace_per_s", "min(rate_per_s, lane.most_per_s)", "rate_per_s"),
    "releases into what stands still": ("pace_per_s", "if not lane.open", "if False"),
    "saves without end": ("earned", "max(1.0, pace * BURST_S)", "math.inf"),
    "leaves the step": ("quantity", "now.room", "now.left"),
    "fills the queue": ("quantity", "short, ", ""),
    "has any number out": ("quantity", ", out)", ")"),
}


def checks() -> None:
    """What the tests above ask, but for chance."""
    for now, decision in FOLLOWS:
        test_what_follows(now, decision)
    test_a_step_that_is_overtaken_is_passed_over()
    test_it_yields_to_other_jobs_that_wait()
    test_it_asks_no_more_than_the_budget_has()
    test_where_nothing_starts_nothing_is_released()
    test_a_second_is_saved_and_no_more()
    test_a_few_seconds_worth_is_in_the_queue_and_a_minutes_worth_is_out()
    test_no_more_than_belongs_to_the_step()


@pytest.mark.parametrize("mistake", MUTATIONS)
def test_a_mistake_is_found(mistake: str) -> None:
    name, old, new = MUTATIONS[mistake]
    with Mutation(canary, name, old, new, "").made(), pytest.raises((AssertionError, StopIteration)):
        checks()


def test_without_a_mistake_nothing_is_found() -> None:
    checks()
