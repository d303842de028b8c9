"""Waiting for a condition with a limit, so that no test has to guess how long something takes."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar, overload

T = TypeVar("T")
_POLL_S = 0.02


@overload
async def eventually(
    predicate: Callable[[], Awaitable[T | None]], timeout_s: float = ..., what: str | None = ...
) -> T: ...


@overload
async def eventually(
    predicate: Callable[[], T | None], timeout_s: float = ..., what: str | None = ...
) -> T: ...


async def eventually(predicate: Callable[[], Any], timeout_s: float = 30, what: str | None = None) -> Any:
    """Ask ``predicate`` (plain or async) until its answer is true, and give that answer.

    Raises:
        AssertionError: not within ``timeout_s``; names the predicate and its last answer.
    """
    until_s = monotonic() + timeout_s
    while True:
        answer = predicate()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        assert monotonic() < until_s, _complaint(predicate, value, timeout_s, what)
        await _pause()


def until(predicate: Callable[[], T | None], timeout_s: float = 30, what: str | None = None) -> T:
    """``eventually`` for a test that is not async."""
    until_s = monotonic() + timeout_s
    while not (value := predicate()):
        assert monotonic() < until_s, _complaint(predicate, value, timeout_s, what)
        threading.Event().wait(_POLL_S)
    return value


async def _pause() -> None:
    # An event that nobody sets, with a limit: other tasks run meanwhile.
    try:
        async with asyncio.timeout(_POLL_S):
            await asyncio.Event().wait()
    except TimeoutError:
        return


def _complaint(predicate: Callable[..., object], value: object, timeout_s: float, what: str | None) -> str:
    name = what or getattr(predicate, "__qualname__", repr(predicate))
    return f"{name} is still not so after {timeout_s:g} s: {value!r}"
