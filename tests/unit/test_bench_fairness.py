"""What the order of starts says of a small run."""

from __future__ import annotations

from bench.fairness import Fared, Runs, parse


def test_starts_are_counted_before_the_small_run_and_until_its_last() -> None:
    starts = ["large", "large", "small", "large", "small"]
    assert Fared.of(starts, 1.5) == Fared(before=2, until=3, seconds=1.5)


def test_the_command_line() -> None:
    assert parse(["--large", "7", "--daemons", "2"]) == Runs(large=7, small=50, quota=200, daemons=2)
