"""Ends what a dead parent left behind. Started by ``Workspace``; reads orders from standard input.

A parent that is killed outright runs no clean-up of its own. Its end of our standard input closes all the
same: then every process group named in an order is ended, and the directory given as argument is removed.
Without this, each killed test run would leave a broker of 150 MB running.

Orders, one a line: ``watch PID SIGNAL`` and ``forget PID``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable

GRACE_S = 5.0
_POLL_S = 0.05


def read_orders(lines: Iterable[str]) -> dict[int, int]:
    """The groups still watched when the orders end: pid to the signal that ends it."""
    watched: dict[int, int] = {}
    for line in lines:
        match line.split():
            case ["watch", pid, number]:
                watched[int(pid)] = int(number)
            case ["forget", pid]:
                watched.pop(int(pid), None)
    return watched


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def end(watched: dict[int, int]) -> None:
    """Ask each group to end, and kill after ``GRACE_S`` what has not."""
    for group, number in watched.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    until = time.monotonic() + GRACE_S
    while any(_alive(group) for group in watched) and time.monotonic() < until:
        time.sleep(_POLL_S)
    for group in watched:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def main(directory: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end(read_orders(sys.stdin))
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
