"""Tests in virtual time: the product's own virtual loop, and what makes of a test one that runs on it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from acklast.testing.virtual import Stuck, VirtualLoop, elapse, run, virtual_clock

__all__ = ["Stuck", "VirtualLoop", "elapse", "run", "turns", "virtual", "virtual_clock"]

P = ParamSpec("P")
T = TypeVar("T")


def virtual(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make of an async test one that runs in virtual time."""

    @functools.wraps(test)
    def in_virtual_time(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return in_virtual_time


async def turns(count: int = 5) -> None:
    """Let everything run that can run now."""
    for _ in range(count):
        await asyncio.sleep(0)
