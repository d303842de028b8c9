"""The servers that tests and demo run on leave nothing behind, whatever ends their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import need
from dev.workspace import StackError, Workspace
from harness import until

ROOT = Path(__file__).parents[2]

# An owner that starts one process, says where, and waits to be ended.
OWNER = """
import signal, sys
from dev.workspace import Workspace
with Workspace() as place:
    log = place.directory("home") / "log"
    child = place.spawn(["sleep", "60"], env={"PATH": "/usr/bin:/bin"}, log=log, end_with=signal.SIGTERM)
    print(child.pid, place.path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def started(owner: subprocess.Popen[str]) -> tuple[int, Path]:
    assert owner.stdout is not None
    pid, path = owner.stdout.readline().split()
    return int(pid), Path(path)


def gone(pid: int) -> bool:
    """Ended; a zombie that its new parent has not collected yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_an_owner_that_ends_takes_its_processes_and_files_along(owner: subprocess.Popen[str]) -> None:
    pid, path = started(owner)
    assert not gone(pid)
    assert path.is_dir()
    owner.communicate("")
    assert owner.returncode == 0
    assert gone(pid)
    assert not path.exists()


def test_an_owner_that_is_killed_leaves_nothing_either(owner: subprocess.Popen[str]) -> None:
    pid, path = started(owner)
    owner.send_signal(signal.SIGKILL)
    until(lambda: gone(pid) and not path.exists(), what="the warden's clean-up")


def test_a_server_that_does_not_start_shows_its_log() -> None:
    with Workspace() as place, pytest.raises(StackError, match="no such thing"):
        place.run(["sh", "-c", "echo no such thing; exit 3"], env={"PATH": "/usr/bin:/bin"})


def test_servers_run_as_a_user_that_may_run_them() -> None:
    with Workspace() as place:
        uid = place.run(["id", "-u"], env={"PATH": "/usr/bin:/bin"}).strip()
    assert uid == (str(os.geteuid()) if os.geteuid() else "65534")


def test_a_missing_program_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKLAST_DEV_INSTALL", "0")
    monkeypatch.setattr(need, "_installed_rabbitmq", lambda: None)
    with pytest.raises(need.Missing, match=r"apt-get install --no-install-recommends rabbitmq-server"):
        need.rabbitmq_bin()
