"""The script that explores retry delays: it runs, and what it shows is so."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "explore-retries" / "explore.py"


@pytest.fixture(scope="module")
def explore() -> ModuleType:
    spec = importlib.util.spec_from_file_location("explore_retries", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_runs_from_the_first_cell_to_the_last(
    explore: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explore, "JOBS", 6)
    explore.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("|")] == [
        str(number) for policy in (8, 5, 12) for number in range(1, policy + 1)
    ]


def test_a_policy_spreads_its_attempts_up_to_the_cap(explore: ModuleType) -> None:
    lane = explore.POLICIES["short: 5 attempts, 1 s to 30 s"]
    groups = explore.starts_s(explore.failing(explore.FAILS, jobs=30, **lane))
    assert [len(group) for group in groups] == [30] * 5
    # Each wait is at most the back-off's ceiling, and the smallest bucket longer.
    assert max(groups[-1]) <= (1 + 2 + 4 + 8) + 4
    assert min(groups[-1]) < max(groups[-1])


def test_what_is_asked_for_is_granted_up_to_the_cap_and_waited_for(explore: ModuleType) -> None:
    found = explore.retry_after()
    assert [granted for _, granted, _ in found] == pytest.approx([0.2, 3, 47, 90, 1000, 3600])
    assert all(granted <= waited < granted + 1 for _, granted, waited in found)


def test_a_pause_is_everybodys_and_the_rate_comes_back(explore: ModuleType) -> None:
    starts = explore.fleet_pause()
    assert starts[:2] == [20, 20]
    assert sum(starts[3:17]) == 0
    assert 0 < starts[17] < 20
    assert max(starts) <= 20
