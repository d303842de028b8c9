"""Permits of ended sessions are cool when that is certain, and no sooner for a clock that was set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acklast.ledger.budgets import Account, Holding
from acklast.pacing.departed import STEP_S, Departed

HOT_S = 60.25
LIVE = Holding(1, 5, 5, fresh=False, quota=10, period_s=60.0, hot_s=HOT_S)
LAPSED = replace(LIVE, session=2, live=False, hot_left_s=HOT_S)
PROVED = replace(LAPSED, session=3, proved=True)


def left_s(departed: Departed, now: float, *holdings: Holding) -> list[float]:
    """What is left of each, by a daemon that looks ``now``."""
    account = departed.cooled(Account("api", 1, 0.0, True, holdings), now)
    return [holding.hot_left_s for holding in account.holdings]


def test_a_lease_that_ran_out_is_believed_with_a_step_to_spare() -> None:
    assert left_s(Departed(), 0.0, LIVE, LAPSED) == [0.0, HOT_S + STEP_S]


def test_a_proved_end_cools_for_as_long_as_it_has_been_seen() -> None:
    departed = Departed()
    assert left_s(departed, 100.0, PROVED) == [HOT_S]
    # The ledger's clock has gone forward by 2 s more than ours.
    (left,) = left_s(departed, 110.0, replace(PROVED, hot_left_s=HOT_S - 12))
    assert left == pytest.approx(HOT_S - 10)


def test_who_comes_late_need_not_wait_for_all_of_it() -> None:
    old = replace(PROVED, hot_left_s=5.0)
    assert left_s(Departed(), 0.0, old) == [5.0 + STEP_S]
    assert left_s(Departed(), 0.0, replace(old, hot_left_s=float("-inf"))) == [float("-inf")]


def test_a_session_that_lives_again_is_seen_anew_when_it_ends() -> None:
    departed = Departed()
    left_s(departed, 0.0, PROVED)
    left_s(departed, 10.0, replace(PROVED, live=True, hot_left_s=0.0))
    assert left_s(departed, 20.0, PROVED) == [HOT_S]
