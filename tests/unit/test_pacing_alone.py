"""Suspects run one at a time, and only once the others have given up their claims."""

from __future__ import annotations

import asyncio

import pytest

from acklast.decide import Attempt, is_suspect, may_be_suspect
from acklast.pacing.alone import Alone
from acklast.pacing.slots import Draining
from acklast.policy import Policy
from harness.virtual import turns

A, B, C = ("rent", "a"), ("rent", "b"), ("mail", "c")


@pytest.mark.parametrize(
    ("most", "number", "ambiguous", "may"),
    [(8, 4, True, False), (8, 5, True, True), (8, 5, False, False), (4, 3, True, True), (1, 1, True, True)],
)
def test_half_of_the_attempts_are_free_of_suspicion(
    most: int, number: int, ambiguous: bool, may: bool
) -> None:
    assert may_be_suspect(Attempt(number, ambiguous=ambiguous), Policy(max_attempts=most)) is may


@pytest.mark.parametrize(
    ("most", "crashes", "suspect"), [(8, 3, False), (8, 4, True), (4, 2, True), (1, 0, False), (1, 1, True)]
)
def test_half_of_the_attempts_in_crashes_make_a_suspect(most: int, crashes: int, suspect: bool) -> None:
    assert is_suspect(crashes, Policy(max_attempts=most)) is suspect


async def test_one_runs_and_the_others_see_that_the_place_is_taken() -> None:
    alone = Alone()
    alone.suspects.add(A)
    await alone.take(A)
    assert alone.taken
    alone.give()
    assert not alone.taken


async def test_who_has_the_place_waits_for_the_claims_of_the_others() -> None:
    alone = Alone()
    alone.suspects |= {A, B, C}
    taking = asyncio.ensure_future(alone.take(A))
    await turns()
    alone.recorded(B)
    await turns()
    assert not taking.done()
    alone.recorded(C)
    await taking


async def test_who_comes_later_is_not_waited_for() -> None:
    alone = Alone()
    alone.suspects |= {A, B}
    taking = asyncio.ensure_future(alone.take(A))
    await turns()
    alone.suspects.add(C)
    alone.recorded(B)
    await taking


async def test_a_cancelled_wait_leaves_the_place_free() -> None:
    alone = Alone()
    alone.suspects |= {A, B}
    taking = asyncio.ensure_future(alone.take(A))
    await turns()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert not alone.taken


async def test_nothing_starts_once_it_is_closed() -> None:
    alone = Alone()
    alone.close()
    with pytest.raises(Draining):
        await alone.take(A)
