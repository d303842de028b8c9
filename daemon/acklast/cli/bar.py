"""The progress of something long: on standard error, and only where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from acklast.cli.output import people, safe


class Rate:
    """How many a second, over the last ``window_s`` seconds. Pure: the time comes in, in seconds."""

    def __init__(self, window_s: float = 10.0, every_s: float = 0.25) -> None:
        self._window_s = window_s
        self._every_s = every_s
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, count: int, now: float) -> float | None:
        """The rate now that there are ``count``; None where there is nothing to tell it by."""
        if not self._seen or now - self._seen[-1][0] >= self._every_s:
            self._seen.append((now, count))
        while len(self._seen) > 2 and now - self._seen[0][0] > self._window_s:
            self._seen.popleft()
        then, before = self._seen[0]
        return (count - before) / (now - then) if now > then else None


class Bar:
    """Counts what was read against the whole, such as a file's bytes; ``size``: None where it is unknown."""

    def __init__(self, progress: Progress, size: int | None, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=size, note="")
        self._rate = Rate()

    def at(self, position: int, note: str, size: int | None = None) -> None:
        """All up to ``position`` has been read; ``size`` is for where it was not known before."""
        self._progress.update(self._task, completed=position, note=note, total=size)

    def rows(self, count: int, position: int) -> None:
        """``count`` rows are done, ``position`` bytes of the whole with them."""
        if self._progress.disable:
            return
        rate = self._rate.at(count, time.monotonic())
        pace = "" if rate is None else f", {rate:,.0f}/s"
        self.at(position, f"{count:,} rows{pace}")

    def say(self, text: str) -> None:
        """Print a line on standard output, above the bar where both are the same terminal."""
        if self._progress.disable or not sys.stdout.isatty():
            sys.stdout.write(f"{safe(text)}\n")
        else:
            self._progress.console.print(text)


class _TimeColumn(ProgressColumn):
    """The time left where the whole is known; else the time that has passed, and no guess."""

    def __init__(self) -> None:
        super().__init__()
        self._left, self._passed = TimeRemainingColumn(), TimeElapsedColumn()

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("so far ") + self._passed.render(task)
        return self._left.render(task)


@contextmanager
def bar(size: int | None, what: str) -> Iterator[Bar]:
    """A bar for ``size`` bytes, or whatever is counted."""
    console = people(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        _TimeColumn(),
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
