"""The processes of the demo: the acklast commands, the daemon, the property API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
_POLL_S: Final = 0.2


class Stuck(Exception):  # noqa: N818 - named for what is true
    """A process failed, or did not get there in time. The text ends with what it said."""


def wait_for(what: str, ready: Callable[[], bool], timeout_s: float) -> None:
    """Ask ``ready`` until it says so.

    Raises:
        Stuck: not within ``timeout_s``.
    """
    until = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > until:
            raise Stuck(f"{what}: not within {timeout_s:g} s")
        time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs ``acklast``, with an environment that says where everything is."""

    env: Mapping[str, str]

    def run(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
        """A command with ``--json``; what it printed.

        Raises:
            Stuck: it ended with another code than ``accept`` has.
        """
        return [json.loads(line) for line in self.text(*arguments, "--json", accept=accept).splitlines()]

    def text(self, *arguments: str, accept: tuple[int, ...] = (0,)) -> str:
        """A command; what it printed. Raises as ``run`` does."""
        done = subprocess.run(  # noqa: S603 - our own program
            self.line(*arguments), env=self.env, cwd=HERE, capture_output=True, text=True, check=False
        )
        if done.returncode not in accept:
            raise Stuck(f"acklast {' '.join(arguments)} ended with {done.returncode}\n{done.stderr}")
        return done.stdout

    @staticmethod
    def line(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "acklast", *arguments]


class Daemon:
    """One ``acklast run``; its log goes to a file."""

    def __init__(self, commands: Commands, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                commands.line("run", "--instance", "demo", "--json"),
                env=commands.env,
                cwd=HERE,
                stderr=output,
            )

    def log(self) -> list[dict[str, Any]]:
        lines = self._log.read_text(errors="replace").rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def await_ready(self) -> None:
        """Wait until it consumes.

        Raises:
            Stuck: it ended, or takes too long.
        """

        def ready() -> bool:
            self.require_alive()
            return any(line["event"] == "daemon.ready" for line in self.log())

        wait_for("the daemon is ready", ready, 30)

    def require_alive(self) -> None:
        """See that it still runs.

        Raises:
            Stuck: it does not.
        """
        if self._process.poll() is not None:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise Stuck(f"the daemon ended with {self._process.returncode}\n{tail}")

    def kill(self) -> int:
        """SIGKILL: no handler runs, nothing is flushed, nothing is said. Minus the signal that ended it."""
        self._process.kill()
        return self._process.wait()

    def drain(self) -> tuple[int, dict[str, Any]]:
        """SIGTERM, and wait: the exit code, and the last line of the log, the receipt."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(timeout=60)
        return code, self.log()[-1]


class PropertyApi:
    """The stand-in for the property API, in a process of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def report(self) -> dict[str, Any]:
        """Its account of everything that it saw."""
        with urllib.request.urlopen(f"{self.url}/report", timeout=10) as answer:  # noqa: S310 - our own process
            report: dict[str, Any] = json.load(answer)
        return report


@contextmanager
def property_api(quota: int, period_s: float) -> Iterator[PropertyApi]:
    """Start the stand-in on a free port; it allows ``quota`` calls in any ``period_s`` seconds."""
    program, limits = HERE / "property_api.py", ["--quota", str(quota), "--period-s", str(period_s)]
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, str(program), "--port", "0", *limits],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise Stuck(f"the property API ended with {process.wait()}")
        yield PropertyApi(json.loads(line)["url"])
    finally:
        process.terminate()
        process.wait()


@contextmanager
def ended_at_exit(daemons: list[Daemon]) -> Iterator[None]:
    """Whatever happens in between, no daemon of ours is left behind."""
    try:
        yield
    finally:
        for daemon in daemons:
            daemon.kill()


def environment(
    namespace: str, state_dir: Path, servers: Mapping[str, str], api: PropertyApi
) -> dict[str, str]:
    """What the commands need to find everything."""
    return {
        **os.environ,
        **servers,
        "ACKLAST__NAMESPACE": namespace,
        "ACKLAST__STATE_DIR": str(state_dir),
        "PROPERTY_API_URL": api.url,
    }
