"""A consumer's process: started in a group of its own, ended with all that it started."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from bench.queues import BenchError

_STOP_S: Final = 30.0
_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed at its end, and how long it ran."""

    answer: dict[str, Any]
    ran_s: float


class Child:
    """One process group; what it says goes to a log file."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], directory: Path, log: Path) -> None:
        self._log = log
        self._command = command
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(env),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self.pid = self._process.pid
        self._began = monotonic()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended; what then is left of its group is killed.

        Raises:
            BenchError: it did not end in time.
        """
        self._end(signal.SIGTERM)

    def interrupt(self) -> Answer:
        """SIGINT, as Ctrl-C would, and what the lines of JSON hold that it printed, all in one.

        Raises:
            BenchError: it did not end in time, or said nothing of the kind.
        """
        self._end(signal.SIGINT)
        ran_s = monotonic() - self._began
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.startswith("{")]
        if not lines:
            raise BenchError(f"{' '.join(self._command)} gave no answer\n{self.last_lines()}")
        return Answer(dict(ChainMap(*map(json.loads, lines))), ran_s)

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired as late:
            raise BenchError(f"{' '.join(self._command)} does not end\n{self.last_lines()}") from late
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def text(self) -> str:
        """All that it has said."""
        return self._log.read_text(errors="replace")

    def last_lines(self, count: int = 15) -> str:
        return "\n".join(self.text().splitlines()[-count:])


def _die_with_parent() -> None:
    # A runner that is killed cannot stop anything: the kernel tells its children.
    _libc.prctl(_SET_PDEATHSIG, signal.SIGTERM)
