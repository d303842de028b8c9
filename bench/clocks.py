"""Wall clocks that can be set: libfaketime under a process, told by a file how far."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.queues import BenchError

_PLACES: Final = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")


def library() -> Path:
    """Where libfaketime is.

    Raises:
        BenchError: it is not installed.
    """
    for place in _PLACES:
        if found := sorted(Path("/").glob(place.lstrip("/"))):
            return found[0]
    raise BenchError("libfaketime is missing. Install it (Debian, Ubuntu: apt-get install libfaketime)")


class WallClock:
    """The wall clock of one process and its children. The monotonic clock stays as it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset_s = 0.0
        self.set(0.0)

    def set(self, offset_s: float) -> None:
        """Have it go wrong by so much from now on (within a second)."""
        self.offset_s = offset_s
        fresh = self._path.with_suffix(".new")
        fresh.write_text(f"{offset_s:+g}\n")
        fresh.chmod(0o644)
        fresh.replace(self._path)

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "NO_FAKE_STAT": "1",
        }
