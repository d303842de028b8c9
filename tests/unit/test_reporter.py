"""How many starts there were lately, from a count that only grows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Slots
from acklast.reporter import Meter, Observed


def test_starts_are_counted_over_the_window_and_forgotten_after_it() -> None:
    meter = Meter(5.0)
    assert meter.started(100.0, 3) == (3, 5.0), "before the first look there was nothing else"
    assert meter.started(101.0, 10) == (10, 5.0)
    for second in range(102, 106):
        meter.started(float(second), 10)
    assert meter.started(106.0, 10) == (0, 5.0)


def test_what_stays_the_same_is_told_in_the_same_words() -> None:
    meter = Meter(5.0)
    meter.started(0.0, 4)
    said = {meter.started(10.0 + look * 0.7, 4) for look in range(20)}
    assert said == {(0, 5.0)}


@given(
    window_s=st.floats(5.0, 4000.0),
    per_s=st.integers(1, 5000),
    look_s=st.floats(0.5, 2.0),
)
def test_a_steady_rate_is_told_as_it_is(window_s: float, per_s: int, look_s: float) -> None:
    meter, now = Meter(window_s), 1000.0
    started = within_s = 0.0
    while now < 1000.0 + window_s * 1.5 + 10:
        started, within_s = meter.started(now, int((now - 1000.0) * per_s))
        now += look_s * max(1.0, window_s / 200)
    assert started / within_s == pytest.approx(per_s, rel=0.02, abs=2 / window_s)


def test_what_waits_for_the_broker_to_take_it_in_counts_as_held() -> None:
    # Else its queues look empty, and nobody seems to have it: it would be missing.
    settler = SimpleNamespace(stuck=lambda: 2)
    lane = SimpleNamespace(
        name="rent", pacing=LanePacing(Slots(3)), settler=settler, active={}, lease=SimpleNamespace(live=True)
    )
    consumer = SimpleNamespace(consuming=SimpleNamespace(is_set=lambda: True))
    observed = Observed(lane, [None] * 5, consumer)  # type: ignore[arg-type]  # all that it looks at
    assert observed.report(0.0).held == 7
