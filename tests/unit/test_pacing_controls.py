"""What is in force: never more than the configuration, and never after its time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.config.quota import Quota
from acklast.errors import Exit
from acklast.ledger.controls import Control, Kind, Target
from acklast.pacing.controls import Controls, Refused, lower_count, lower_quota, lower_rate
from harness.controls import control, pause


def test_without_controls_everything_is_as_configured() -> None:
    none = Controls()
    assert none.pause("mail", "api", 5.0) is None
    assert none.quota("api", Quota(10, 1.0), 5.0) == Quota(10, 1.0)
    assert none.concurrency(Target.LANE, "mail", 7, 5.0) == 7
    assert none.next_end_s(5.0) is None


@pytest.mark.parametrize(
    ("asked", "paused"),
    [
        (pause(Target.LANE, "mail"), True),
        (pause(Target.BUDGET, "api"), True),
        (pause(Target.LANE, "api"), False),
        (pause(Target.BUDGET, "mail"), False),
        (pause(Target.LANE, "other"), False),
    ],
)
def test_a_lane_is_paused_by_itself_and_by_its_budget(asked: Control, paused: bool) -> None:
    assert (Controls((asked,)).pause("mail", "api", 0.0) is not None) is paused


def test_of_two_pauses_the_one_that_lasts_longer_is_told() -> None:
    short, long = pause(Target.LANE, "mail", 10.0), pause(Target.BUDGET, "api")
    known = Controls((short, long), read_at=100.0)
    assert known.pause("mail", "api", 100.0) is long
    assert known.pause("mail", None, 100.0) is short
    assert known.pause("mail", None, 110.0) is None


@given(
    left_s=st.floats(0.001, 1e6),
    read_at=st.floats(0, 1e6),
    passed_s=st.floats(0, 2e6),
)
def test_a_control_is_in_force_until_its_time_is_up_and_not_a_moment_less(
    left_s: float, read_at: float, passed_s: float
) -> None:
    known, now = Controls((pause(Target.LANE, "mail", left_s),), read_at), read_at + passed_s
    in_force = known.pause("mail", None, now) is not None
    assert in_force is (now - read_at < left_s)
    assert (known.next_end_s(now) is not None) is in_force
    if in_force:
        assert known.next_end_s(now) == pytest.approx(left_s - passed_s, abs=1e-3)


quotas = st.builds(Quota, st.integers(1, 100_000), st.floats(0.01, 86_400))


@given(configured=quotas, asked=quotas)
def test_whatever_the_ledger_says_the_configured_quota_is_never_exceeded(
    configured: Quota, asked: Quota
) -> None:
    known = Controls(
        (control(Target.BUDGET, "api", Kind.QUOTA, amount=asked.count, period_s=asked.period_s),)
    )
    effective = known.quota("api", configured, 0.0)
    assert effective.count <= min(configured.count, asked.count)
    assert effective.period_s >= max(configured.period_s, asked.period_s)
    assert known.quota("other", configured, 0.0) == configured


@given(configured=st.integers(1, 10_000), asked=st.integers(1, 20_000))
def test_concurrency_is_never_above_the_configured_one(configured: int, asked: int) -> None:
    known = Controls((control(Target.LANE, "mail", Kind.CONCURRENCY, amount=asked),))
    assert known.concurrency(Target.LANE, "mail", configured, 0.0) == min(configured, asked)


# --- what may be asked for ------------------------------------------------------------------------------


@given(configured=quotas, part=st.floats(0.0001, 1.0))
def test_a_rate_becomes_a_quota_of_just_that_rate_that_keeps_the_configured_one(
    configured: Quota, part: float
) -> None:
    rate = configured.count / configured.period_s * part
    lowered = lower_rate("api", configured, rate)
    assert lowered.count <= configured.count
    assert lowered.period_s >= configured.period_s
    assert lowered.count / lowered.period_s == pytest.approx(rate, rel=1e-6)
    # The smallest burst that has this rate: never more at once than the rate has in a period, rounded up.
    assert lowered.count <= rate * configured.period_s + 1 + 1e-6


@given(configured=quotas, asked=quotas)
def test_a_quota_is_taken_as_it_is_or_refused_with_the_most_that_there_is(
    configured: Quota, asked: Quota
) -> None:
    fits = asked.count <= configured.count and asked.period_s >= configured.period_s
    if fits:
        assert lower_quota("api", configured, asked) == asked
        return
    with pytest.raises(Refused) as caught:
        lower_quota("api", configured, asked)
    assert str(configured) in caught.value.remedy
    assert caught.value.exit is Exit.USAGE


def test_a_rate_above_the_configured_one_is_refused_with_the_most_that_there_is() -> None:
    with pytest.raises(Refused, match=r"The most is 20 per 1 s \(20/s\)"):
        lower_rate("api", Quota(20, 1.0), 21.0)


def test_more_at_once_than_configured_is_refused_and_so_is_what_nothing_bounds() -> None:
    assert lower_count("lane 'mail'", 5, 5) == 5
    with pytest.raises(Refused, match="The most is 5"):
        lower_count("lane 'mail'", 5, 6)
    with pytest.raises(Refused, match="no concurrency in the configuration"):
        lower_count("budget 'api'", None, 1)
