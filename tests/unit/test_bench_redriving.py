"""What the measurement of a redrive beside live work makes of the effects that it finds."""

from __future__ import annotations

import pytest

from bench.redriving import CASES, Effect, Turn, effects_of, found_of


def test_effects_count_in_the_turn_that_they_lie_in() -> None:
    effects = [Effect(live, at) for at in (0.0, 1.0, 2.0, 9.999, 10.0) for live in (True, False)]
    turn = Turn(True, 1.0, 10.0)
    assert turn.per_s(effects, live=True) == pytest.approx(3 / 9)
    assert Turn(True, 20.0, 21.0).per_s(effects, live=False) == 0


def test_what_live_work_keeps_is_told_by_medians() -> None:
    turns = [Turn(number % 2 == 1, 10.0 * number, 10.0 * number + 10) for number in range(6)]
    counts = {0: 100, 1: 90, 2: 80, 3: 95, 4: 100, 5: 99}
    effects = [Effect(True, 10.0 * turn + 1) for turn, count in counts.items() for _ in range(count)]
    effects += [Effect(False, 31.0)] * 5
    found = found_of(CASES[0], turns, effects)
    assert (found.alone.median, found.beside.median, found.redriven.high) == (10.0, 9.5, 0.5)
    assert found.kept == pytest.approx(0.95)


def test_effects_are_read_as_the_daemon_notes_them() -> None:
    assert effects_of("live 1.500000\nagain 2.000000\n") == [Effect(True, 1.5), Effect(False, 2.0)]
