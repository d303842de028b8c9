"""Registering handlers: what is refused at import, and how a message finds its handler."""

from __future__ import annotations

import asyncio
import functools
import math
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

import acklast
from acklast import App, Context
from acklast.handlers.signature import function_of
from harness import eventually
from harness.jobs import LANE, TYPE, outcome_of, registered

if TYPE_CHECKING:
    from decimal import Decimal

    from acklast import Context as Unseen


async def remind(payload: dict[str, Any], ctx: Context) -> None: ...


async def refund(payload: dict[str, Any]) -> None: ...


def test_the_package_alone_loads_no_framework() -> None:
    code = "import acklast, sys; print([m for m in ('pydantic', 'structlog') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert all(getattr(acklast, name) for name in acklast.__all__)
    with pytest.raises(AttributeError, match=r"Contextt"):
        _ = acklast.Contextt


def test_the_decorated_function_is_the_function_itself() -> None:
    app = App()
    assert app.job(TYPE, lane=LANE)(remind) is remind
    assert app.reconcile(TYPE)(refund) is refund


def test_a_message_finds_its_handler_by_lane_and_type() -> None:
    app = App()
    app.job("a.v1", lane="one")(remind)
    app.job("b.v1", lane="two")(remind)
    app.job("c.v1", lane="two")(refund)
    found = app.find("two", "c.v1")
    assert found is not None
    assert (found.name, found.lane, found.handler.call) == ("c.v1", "two", refund)
    assert app.find("one", "c.v1") is None
    assert app.find("three", None) is None
    assert app.lanes() == {"one", "two"}
    assert [job.name for job in app.jobs()] == ["a.v1", "b.v1", "c.v1"]


def test_a_message_without_a_type_is_for_the_only_handler_of_its_lane() -> None:
    app = App()
    app.job("a.v1", lane="one")(remind)
    only = app.find("one", None)
    assert only is not None
    assert only.name == "a.v1"
    app.job("b.v1", lane="one")(refund)
    assert app.find("one", None) is None
    assert app.why_none("one", None) == "the message names no type; lane one has handlers for 'a.v1', 'b.v1'"
    assert app.why_none("one", "c.v1").startswith("the message is of type 'c.v1'; lane one has handlers for")


def test_a_type_has_one_handler() -> None:
    app = App()
    app.job(TYPE, lane="one")(remind)
    with pytest.raises(ValueError, match=r"rent\.reminder\.v1.*already\. Give each handler a type"):
        app.job(TYPE, lane="two")(refund)


@pytest.mark.parametrize("lane", ["", "Rent", "a.b", "-a", "a" * 65])
def test_a_lane_needs_a_valid_name(lane: str) -> None:
    with pytest.raises(ValueError, match=r"lane .* is not valid. Use 1 to 64 of a-z"):
        App().job(TYPE, lane=lane)


@pytest.mark.parametrize("name", ["", " a.v1", "a\n.v1", "a\0", "é" * 128])
def test_a_type_needs_a_valid_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"job type .* is not valid. Use 1 to 255 bytes"):
        App().job(name, lane=LANE)


@pytest.mark.parametrize("timeout_s", [0, -1, math.inf, math.nan])
def test_a_timeout_is_a_bound(timeout_s: float) -> None:
    with pytest.raises(ValueError, match=r"timeout_s=.* is not valid. Use seconds above 0"):
        App().job(TYPE, lane=LANE, timeout_s=timeout_s)


# --- reconcile ---------------------------------------------------------------------------------------


def test_reconcile_is_given_in_either_of_two_ways() -> None:
    assert registered(remind, reconcile=refund).reconcile == function_of(refund)
    app = App()
    app.job(TYPE, lane=LANE)(remind)
    app.reconcile(TYPE)(refund)
    for found in (app.find(LANE, TYPE), app.find(LANE, None), app.jobs()[0]):
        assert found is not None
        assert found.reconcile == function_of(refund)


def test_reconcile_needs_its_handler_first() -> None:
    with pytest.raises(ValueError, match=r"has no handler yet. Put its @app\.job above"):
        App().reconcile(TYPE)(refund)


def test_reconcile_is_given_once() -> None:
    app = App()
    app.job(TYPE, lane=LANE, reconcile=refund)(remind)
    with pytest.raises(ValueError, match=r"has a reconcile already. Keep one of the two"):
        app.reconcile(TYPE)(remind)


def test_reconcile_needs_a_handlers_signature() -> None:
    with pytest.raises(TypeError, match=r"takes 3 positional parameters. Write it as \(payload\)"):
        registered(remind, reconcile=lambda a, b, c: None)


# --- signatures --------------------------------------------------------------------------------------


def none() -> None: ...
def three(payload: Any, ctx: Context, more: int) -> None: ...
def variadic(payload: Any, *rest: Any) -> None: ...
def keywords(payload: Any, **rest: Any) -> None: ...
def required(payload: Any, *, more: int) -> None: ...
def defaulted(payload: Any, retries: int = 3) -> None: ...
def yields(payload: Any) -> Iterator[int]:
    yield 1


async def ayields(payload: Any) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (none, r"none takes 0 positional parameters. Write it as \(payload\) or \(payload, ctx\)"),
        (three, "three takes 3 positional parameters"),
        (variadic, r"variadic takes \* or \*\* parameters"),
        (keywords, r"keywords takes \* or \*\* parameters"),
        (required, "required has a keyword-only parameter without a default. Give it one"),
        (defaulted, "'retries' has a default of its own. Name it ctx, or make it keyword-only"),
        (yields, "yields yields. A handler returns its result once: use return"),
        (ayields, "ayields yields"),
        (dict, "dict is a class. Decorate a function"),
        (7, "int cannot be called. Decorate a function"),
    ],
)
def test_an_unfit_signature_is_refused(function: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        registered(function)


def optional_context(payload: Any, ctx: Context | None = None) -> None: ...
def with_default(payload: Any, ctx: Context, *, client: Any = None) -> None: ...


class Methods:
    async def bound(self, payload: dict[str, Any], ctx: Context) -> None: ...

    async def __call__(self, payload: dict[str, Any]) -> None: ...


async def three_async(first: int, payload: dict[str, Any], ctx: Context) -> None: ...


@functools.wraps(remind)
async def wrapper(*args: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "takes_context", "threaded"),
    [
        (remind, True, False),
        (refund, False, False),
        (optional_context, True, True),
        (with_default, True, True),
        (Methods().bound, True, False),
        (Methods(), False, False),
        (functools.partial(three_async, 1), True, False),
        (wrapper, True, False),
        (lambda payload: None, False, True),
    ],
)
def test_a_fit_signature_is_read(function: Callable[..., Any], takes_context: bool, threaded: bool) -> None:
    handler = registered(function).handler
    assert (handler.takes_context, handler.threaded) == (takes_context, threaded)
    assert handler.source.endswith("test_handlers_app.py")


def swapped(ctx: Context, payload: Any) -> None: ...
def unknown_name(payload: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def other_names(payload: dict[str, int], ctx: Unseen, *, rate: Decimal | None = None) -> None: ...


def test_the_payload_comes_first() -> None:
    with pytest.raises(TypeError, match=r"swapped takes the context first. Put the payload first"):
        registered(swapped)


def test_a_payload_type_that_is_not_defined_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'Missing' cannot be evaluated.*Define or import the type"):
        registered(unknown_name)


def test_other_annotations_may_name_what_only_a_type_checker_sees() -> None:
    assert registered(other_names).handler.takes_context


# --- prepare -----------------------------------------------------------------------------------------


def test_threads_are_counted_for_the_lanes_that_need_them() -> None:
    app = App()
    app.job("a.v1", lane="plain")(optional_context)
    app.job("b.v1", lane="plain")(with_default)
    app.job("c.v1", lane="asynchronous")(remind)
    app.job("d.v1", lane="asks", reconcile=optional_context)(remind)
    app.prepare({"plain": 3, "asynchronous": 100, "asks": 2})
    assert app.jobs()[0].threads.limit == 5


# --- stop --------------------------------------------------------------------------------------------


async def test_what_handlers_share_is_closed_whatever_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acklast.handlers.app._STOP_S", 0.01)
    app = App()
    closed: list[str] = []

    @app.on_stop
    async def pool() -> None:
        closed.append("pool")

    @app.on_stop
    async def broken() -> None:
        raise ValueError("secret")

    @app.on_stop
    async def stuck() -> None:
        await asyncio.Event().wait()

    @app.on_stop
    async def session() -> None:
        closed.append("session")

    with capture_logs() as logs:
        await app.stop()
        await app.stop()
    assert closed == ["session", "pool"]
    assert [(log["event"], log["error"]) for log in logs] == [
        ("on_stop_failed", "TimeoutError"),
        ("on_stop_failed", "ValueError"),
    ]
    assert callable(pool)


def test_what_runs_at_the_end_is_async() -> None:
    with pytest.raises(TypeError, match=r"none is no async def. Write it as one"):
        App().on_stop(none)  # type: ignore[type-var]


async def test_threads_end_with_the_app() -> None:
    app = App()
    threads: list[threading.Thread] = []

    @app.job(TYPE, lane=LANE)
    def plain(payload: Any) -> None:
        threads.append(threading.current_thread())

    job = app.find(LANE, TYPE)
    assert job is not None
    await outcome_of(job)
    await app.stop()
    await eventually(lambda: not threads[0].is_alive())
