"""A million rows are enqueued in constant memory, by the process's own highest mark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acklast.errors import Exit
from harness import Broker
from harness.command import Command

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

MOST_KB = 150_000
MEASURED = """
import re, sys
from acklast.cli.root import run
code = run(sys.argv[1:])
status = open("/proc/self/status").read()
sys.stderr.write(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1])
sys.exit(code)
"""


@pytest.fixture
def command(tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, broker.url, ledger_dsn, capsys)


def measured(command: Command, *arguments: str) -> tuple[int, dict[str, object]]:
    """The most memory that a command ever took, in kB, and its summary."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments, "--json", "--config", str(command.config)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.OK, done.stderr
    return int(done.stderr.splitlines()[-1]), json.loads(done.stdout.splitlines()[-1])


def test_a_million_rows_take_no_more_memory_than_fifty_thousand(command: Command) -> None:
    took = {}
    for count in (50_000, 1_000_000):
        file = command.directory / f"{count}.csv"
        with file.open("w") as rows:
            rows.write("id,note\n")
            rows.writelines(f"{n},{'x' * 160}\n" for n in range(count))
        line = ("enqueue", "cleanup", str(file), "--run", f"r{count}", "--key", "{run}:{id}")
        dry, foreseen = measured(command, *line, "--dry-run")
        took[count], summary = measured(command, *line)
        assert summary["rows"] == foreseen["rows"] == count
        assert summary["complete"] is True
        assert max(dry, took[count]) < MOST_KB
        file.unlink()
    assert took[1_000_000] < took[50_000] + 10_000
