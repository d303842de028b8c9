"""What every program here does around its measuring: signals that end it, and problems that are told."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

from rich.console import Console

from bench.progress import Progress
from bench.queues import BenchError
from dev.need import Missing
from dev.workspace import StackError

_WIDTH: Final = 160


def carry_out(measure: Callable[[Console, Progress], None]) -> int:
    """Measure, telling tables on standard output and progress on standard error; the exit code."""
    # Ended by a signal, the servers and the consumers are ended as well.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended_by)
    errors = Console(stderr=True)
    try:
        # In a file nobody's terminal is too narrow for a table.
        measure(Console(width=None if sys.stdout.isatty() else _WIDTH), Progress(errors))
    except (BenchError, Missing, StackError) as problem:
        errors.print(f"bench: {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 69
    return 0


def _ended_by(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
