"""A command on a terminal of its own: what it shows, keys, and another size."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from harness.daemon import PYTHON_PATH
from harness.waiting import eventually

_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """``acklast`` with these arguments. A context manager: what a test forgot to end is killed."""

    def __init__(self, directory: Path, *arguments: str, columns: int = 80, lines: int = 24) -> None:
        self._directory = directory
        self._arguments = arguments
        self._size = (lines, columns)
        self._told = b""
        self._mark = 0

    def __enter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        self._resize(*self._size)
        # COLUMNS and LINES go before the terminal's own size, and whoever imports readline has set them.
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("ACKLAST") and name not in ("COLUMNS", "LINES")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "acklast", *self._arguments],
            env={**kept, "PYTHONPATH": PYTHON_PATH, "TERM": "xterm"},
            cwd=self._directory,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        if error is not None:
            error.add_note(self.raw()[-4000:])
        os.close(self._ours)

    def raw(self) -> str:
        """All that it wrote, with its escapes."""
        while True:
            try:
                more = os.read(self._ours, 65_536)
            except OSError:  # nothing now, or it has ended
                break
            if not more:
                break
            self._told += more
        return self._told.decode(errors="replace")

    def lines(self) -> Sequence[str]:
        """The lines of what it wrote since ``forget``, without escapes."""
        # A picture begins at the top, and the one before it has no end of line.
        told = self.raw()[self._mark :].replace("\x1b[H", "\n")
        return [line.rstrip() for line in _ESCAPE.sub("", told).splitlines()]

    def forget(self) -> None:
        """Look only at what comes from now on."""
        self._mark = len(self.raw())

    async def shows(self, text: str) -> str:
        """Wait until a line has this text; the line."""
        return await eventually(
            lambda: next((line for line in self.lines() if text in line), None), 60, f"{text} is shown"
        )

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, lines: int, columns: int) -> None:
        """Give the terminal another size, and tell the command."""
        self._resize(lines, columns)
        self._process.send_signal(signal.SIGWINCH)

    def _resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    async def ended(self) -> int:
        """Wait for its end; its exit code."""

        def over() -> bool:
            self.raw()
            return self._process.poll() is not None

        await eventually(over, 30, "the command has ended")
        return self._process.wait()
