"""The effect log: what handlers did, written outside of the daemon, so that no crash of it takes it back."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

CALL = "call"
EFFECT = "effect"
ASKED = "asked"


@dataclass(frozen=True, slots=True)
class Noted:
    """One line: the handler was called, had its effect, or its job's reconcile was asked.

    ``at`` is on the monotonic clock, in seconds."""

    what: str
    key: str
    attempt: int
    ambiguous: bool
    pid: int
    at: float


class EffectLog:
    """A file of lines that any number of processes append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted: list[Noted] = []
        self._read_up_to = 0

    def note(self, what: str, key: str, attempt: int, ambiguous: bool) -> None:
        """Append one line in one write, on the disk when this returns."""
        noted = Noted(what, key, attempt, ambiguous, os.getpid(), time.monotonic())
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(asdict(noted)).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def _all(self) -> list[Noted]:
        """Every line so far. What was read once is not read again: tests ask many times a second."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_up_to)
                # The last line may be on its way: a write that crosses a page is seen in two parts.
                lines, end, _ = file.read().rpartition(b"\n")
            self._noted += (Noted(**json.loads(line)) for line in lines.splitlines())
            self._read_up_to += len(lines) + len(end)
        return self._noted

    def calls(self, key: str | None = None) -> list[Noted]:
        """The starts of the handler, of one key or of all, in order."""
        return self._of(CALL, key)

    def effects(self, key: str | None = None) -> list[Noted]:
        """The effects, of one key or of all, in order."""
        return self._of(EFFECT, key)

    def asked(self, key: str | None = None) -> list[Noted]:
        """The calls of a reconcile, of one key or of all, in order."""
        return self._of(ASKED, key)

    def _of(self, what: str, key: str | None) -> list[Noted]:
        return [noted for noted in self._all() if noted.what == what and key in (None, noted.key)]
