"""The effect log: what handlers did, written outside of the daemon, so that no crash of it takes it back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

CALL = "call"
EFFECT = "effect"


@dataclass(frozen=True, slots=True)
class Noted:
    """One line: the handler was called, or had its effect. ``at`` is on the monotonic clock, in seconds."""

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

    def note(self, what: str, key: str, attempt: int, ambiguous: bool) -> None:
        """Append one line in one write, on the disk when this returns."""
        noted = Noted(what, key, attempt, ambiguous, os.getpid(), time.monotonic())
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(asdict(noted)).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def _read(self) -> Iterator[Noted]:
        if self._path.exists():
            # The last line may be on its way: a write that crosses a page is seen in two parts.
            for line in self._path.read_text().rpartition("\n")[0].splitlines():
                yield Noted(**json.loads(line))

    def calls(self, key: str | None = None) -> list[Noted]:
        """The starts of the handler, of one key or of all, in order."""
        return self._of(CALL, key)

    def effects(self, key: str | None = None) -> list[Noted]:
        """The effects, of one key or of all, in order."""
        return self._of(EFFECT, key)

    def _of(self, what: str, key: str | None) -> list[Noted]:
        return [noted for noted in self._read() if noted.what == what and key in (None, noted.key)]
