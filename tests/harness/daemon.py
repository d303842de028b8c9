"""A real daemon process: started with a fault armed or without, watched by its log, ended by signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from dev.forker import forker
from harness.waiting import eventually

_ROOT = Path(__file__).parents[2]
PYTHON_PATH = os.pathsep.join((str(_ROOT / "tests"), str(_ROOT)))
"""Where what a test starts finds the tests' own modules."""
START_S = 60.0
"""How long a daemon may take to start on a busy machine."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Die at the ``hit``-th time that this point is reached."""

    point: str
    hit: int = 1

    def __str__(self) -> str:
        return f"{self.point}:{self.hit}"


class Process(Protocol):
    """What a daemon runs in."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | Any: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def send_signal(self, sig: signal.Signals, /) -> None: ...
    def kill(self) -> None: ...


class Daemon:
    """One ``acklast run``, or another ``command``. A context manager: what a test forgot to end is killed.

    It is a fork of a process that has imported the product; a ``fresh`` one is the command itself.
    """

    def __init__(
        self,
        config: Path,
        instance: str,
        *,
        env: Mapping[str, str],
        fault: Fault | None = None,
        fresh: bool = False,
        command: str = "run",
    ) -> None:
        self._command = command
        self._config = config
        self._instance = instance
        self._fault = fault
        self._fresh = fresh
        self._directory = config.parent
        number = len(list(self._directory.glob(f"{instance}-*.log")))
        self.log_file = self._directory / f"{instance}-{number}.log"
        self._mark = self._directory / f"{instance}-{number}.mark"
        self.environment = _environment(env, fault, self._mark)
        self._lines: list[dict[str, Any]] = []
        self._read_up_to = 0
        self._process: Process | None = None

    def __enter__(self) -> Self:
        arguments = [self._command, "--config", str(self._config), "--json"]
        if self._command == "run":
            arguments += ["--instance", self._instance]
        with self.log_file.open("wb") as log:
            if self._fresh:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "acklast", *arguments],
                    env=self.environment,
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            else:
                self._process = forker(self.environment["PYTHONPATH"]).start(
                    arguments, self.environment, self._directory, log.fileno()
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        if error is not None:
            error.add_note(f"--- {self.log_file.name}\n{self.text()[-4000:]}")

    @property
    def process(self) -> Process:
        assert self._process is not None, "the daemon was not started"
        return self._process

    # --- what it says ---------------------------------------------------------------------------

    def text(self) -> str:
        """Everything that it wrote."""
        return self.log_file.read_text(errors="replace")

    def log(self) -> list[dict[str, Any]]:
        """Its log so far. A line that is still being written is left out."""
        with self.log_file.open("rb") as file:
            file.seek(self._read_up_to)
            lines, end, _ = file.read().rpartition(b"\n")
        # What was read once is not read again: tests ask many times a second.
        self._lines += (json.loads(line) for line in lines.splitlines() if line.startswith(b"{"))
        self._read_up_to += len(lines) + len(end)
        return self._lines

    def said(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The log lines of one event with these fields."""
        wanted = {"event": event, **fields}
        return [line for line in self.log() if wanted.items() <= line.items()]

    async def says(self, event: str, *, timeout_s: float = START_S, **fields: Any) -> dict[str, Any]:
        """Wait for a log line.

        Raises:
            AssertionError: it does not come, or the daemon ends before it.
        """

        def found() -> list[dict[str, Any]]:
            ended = self.process.poll()
            lines = self.said(event, **fields)
            assert lines or ended is None, f"the daemon ended with {ended} and never said {event} {fields}"
            return lines

        return (await eventually(found, timeout_s, f"log line {event} {fields}"))[0]

    async def ready(self) -> None:
        """Wait until every lane is being consumed."""
        await self.says("daemon.ready")

    # --- how it ends ----------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, timeout_s: float = START_S) -> int:
        """Wait for its end; the exit code, or minus the number of the signal that killed it."""
        await eventually(lambda: self.process.poll() is not None, timeout_s, "the daemon has ended")
        return self.process.wait()

    async def drained(self, timeout_s: float = START_S) -> int:
        """SIGTERM, and wait for the end; the exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended(timeout_s)

    async def dies_at_fault(self, timeout_s: float = START_S) -> None:
        """Wait until the armed fault has killed it.

        Raises:
            AssertionError: it did not die, or of something else: such a test would prove nothing.
        """
        await eventually(lambda: self.process.poll() is not None, timeout_s, f"death at {self._fault}")
        code = self.process.returncode
        marked = self._mark.read_text() if self._mark.exists() else None
        assert (code, marked) == (-signal.SIGKILL, str(self._fault)), (
            f"died with {code} at {marked}, not by SIGKILL at {self._fault}"
        )

    def fired(self) -> bool:
        """Whether the armed fault has been reached."""
        return self._mark.exists()


def _environment(env: Mapping[str, str], fault: Fault | None, mark: Path) -> dict[str, str]:
    """The test's own environment, without what would override the configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
    kept["PYTHONPATH"] = PYTHON_PATH
    if fault is not None:
        kept |= {"ACKLAST_FAULT": str(fault), "ACKLAST_FAULT_MARK": str(mark)}
    return {**kept, **env}
