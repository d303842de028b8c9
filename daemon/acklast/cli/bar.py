"""The progress bar of something long: on standard error, and only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class Bar:
    """Counts what was read against the whole, such as a file's bytes."""

    def __init__(self, progress: Progress, size: int, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=size, note="")

    def at(self, position: int, note: str, size: int | None = None) -> None:
        """All up to ``position`` has been read; ``size`` is for where it was not known before."""
        self._progress.update(self._task, completed=position, note=note, total=size)

    def say(self, text: str) -> None:
        """Print a line on standard output, above the bar where both are the same terminal."""
        if self._progress.disable or not sys.stdout.isatty():
            sys.stdout.write(f"{text}\n")
        else:
            self._progress.console.print(text)


@contextmanager
def bar(size: int, what: str) -> Iterator[Bar]:
    """A bar for ``size`` bytes, or whatever is counted."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    # Standard output stays what it is: redirected into the bar it would go to standard error.
    with Progress(
        *columns,
        console=console,
        disable=not console.is_terminal,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as progress:
        yield Bar(progress, size, what)
