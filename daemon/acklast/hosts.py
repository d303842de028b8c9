"""Which of several hosts answers: each has a head start over the next, and the first to answer is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_given_up: Final[set[asyncio.Task[object]]] = set()
"""Tries that were given up and have not ended yet: what hangs in connecting may hang in closing as well."""


class NoneAnswers(Exception):  # noqa: N818 - named for what is true
    """Every try failed. ``errors`` has one for each, in the order of the tries."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("; ".join(str(error) or type(error).__name__ for error in errors))
        self.errors = tuple(errors)


async def first_that_answers(
    tries: Sequence[Callable[[], Awaitable[T]]], head_start_s: float, *, same_host: bool = False
) -> tuple[int, T]:
    """The result of the first try that succeeds, and its number.

    The next one begins when one has failed, or after ``head_start_s``: a host that is silent, and not down,
    would else hold up those behind it for as long as its own time limit. Of the ``same_host`` another try
    begins by the time alone, and one error is enough: who is refused is not to ask again at once.

    Raises:
        NoneAnswers: all failed, or the host did.
    """
    running: dict[asyncio.Task[T], int] = {}
    errors: dict[int, Exception] = {}
    waiting = list(enumerate(tries))
    try:
        while running or waiting:
            if waiting:
                number, begin = waiting.pop(0)
                running[asyncio.ensure_future(_awaited(begin))] = number
            limit_s = head_start_s if waiting else None
            done, _ = await asyncio.wait(running, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number = running.pop(task)
                if (error := _error_of(task)) is None:
                    return number, task.result()
                errors[number] = error
                if same_host:
                    raise NoneAnswers([error])
    finally:
        for task in running:
            _give_up(task)
    raise NoneAnswers([errors[number] for number in sorted(errors)])


async def _awaited(begin: Callable[[], Awaitable[T]]) -> T:
    return await begin()


def _error_of(task: asyncio.Task[T]) -> Exception | None:
    if task.cancelled():
        return ConnectionError("the try was cancelled")
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error


def _give_up(task: asyncio.Task[T]) -> None:
    """End a try without waiting for it."""

    def seen(ended: asyncio.Task[object]) -> None:
        _given_up.discard(ended)
        if not ended.cancelled():
            ended.exception()

    task.cancel()
    _given_up.add(task)
    task.add_done_callback(seen)
