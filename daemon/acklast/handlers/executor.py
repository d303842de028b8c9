"""The event loop's own threads (``asyncio.to_thread``), for a process that ends when it has drained.

The standard ones are waited for at the end, by the loop and by Python: a handler that left something there
which never returns would keep the daemon from ending, however well it had drained.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from acklast.handlers.threads import Threads

P = ParamSpec("P")
T = TypeVar("T")

_LIMIT: Final = min(32, (os.cpu_count() or 1) + 4)
"""As many as the standard one has."""


class Executor(ThreadPoolExecutor):
    """Of this kind only because asyncio insists; its threads are those of plain ``def`` handlers."""

    def __init__(self, limit: int = _LIMIT) -> None:
        super().__init__(limit)
        self._ours = Threads(limit)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._ours.submit(partial(_do, future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let idle threads end. Those at work end with the process, whatever is asked."""
        self._ours.close()


def _do(future: Future[Any], call: Callable[[], Any]) -> None:
    """Never raises: all of it is the future's."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
        # The error's traceback has this frame, and the future has the error: a cycle without this.
        del future
    else:
        future.set_result(result)


def end_with_the_process() -> None:
    """Have the running loop wait for none of its threads at its end."""
    asyncio.get_running_loop().set_default_executor(Executor())
