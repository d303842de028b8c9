"""What the demos of the examples start and wait for: acklast's commands and processes, stand-ins for APIs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

POLL_S: Final = 0.1
LIMIT_S: Final = 120.0


class Stuck(Exception):  # noqa: N818 - named for what is true
    """A process failed, or did not get there in time. The text ends with what it said."""


def wait_for(what: str, ready: Callable[[], Any], timeout_s: float = LIMIT_S) -> None:
    """Ask ``ready`` until it says so.

    Raises:
        Stuck: not within ``timeout_s``.
    """
    until = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > until:
            raise Stuck(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs ``acklast`` in an example's directory, with an environment that says where everything is."""

    directory: Path
    env: Mapping[str, str]

    def run(self, *words: str, accept: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
        """A command with ``--json``; what it printed.

        Raises:
            Stuck: it ended with another code than ``accept`` has.
        """
        return [json.loads(line) for line in self.text(*words, "--json", accept=accept).splitlines()]

    def text(self, *words: str, accept: tuple[int, ...] = (0,)) -> str:
        """A command; what it printed. Raises as ``run`` does."""
        done = subprocess.run(
            self.line(*words), env=self.env, cwd=self.directory, capture_output=True, text=True, check=False
        )
        if done.returncode not in accept:
            raise Stuck(f"acklast {' '.join(words)} ended with {done.returncode}\n{done.stderr}")
        return done.stdout

    @staticmethod
    def line(*words: str) -> list[str]:
        return [sys.executable, "-m", "acklast", *words]


class Process:
    """A command that runs until it is told to stop; its log is a file. A context manager: it is killed."""

    def __init__(self, commands: Commands, log: Path, *words: str) -> None:
        self._log = log
        self._words = words
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                commands.line(*words, "--json"),
                env=commands.env,
                cwd=commands.directory,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def log(self) -> list[dict[str, Any]]:
        """What it has said so far."""
        lines = self._log.read_text(errors="replace").rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def says(self, event: str, timeout_s: float = LIMIT_S) -> None:
        """Wait until it says so.

        Raises:
            Stuck: it ended, or takes too long.
        """

        def said() -> bool:
            self.require_alive()
            return any(line["event"] == event for line in self.log())

        wait_for(f"acklast {self._words[0]} says {event}", said, timeout_s)

    def require_alive(self) -> None:
        """See that it still runs.

        Raises:
            Stuck: it does not.
        """
        if self._process.poll() is not None:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise Stuck(f"acklast {self._words[0]} ended with {self._process.returncode}\n{tail}")

    def kill(self) -> int:
        """SIGKILL: nothing is flushed, nothing is said. Minus the signal that ended it, or its exit code."""
        self._process.kill()
        return self._process.wait()

    def stop(self) -> int:
        """SIGTERM, and wait: the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=60)


@contextmanager
def stand_in(program: Path, *words: str) -> Iterator[str]:
    """A stand-in for somebody's API, a process of its own that says its URL when it is ready; the URL."""
    process = subprocess.Popen([sys.executable, str(program), *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise Stuck(f"{program.name} ended with {process.wait()}")
        yield json.loads(line)["url"]
    finally:
        process.terminate()
        process.wait()


def report_of(url: str) -> dict[str, Any]:
    """What a stand-in says of itself."""
    with urllib.request.urlopen(f"{url}/report", timeout=10) as answer:  # noqa: S310 - our own process
        found: dict[str, Any] = json.load(answer)
    return found
