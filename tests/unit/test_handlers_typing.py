"""The decorated function keeps its type. The type checker is half of this test: `make check` runs it here."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from acklast import App, Context

app = App()


@dataclass
class Rent:
    amount: int


@app.job("rent.async.v1", lane="rent", timeout_s=5)
async def collect(payload: Rent, ctx: Context) -> dict[str, int]:
    return {"collected": payload.amount}


@app.job("rent.plain.v1", lane="rent", reconcile=collect)
def count(payload: Rent) -> int:
    return payload.amount


@app.reconcile("rent.async.v1")
async def collected(payload: Rent) -> bool | None:
    return payload.amount > 0


async def test_an_async_handler_is_called_like_any_function() -> None:
    ctx = Context("k-1", "rent")
    result = await collect(payload=Rent(7), ctx=ctx)
    assert_type(result, dict[str, int])
    assert result == {"collected": 7}


def test_a_plain_handler_is_called_like_any_function() -> None:
    result = count(payload=Rent(7))
    assert_type(result, int)
    assert result == 7


async def test_a_reconcile_function_is_called_like_any_function() -> None:
    result = await collected(Rent(0))
    assert_type(result, bool | None)
    assert result is False


def test_a_wrong_call_is_the_type_checkers_to_find() -> None:
    # An ignore that is not needed is an error under strict: these lines prove that the types are not Any.
    take_async: Callable[[Rent, Context], Coroutine[Any, Any, dict[str, int]]] = collect
    take_wrong: Callable[[str], int] = count  # type: ignore[assignment]
    assert take_async is collect
    assert callable(take_wrong)
