"""What a consumer notes of its work: the moment of each handler's call, in memory that the runner reads.

The same for every contender: half a microsecond a job, no system call, right across processes and threads.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final

DIRECTORY: Final = "BENCH_METER"
"""Environment variable: where each process of a contender keeps its file."""
CAPACITY: Final = "BENCH_JOBS"
"""Environment variable: how many jobs there are."""

_SIZE: Final = 8


class Meter:
    """One process's file: a count, then that many moments of the monotonic clock."""

    def __init__(self, directory: Path, capacity: int) -> None:
        # Made under another name: the runner must not find a file that is still empty.
        path, new = directory / str(os.getpid()), directory / f".{os.getpid()}"
        with new.open("wb+") as file:
            file.truncate(_SIZE * (capacity + 1))
            self._cells: memoryview[float] = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
        new.rename(path)
        self._capacity = capacity
        self._count = 0
        self._lock = Lock()

    def hit(self) -> None:
        """Note one job. Jobs beyond the capacity (delivered twice) are counted, but not timed."""
        with self._lock:
            self._count += 1
            if self._count <= self._capacity:
                self._cells[self._count] = monotonic()
            self._cells[0] = self._count


_meters: list[Meter] = []
_making = Lock()
# A worker that is forked gets a file of its own.
os.register_at_fork(after_in_child=_meters.clear)


def hit() -> None:
    """Note one job of this process."""
    if not _meters:
        with _making:
            if not _meters:
                _meters.append(Meter(Path(os.environ[DIRECTORY]), int(os.environ[CAPACITY])))
    _meters[0].hit()


class Readings:
    """The meters of all processes of one contender, seen by the runner."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found: dict[str, memoryview[float]] = {}

    def count(self) -> int:
        """How many jobs were handled so far."""
        for path in self._directory.iterdir():
            if path.name not in self._found and not path.name.startswith("."):
                with path.open("rb") as file:
                    view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                self._found[path.name] = view.cast("d")
        return sum(int(cells[0]) for cells in self._found.values())

    def moments(self) -> list[float]:
        """When each job was handled, in order; seconds of the monotonic clock."""
        self.count()
        return sorted(
            moment for cells in self._found.values() for moment in cells[1 : int(cells[0]) + 1].tolist()
        )
