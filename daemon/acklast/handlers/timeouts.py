"""Time limits of handlers, without a timer for each.

Handlers of one time limit run out of time in the order of their start, so one timer for the first of them is
enough. A timer of the event loop for each job costs ten times as much, and nearly every one is cancelled.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

from acklast.handlers.context import Context

AGAIN_S: Final = 1.0
"""How long after a cancellation that had no effect the next one comes."""


class Watch:
    """Cancels a task when its time is up, and again every second: some code swallows a cancellation."""

    __slots__ = ("_context", "_handle", "_line", "_task", "ends", "fired")

    def __init__(self, line: _Line, task: asyncio.Task[Any], context: Context, ends: float) -> None:
        self.ends = ends
        self.fired = 0
        self._line: _Line | None = line
        self._task = task
        self._context = context
        self._handle: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """The function has ended."""
        if self._line is not None:
            del self._line.watches[self]
        if self._handle is not None:
            self._handle.cancel()

    def expire(self) -> None:
        """Its time is up."""
        self._line = None
        self.fired += 1
        self._task.cancel()
        self._handle = self._task.get_loop().call_later(AGAIN_S, self.expire)
        if self.fired == 2:
            say_overdue(self._context)


class _Line:
    """The running functions of one time limit, the oldest first."""

    __slots__ = ("_timeout_s", "_timer", "watches")

    def __init__(self, timeout_s: float) -> None:
        self.watches: dict[Watch, None] = {}
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None

    def add(self, task: asyncio.Task[Any], context: Context) -> Watch:
        loop = task.get_loop()
        watch = Watch(self, task, context, loop.time() + self._timeout_s)
        self.watches[watch] = None
        if self._timer is None:
            self._timer = loop.call_at(watch.ends, self._look, loop)
        return watch

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while self.watches:
            first = next(iter(self.watches))
            if first.ends > now:
                self._timer = loop.call_at(first.ends, self._look, loop)
                return
            del self.watches[first]
            first.expire()


_LINES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, _Line]]] = WeakKeyDictionary()


def watch(task: asyncio.Task[Any], context: Context, timeout_s: float) -> Watch:
    """Give a task ``timeout_s`` seconds from now; stop the watch when its function has ended."""
    loop = task.get_loop()
    lines = _LINES.get(loop)
    if lines is None:
        lines = _LINES[loop] = {}
    line = lines.get(timeout_s)
    if line is None:
        line = lines[timeout_s] = _Line(timeout_s)
    return line.add(task, context)


def say_overdue(context: Context) -> None:
    """The function did not stop when it was told to, or cannot be told: a thread."""
    context.log.warning("handler_overdue", timeout_s=context.timeout_s)
