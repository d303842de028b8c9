"""Which host of several is taken, and when the next one is tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from acklast.hosts import NoneAnswers, first_that_answers
from harness.virtual import virtual

Try = Callable[[], Awaitable[str]]


def host(name: str, after_s: float, *, error: Exception | None = None, asked: list[str]) -> Try:
    async def answer() -> str:
        asked.append(name)
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(after_s, passed.set)
        await passed.wait()
        if error is not None:
            raise error
        return name

    return answer


@virtual
async def test_the_first_host_is_taken_where_it_answers_and_the_others_are_left_alone() -> None:
    asked: list[str] = []
    tries = [host("a", 0.5, asked=asked), host("b", 0, asked=asked)]
    assert await first_that_answers(tries, 1.0) == (0, "a")
    assert asked == ["a"]


@virtual
async def test_a_host_that_refuses_makes_way_at_once() -> None:
    asked: list[str] = []
    tries = [host("a", 0, error=ConnectionRefusedError("no"), asked=asked), host("b", 0.1, asked=asked)]
    began = asyncio.get_running_loop().time()
    assert await first_that_answers(tries, 1.0) == (1, "b")
    assert asyncio.get_running_loop().time() - began < 1.0


@virtual
async def test_a_host_that_is_silent_holds_nobody_up() -> None:
    asked: list[str] = []
    tries = [host("a", 100, asked=asked), host("b", 100, asked=asked), host("c", 0.1, asked=asked)]
    began = asyncio.get_running_loop().time()
    assert await first_that_answers(tries, 1.0) == (2, "c")
    assert asyncio.get_running_loop().time() - began < 3.0


@virtual
async def test_a_slow_host_is_still_taken_when_the_next_ones_fail() -> None:
    asked: list[str] = []
    tries = [host("a", 3.0, asked=asked), host("b", 0, error=OSError("no"), asked=asked)]
    assert await first_that_answers(tries, 1.0) == (0, "a")


@virtual
async def test_every_error_is_told_in_the_order_of_the_hosts() -> None:
    asked: list[str] = []
    tries = [
        host("a", 2.0, error=TimeoutError("late"), asked=asked),
        host("b", 0, error=OSError("no"), asked=asked),
    ]
    with pytest.raises(NoneAnswers, match="late; no"):
        await first_that_answers(tries, 1.0)


@virtual
async def test_a_host_is_asked_again_beside_a_try_that_is_silent() -> None:
    asked: list[str] = []
    tries = [host("lost", 100, asked=asked), host("heard", 0.1, asked=asked)]
    assert await first_that_answers(tries, 1.0, same_host=True) == (1, "heard")


@virtual
async def test_a_host_that_refuses_is_not_asked_again_at_once() -> None:
    asked: list[str] = []
    tries = [host("a", 0, error=OSError("no"), asked=asked)] * 3
    with pytest.raises(NoneAnswers, match=r"^no$"):
        await first_that_answers(tries, 1.0, same_host=True)
    assert asked == ["a"]
