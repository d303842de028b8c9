"""What the process tests run their daemons with: a fork is as a process that was started for itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from acklast.errors import Exit
from dev.forker import Forked, Forker
from harness import until

ROOT = Path(__file__).parents[2]
WAITS = """
import os, signal, sys
from acklast import App, faults
print(os.getcwd(), sys.path[0], dict(os.environ), faults.ARMED, flush=True)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
signal.pause()
app = App()
"""


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    made = Forker(os.pathsep.join((str(ROOT / "tests"), str(ROOT))))
    yield made
    made.close()


def start(forker: Forker, directory: Path, *arguments: str, **env: str) -> Forked:
    with (directory / "log").open("wb") as log:
        return forker.start(arguments, env, directory, log.fileno())


@pytest.fixture
def waiting(forker: Forker, tmp_path: Path) -> Iterator[Forked]:
    """A daemon that waits while it loads the application, when it has said what it is."""
    process = _waiting(forker, tmp_path)
    yield process
    process.kill()
    process.wait()


def _waiting(forker: Forker, directory: Path) -> Forked:
    (directory / "waits.py").write_text(WAITS)
    (directory / "acklast.toml").write_text(
        'app = "waits:app"\nstate_dir = "state"\n[broker]\nurl = "amqp://h"\n[ledger]\ndsn = "postgresql://h/d"\n'
        "[lanes.work]\n"
    )
    process = start(forker, directory, "run", ACKLAST_FAULT="acked:1")
    until(lambda: said(directory).count("\n") == 2 or process.poll() is not None)
    assert process.poll() is None, said(directory)
    return process


def said(directory: Path) -> str:
    return (directory / "log").read_text()


def test_it_ends_with_the_command_s_exit_code_and_output(forker: Forker, tmp_path: Path) -> None:
    process = start(forker, tmp_path, "run", "--config", "nowhere.toml")
    assert process.wait() == Exit.CONFIG
    assert process.poll() == process.returncode == Exit.CONFIG
    assert "nowhere.toml" in said(tmp_path)


def test_it_has_the_environment_and_directory_that_it_was_given(waiting: Forked, tmp_path: Path) -> None:
    assert said(tmp_path).splitlines() == [
        f"{tmp_path} {tmp_path} {{'ACKLAST_FAULT': 'acked:1'}} True",
        "True",
    ]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2])
def test_it_dies_of_signals(waiting: Forked, number: signal.Signals) -> None:
    assert waiting.poll() is None
    waiting.send_signal(number)
    assert waiting.wait() == -number
    waiting.kill()  # whoever is gone already minds no signal


def test_one_that_is_stopped_has_not_ended(waiting: Forked) -> None:
    waiting.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{waiting.pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    assert waiting.poll() is None


def test_its_end_is_that_of_its_forker(tmp_path: Path) -> None:
    forker = Forker(os.pathsep.join((str(ROOT / "tests"), str(ROOT))))
    process = _waiting(forker, tmp_path)
    forker.close()
    until(lambda: not Path(f"/proc/{process.pid}").exists())
    with pytest.raises(AssertionError, match="forks daemons has died"):
        process.wait()
