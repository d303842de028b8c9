"""Runs a function of a handler module to its real end, within its time.

No outcome may be recorded while the handler can still have its effect, so everything here waits until the
function has stopped: an ``async def`` is cancelled, and cancelled again while it swallows that; a plain
``def`` cannot be stopped and is waited for.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Any

from acklast.errors import Permanent
from acklast.handlers.context import Context
from acklast.handlers.signature import Function
from acklast.handlers.threads import Threads
from acklast.handlers.timeouts import say_overdue, watch
from acklast_topology.value import value


class Stop(Enum):
    """Who wanted the function to stop, if anybody."""

    NOBODY = "nobody"
    TIMEOUT = "timeout"
    CUT = "cut"
    OUTER = "outer"
    """Somebody who knows nothing of jobs: the cancellation goes on its way."""


@value
class Ended:
    """How the function ended: with a value, or with an error. ``started`` is false where it never ran."""

    value: Any = None
    error: BaseException | None = None
    stop: Stop = Stop.NOBODY
    started: bool = True


def run(
    function: Function,
    payload: Any,
    context: Context,
    *,
    threads: Threads,
    timeout_s: float,
    cut: Callable[[], bool],
) -> Awaitable[Ended]:
    """Run ``function`` for at most ``timeout_s`` seconds, and until it has stopped.

    ``cut`` tells whether a drain is what cancels this task. What the function raises comes back as a
    value, except ``KeyboardInterrupt`` and the cancellation that nobody here asked for.
    """
    context.arm(timeout_s, threaded=function.threaded)
    if function.threaded:
        return _in_thread(function, payload, context, threads, timeout_s, cut)
    return _inline(function, payload, context, timeout_s, cut)


# --- async def: in this very task --------------------------------------------------------------------


async def _inline(
    function: Function, payload: Any, context: Context, timeout_s: float, cut: Callable[[], bool]
) -> Ended:
    task = _this_task()
    before = task.cancelling()
    limit = watch(task, context, timeout_s)
    value = error = None
    try:
        value = await function(payload, context)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as raised:
        error = raised
    finally:
        limit.stop()
    if error is None and task.cancelling() == before:
        return Ended(value)
    try:
        stop = who_stopped(task.cancelling() - before, limit.fired, cut())
        if stop is Stop.OUTER and isinstance(error, CancelledError):
            _take_back(task, limit.fired)
            raise error
        _take_back(task, task.cancelling() - before)
        return Ended(value, error, stop)
    finally:
        # Its traceback has this frame: that is a cycle, and all that the job holds would wait in it.
        error = None


def who_stopped(cancels: int, ours: int, cut: bool) -> Stop:
    """Who cancelled, given how many cancellations stand open and how many of them the timeout made.

    A cancellation that the function itself made and took back (``asyncio.timeout``, a task group) does
    not stand open.
    """
    others = cancels - ours
    if others > 0 and not cut:
        return Stop.OUTER
    if ours > 0:
        return Stop.TIMEOUT
    return Stop.CUT if others > 0 else Stop.NOBODY


def _take_back(task: asyncio.Task[Any], cancels: int) -> None:
    """Take back cancellations that ended with the function: the task still has to record the outcome.

    The function may leave one open that is over: before Python 3.13 a task group does so when a child fails.
    """
    for _ in range(cancels):
        task.uncancel()


# --- plain def: in a thread --------------------------------------------------------------------------


async def _in_thread(
    function: Function,
    payload: Any,
    context: Context,
    threads: Threads,
    timeout_s: float,
    cut: Callable[[], bool],
) -> Ended:
    call = partial(contextvars.copy_context().run, _called, function, payload, context)
    work = threads.submit(call)
    done = asyncio.wrap_future(work)
    stop = Stop.NOBODY
    while True:
        now = await _wait(done, context.remaining_s() if stop is Stop.NOBODY else None, cut)
        if now is Stop.OUTER:
            done.cancel()
            raise CancelledError
        if done.done():
            ended: Ended = done.result()
            if isinstance(ended.error, KeyboardInterrupt):
                raise ended.error
            # A cut could not reach the thread: what it raised is its own.
            return Ended(ended.value, ended.error, stop if stop is Stop.TIMEOUT else Stop.NOBODY)
        if work.cancel():
            return Ended(stop=now, started=False)
        if now is Stop.TIMEOUT:
            say_overdue(context)
        stop = now if stop is Stop.NOBODY else stop


async def _wait(done: asyncio.Future[Ended], timeout_s: float | None, cut: Callable[[], bool]) -> Stop:
    """Wait for the thread, or for a reason to stop it."""
    try:
        await asyncio.wait([done], timeout=timeout_s)
    except CancelledError:
        if not cut():
            return Stop.OUTER
        _this_task().uncancel()
        return Stop.CUT
    return Stop.NOBODY if done.done() else Stop.TIMEOUT


def _called(function: Function, payload: Any, context: Context) -> Ended:
    """Call in the thread. Never raises: a future cannot carry every exception (``StopIteration``)."""
    try:
        value = function(payload, context)
        if inspect.iscoroutine(value):
            value.close()
            raise Permanent("returned_coroutine")  # it never ran, and would not run the next time
    except BaseException as error:
        return Ended(error=error)
    return Ended(value)


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # an async function runs in a task
    return task
