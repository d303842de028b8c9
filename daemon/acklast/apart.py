"""Tasks that serve many jobs: they begin with nothing of the job that happened to wake them.

A task inherits the context variables of whoever makes it. What a handler's instrumentation has put there
would make the job that came first the parent of a flush for five hundred others, and of all that follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


def apart(work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
    """A task of the running loop, with no context variable set."""
    return asyncio.get_running_loop().create_task(work, name=name, context=Context())
