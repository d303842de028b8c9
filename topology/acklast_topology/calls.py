"""Calls into the client library that end in time and never look like somebody's cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiormq.abc import AbstractConnection


class ConnectionDied(ConnectionError):  # noqa: N818 - named for what is true
    """The connection or channel ended while a call was waiting on it."""


def takes_nothing_in(connection: AbstractConnection) -> bool:
    """Whether the broker blocks a connection, as under an alarm: the library only lets one wait."""
    ready: Coroutine[Any, Any, None] = connection.ready()
    try:
        ready.send(None)
    except StopIteration:
        return False
    finally:
        ready.close()
    return True


@contextmanager
def only_real_cancellation() -> Iterator[None]:
    """Let a cancellation through where somebody did cancel this task, and only there.

    A connection that dies ends what waits on it with ``CancelledError``. Passed on, it would end a task that
    nobody cancelled, silently. And before Python 3.12 ``asyncio.wait_for``, which the library's time limits
    are made of, loses a cancellation that comes together with the answer: the task would go on for ever.

    Raises:
        ConnectionDied: in place of a ``CancelledError`` that is the library's own.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        raise ConnectionDied("the connection ended while the call was waiting") from error
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


@asynccontextmanager
async def bounded(timeout_s: float) -> AsyncIterator[None]:
    """``only_real_cancellation`` with a time limit.

    Raises:
        TimeoutError: the call took longer than ``timeout_s``.
        ConnectionDied: as above.
    """
    async with asyncio.timeout(timeout_s):
        with only_real_cancellation():
            yield
