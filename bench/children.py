"""A consumer's process: started in a group of its own, ended with all that it started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.queues import BenchError

_STOP_S: Final = 30.0
_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None)


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

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended; what then is left of its group is killed.

        Raises:
            BenchError: it did not end in time.
        """
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired as late:
            raise BenchError(f"{' '.join(self._command)} does not end\n{self.last_lines()}") from late
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def last_lines(self, count: int = 15) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-count:])


def _die_with_parent() -> None:
    # A runner that is killed cannot stop anything: the kernel tells its children.
    _libc.prctl(_SET_PDEATHSIG, signal.SIGTERM)
