"""Where log lines go: gathered over one turn of the event loop and written at once.

A write for each line is a system call for each job. Whoever is killed loses the lines of one turn, and no
job: what happened to a job stands in the ledger.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Protocol


class File(Protocol):
    """The part of a text file that is needed here."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class Writer:
    """A text file for logging, and a logger for structlog. Safe from any thread."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._parts: deque[str] = deque()
        self._due = False

    def write(self, text: str) -> None:
        """Write soon: at the end of this turn where an event loop runs here, else now."""
        self._parts.append(text)
        if self._due:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        self._due = True
        loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write now. What the file will not take is lost: a log never holds up a job."""
        self._due = False
        parts, gathered = self._parts, list[str]()
        while parts:
            gathered.append(parts.popleft())
        with suppress(OSError, ValueError):
            self._file.write("".join(gathered))
            self._file.flush()

    def line(self, text: str) -> None:
        self.write(text + "\n")

    def loud(self, text: str) -> None:
        """A line that is written now: the process may not live to see the end of the turn."""
        self.line(text)
        self.flush()

    # The methods that structlog calls, by the names of the levels.
    msg = log = debug = info = warning = warn = line
    error = err = critical = fatal = exception = failure = loud
