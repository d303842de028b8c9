"""The sieve: no flow fills the room, a large one gets a queue of its own, and a small one is never moved."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from acklast.pacing.sieve import LODGED_S, Sieve

ROOM, QUEUES = 100, 4


def flood(sieve: Sieve, flow: str, count: int, now: float = 0.0) -> list[int | None]:
    return [sieve.place(flow, now) for _ in range(count)]


def test_one_flow_takes_half_the_room_and_the_rest_goes_aside_to_one_queue() -> None:
    placed = flood(Sieve(ROOM, QUEUES), "big", 1000)
    assert placed[:50] == [None] * 50
    assert set(placed[50:]) == {1}


def test_a_small_run_behind_a_large_one_is_kept_whole() -> None:
    sieve = Sieve(ROOM, QUEUES)
    flood(sieve, "big", 100_000)
    assert flood(sieve, "small", 25) == [None] * 25


def test_large_flows_have_a_queue_each_as_long_as_there_are_enough() -> None:
    sieve = Sieve(ROOM, QUEUES)
    queues = [set(flood(sieve, f"big-{number}", 500)) - {None} for number in range(QUEUES)]
    assert queues == [{1}, {2}, {3}, {4}]
    # One more shares the queue in which the least is.
    shared = flood(sieve, "one-more", 500)[-1]
    assert shared in range(1, QUEUES + 1)


def test_a_flow_that_is_aside_stays_in_its_order_while_it_comes_back() -> None:
    sieve = Sieve(ROOM, QUEUES)
    flood(sieve, "big", 200)
    sieve.came("big", 1, 1.0)
    for _ in range(50):
        sieve.gone("big")
    # There is room again, but what is new of it is younger than what is aside.
    assert sieve.place("big", 1000.0) == 1
    # What has waited its turn once before need not wait behind the rest.
    assert sieve.place("big", 1000.0, returned=True) is None
    sieve.went("big", 1, 1000.0)
    assert sieve.place("big", 1000.0 + LODGED_S) == 1
    assert sieve.place("big", 1000.1 + LODGED_S) is None


def test_a_small_flow_does_not_stay_aside_behind_a_large_one_that_shares_its_queue() -> None:
    sieve = Sieve(10, 1)
    flood(sieve, "big", 100)
    small = flood(sieve, "small", 5)
    assert 1 in small
    now = 0.0
    while now <= LODGED_S:
        assert sieve.place("small", now) == 1
        now += 1.0
    sieve.gone("small")
    assert sieve.place("small", now) is None


def test_a_daemon_that_begins_learns_where_a_flow_is() -> None:
    sieve = Sieve(ROOM, QUEUES)
    sieve.came("big", 3, 0.0)
    assert sieve.place("big", 1.0) == 3
    assert set(flood(sieve, "other", 100)) == {None, 1}


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 60), st.booleans(), st.integers(0, 30)),
        max_size=80,
    )
)
def test_the_room_is_never_exceeded_and_never_lost(acts: list[tuple[str, int, bool, int]]) -> None:
    sieve, kept, now = Sieve(ROOM, QUEUES), Counter[str](), 0.0
    for flow, count, come, passes_s in acts:
        now += passes_s
        for _ in range(count):
            if come:
                before = kept.total()
                if sieve.place(flow, now) is None:
                    assert kept[flow] < ROOM - before
                    kept[flow] += 1
            elif kept[flow]:
                sieve.gone(flow)
                kept[flow] -= 1
    # A flow that is nowhere finds room, whatever the others have.
    assert kept.total() < ROOM
    assert sieve.place("new", now) is None
    for flow, count in kept.items():
        for _ in range(count):
            sieve.gone(flow)
    sieve.gone("new")
    assert flood(sieve, "next", ROOM, now).count(None) == ROOM // 2
