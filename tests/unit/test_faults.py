"""The fault points of the crash tests: dead where the plan says, and nothing at all without a plan."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import acklast
from acklast import faults

PASS_THREE = """
from acklast import faults
for name in ("claimed", "recorded", "claimed"):
    faults.point(name)
    print(name, flush=True)
"""

POINT = re.compile(r'^ +faults\.point\("(\w+)"\)', re.MULTILINE)


def passed(tmp_path: Path, plan: str) -> tuple[int, list[str], str]:
    """Run through three points; the exit status, the points that were survived, and the mark."""
    mark = tmp_path / "mark"
    env = os.environ | {"ACKLAST_FAULT": plan, "ACKLAST_FAULT_MARK": str(mark)}
    done = subprocess.run(
        [sys.executable, "-c", PASS_THREE], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout.split(), mark.read_text() if mark.exists() else ""


@pytest.mark.parametrize(
    ("plan", "survived"),
    [("claimed:1", []), ("claimed", []), ("recorded:1", ["claimed"]), ("claimed:2", ["claimed", "recorded"])],
)
def test_the_process_dies_by_sigkill_at_the_planned_hit(
    tmp_path: Path, plan: str, survived: list[str]
) -> None:
    assert passed(tmp_path, plan) == (-signal.SIGKILL, survived, plan)


def test_a_point_that_is_not_planned_is_passed(tmp_path: Path) -> None:
    assert passed(tmp_path, "published:1") == (0, ["claimed", "recorded", "claimed"], "")


def test_without_a_plan_nothing_is_armed() -> None:
    assert faults.ARMED is False


def test_the_code_passes_every_point_that_the_tests_can_name_and_no_other() -> None:
    sources = Path(acklast.__file__).parent.rglob("*.py")
    in_code = {name for source in sources for name in POINT.findall(source.read_text())}
    named = {*faults.POINTS, *faults.ENQUEUE_POINTS, *faults.REDRIVE_POINTS, *faults.QUESTION_POINTS}
    assert in_code == {*named, faults.RELAY_POINT}


def test_a_point_costs_one_test_of_a_constant_where_it_is_off() -> None:
    for source in Path(acklast.__file__).parent.rglob("*.py"):
        lines = source.read_text().splitlines()
        for number, line in enumerate(lines):
            if re.match(r"\s+faults\.point\(", line):
                assert lines[number - 1].strip() == "if faults.ARMED:", f"{source.name}:{number + 1}"


def test_a_test_may_put_something_else_in_the_place_of_the_death() -> None:
    reached: list[str] = []
    with faults.armed(reached.append):
        assert faults.ARMED is True
        faults.point("claimed")
    assert reached == ["claimed"]
    assert faults.ARMED is False
