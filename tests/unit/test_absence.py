"""What looks at a lane's queues prove of its jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.absence import SLACK, Absence, Look

START = datetime(2026, 1, 1, tzinfo=UTC)
HOLD = timedelta(seconds=300)
EMPTY = (0, 1, 0)


def after(*looks: tuple[int | None, int, int], every_s: float = 3) -> Absence:
    """What these looks (ready, consumers, held) prove."""
    absence = Absence(HOLD)
    for number, (ready, consumers, held) in enumerate(looks):
        absence.saw(Look(START + timedelta(seconds=number * every_s), ready, consumers, held))
    return absence


def test_empty_queues_and_nothing_held_afterwards_prove_the_first_moment() -> None:
    assert after(EMPTY).proven is None
    absence = after(EMPTY, (5, 1, 0))
    assert absence.proven == START
    assert absence.covers(START - SLACK - timedelta(seconds=1))
    assert not absence.covers(START - SLACK)


@pytest.mark.parametrize(
    "looks",
    [
        [(1, 1, 0), (1, 1, 0)],
        [(None, 1, 0), (None, 1, 0)],
        [EMPTY, (0, 1, 3)],  # held: one of those may be the job
        [(0, 0, 0), (0, 0, 0)],  # a broker that is busy answers like this too
    ],
)
def test_anything_else_proves_nothing(looks: list[tuple[int | None, int, int]]) -> None:
    assert after(*looks).proven is None


def test_queues_that_nobody_consumes_are_believed_after_three_looks() -> None:
    assert after(*[(0, 0, 0)] * 4).proven == START + timedelta(seconds=6)


def test_what_is_held_for_longer_than_anybody_holds_is_not_the_job() -> None:
    assert after((0, 1, 2), (0, 1, 2), every_s=299).proven is None
    assert after((0, 1, 2), (0, 1, 2), every_s=300).proven == START


def test_without_a_proof_nothing_is_missing() -> None:
    assert not Absence(HOLD).covers(START - timedelta(days=365))


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, 2)), st.integers(0, 1), st.integers(0, 2), st.integers(1, 400)
        ),
        max_size=20,
    )
)
def test_only_moments_at_which_nothing_was_ready_are_ever_proven(
    looks: list[tuple[int | None, int, int, int]],
) -> None:
    absence, at, empty = Absence(HOLD), START, set()
    for ready, consumers, held, step_s in looks:
        before = absence.proven
        absence.saw(Look(at, ready, consumers, held))
        if absence.proven is not None and absence.proven != before:
            assert absence.proven in empty
            assert before is None or absence.proven > before
        if ready == 0:
            empty.add(at)
        at += timedelta(seconds=step_s)
