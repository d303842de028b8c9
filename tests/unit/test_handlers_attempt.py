"""What an attempt comes to: by return, by exception, by reconcile. No exception gets past it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from acklast import Context, Interrupted, Permanent, RateLimited, Transient, Unknown, outcome
from acklast.errors import JobError
from acklast.fingerprint import Raised, text_digest
from acklast.handlers.attempt import Reconciled, reconcile_attempt
from harness.jobs import LANE, Trial, envelope, here, outcome_of, registered, unknown


def raising(error: BaseException) -> Any:
    async def handler(payload: Any) -> None:
        raise error

    return handler


def raising_plainly(error: BaseException) -> Any:
    def handler(payload: Any) -> None:
        raise error

    return handler


# --- by return ---------------------------------------------------------------------------------------


async def test_what_an_async_handler_returns_is_the_result() -> None:
    async def handler(payload: dict[str, int], ctx: Context) -> dict[str, Any]:
        return {"sum": payload["a"] + 1, "key": ctx.key}

    assert await outcome_of(handler, envelope(b'{"a": 1}')) == outcome.Done({"sum": 2, "key": "k-1"})


async def test_a_plain_handler_runs_in_a_thread_with_the_context_variables() -> None:
    tenant = contextvars.ContextVar[str]("tenant")
    tenant.set("t-1")

    def handler(payload: dict[str, int]) -> list[Any]:
        assert threading.current_thread().daemon
        return [tenant.get(), threading.current_thread() is threading.main_thread()]

    assert await outcome_of(handler) == outcome.Done(["t-1", False])


async def test_a_plain_function_that_returns_a_coroutine_ran_nothing() -> None:
    async def inner() -> None:
        raise AssertionError

    assert await outcome_of(lambda payload: inner()) == outcome.Permanent("returned_coroutine")


# --- by exception ------------------------------------------------------------------------------------

SPOKEN = [
    (RateLimited(7), outcome.RateLimited(7.0)),
    (RateLimited("9999"), outcome.RateLimited(60.0)),
    (RateLimited(None, "quota"), outcome.RateLimited(None, "quota")),
    (Transient("http_500"), outcome.Transient("http_500")),
    (Permanent("gone"), outcome.Permanent("gone")),
    (Unknown("reset"), outcome.Unknown("reset")),
    (ExceptionGroup("tasks", [ExceptionGroup("inner", [Permanent("gone")])]), outcome.Permanent("gone")),
]


@pytest.mark.parametrize(("error", "expected"), SPOKEN)
@pytest.mark.parametrize("make", [raising, raising_plainly])
async def test_a_handler_speaks_in_exceptions(make: Any, error: Exception, expected: outcome.Outcome) -> None:
    assert await outcome_of(make(error)) == expected


async def test_interrupted_gives_the_job_back_while_a_drain_is_on() -> None:
    draining = asyncio.Event()
    draining.set()
    context = Context("k-1", LANE, draining=draining)
    assert await outcome_of(raising(Interrupted()), context=context) == outcome.Interrupted()


async def test_interrupted_without_a_drain_spends_an_attempt() -> None:
    result = await outcome_of(raising(Interrupted()))
    assert isinstance(result, outcome.Transient)
    assert result.reason == "interrupted"


async def test_a_task_group_of_the_handler_speaks_too() -> None:
    async def handler(payload: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(raising(RateLimited(3))(None))
            group.create_task(asyncio.Event().wait())

    trial = Trial(handler)
    assert await trial.outcome() == outcome.RateLimited(3.0)
    assert trial.open_cancels == 0


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret response"),
        ExceptionGroup("secret response", [Permanent("a"), Permanent("b")]),
        StopIteration("secret response"),
        StopAsyncIteration("secret response"),
        asyncio.InvalidStateError("secret response"),
    ],
)
async def test_an_unclassified_exception_is_unknown_and_says_where(error: Exception) -> None:
    result = await outcome_of(raising_plainly(error))
    name = type(error).__name__
    assert isinstance(result, outcome.Unknown)
    assert result.reason == f"exception:{name}"
    assert result.detail.startswith(f"{name} at test_handlers_attempt.py:")
    assert result.detail.endswith(" handler")
    assert not result.cut


async def test_what_was_raised_is_told_without_its_text() -> None:
    result = await outcome_of(raising_plainly(ValueError("secret response 17")))
    assert isinstance(result, outcome.Unknown)
    raised = result.raised
    assert raised == Raised(
        "ValueError", text_digest("secret response 4"), (f"{__name__}:raising_plainly.<locals>.handler",)
    )
    assert "secret" not in repr(raised)


async def test_a_failure_is_of_one_kind_wherever_its_lines_are_and_whatever_its_job_is() -> None:
    def handler(payload: dict[str, int]) -> None:
        if payload["id"] == 1:
            raise ValueError("no house 'k-1', number 1")
        if payload["id"] == 2:
            raise ValueError("no house 'k-2', number 2")
        raise ValueError("no garden 'k-3', number 3")

    raised = [
        unknown(await outcome_of(handler, envelope(b'{"id": %d}' % number))).raised for number in (1, 2, 3)
    ]
    assert raised[0] == raised[1] != raised[2]


async def test_an_exception_that_cannot_say_its_text_is_an_outcome_all_the_same() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert unknown(await outcome_of(raising(MuteError()))).raised.type == "MuteError"


async def test_the_place_is_the_handlers_own_code_not_a_librarys() -> None:
    async def handler(payload: Any) -> None:
        envelope.__getattribute__("nothing")
        raise AssertionError

    async def deeper(payload: Any) -> None:
        await asyncio.wait_for(None, 1)  # type: ignore[arg-type]

    for function in (handler, deeper):
        result = await outcome_of(function)
        assert isinstance(result, outcome.Unknown)
        assert f"test_handlers_attempt.py:{function.__code__.co_firstlineno + 1} " in result.detail


async def test_a_long_name_is_bounded() -> None:
    error = type("Ü" * 500, (Exception,), {})()
    result = await outcome_of(raising(error))
    assert isinstance(result, outcome.Unknown)
    assert len(result.reason) <= 64
    assert len(result.detail) <= 200


class Nameless(Permanent):
    def __init__(self) -> None:
        Exception.__init__(self)


@pytest.mark.parametrize("error", [Permanent(7), RateLimited(object()), Nameless()])  # type: ignore[arg-type]
async def test_a_job_error_of_wrong_types_is_unknown(error: JobError) -> None:
    result = await outcome_of(raising(error))
    assert isinstance(result, outcome.Unknown)
    assert result.reason.startswith("exception:")


async def test_a_cancellation_that_nobody_asked_for_is_the_handlers_own() -> None:
    async def handler(payload: Any) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    result = await outcome_of(handler)
    assert isinstance(result, outcome.Unknown)
    assert result.reason == "exception:CancelledError"


@pytest.mark.parametrize("make", [raising, raising_plainly])
async def test_a_handler_cannot_end_the_daemon(make: Any) -> None:
    with capture_logs() as logs:
        result = await outcome_of(make(SystemExit("secret response")))
    assert isinstance(result, outcome.Unknown)
    assert result.reason == "exception:SystemExit"
    assert [log["event"] for log in logs] == ["handler_exit"]
    assert "secret" not in str(logs)


@pytest.mark.parametrize("make", [raising, raising_plainly])
async def test_an_exception_of_a_new_root_stops_here_as_well(make: Any) -> None:
    result = await outcome_of(make(type("Root", (BaseException,), {})()))
    assert isinstance(result, outcome.Unknown)
    assert result.reason == "exception:Root"


async def test_a_keyboard_interrupt_goes_on() -> None:
    # Awaited here, not in a task: the event loop would raise it out of the whole test run.
    with pytest.raises(KeyboardInterrupt):
        await here(raising(KeyboardInterrupt()))


async def test_a_keyboard_interrupt_of_a_thread_goes_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        await here(raising_plainly(KeyboardInterrupt()))


# --- reconcile ---------------------------------------------------------------------------------------


async def asked(answer: Any, *, timeout_s: float = 30.0, body: bytes = b"{}") -> Reconciled:
    async def handler(payload: dict[str, Any]) -> None:
        raise AssertionError

    job = registered(handler, reconcile=answer)
    return await reconcile_attempt(job, envelope(body), Context("k-1", LANE), timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("answer", "reconciled"),
    [
        (True, Reconciled(True)),
        (False, Reconciled(False)),
        (None, Reconciled(None)),
        ({"receipt": 7}, Reconciled(True, {"receipt": 7})),
        ({}, Reconciled(True, {})),
        (0, Reconciled(True, 0)),
        (object(), Reconciled(True, {"omitted": "not JSON"})),
    ],
)
async def test_reconcile_answers_by_what_it_returns(answer: Any, reconciled: Reconciled) -> None:
    async def ask(payload: Any, ctx: Context) -> Any:
        assert (payload, ctx.key) == ({}, "k-1")
        return answer

    def ask_plainly(payload: Any) -> Any:
        return answer

    assert await asked(ask) == reconciled
    assert await asked(ask_plainly) == reconciled


@pytest.mark.parametrize(
    ("error", "reason"), [(ValueError("secret"), "exception:ValueError"), (Transient("http_500"), "http_500")]
)
async def test_an_error_in_reconcile_cannot_tell(error: Exception, reason: str) -> None:
    found = await asked(raising(error))
    assert (found.happened, found.reason) == (None, reason)
    assert found.detail.startswith(f"{type(error).__name__} at test_handlers_attempt.py:")
    assert "secret" not in found.detail


async def test_a_reconcile_that_takes_too_long_cannot_tell() -> None:
    async def ask(payload: Any) -> None:
        await asyncio.Event().wait()

    assert await asked(ask, timeout_s=0.01) == Reconciled(None, reason="timeout")


async def test_a_payload_that_cannot_be_read_cannot_be_asked_about() -> None:
    found = await asked(raising(AssertionError()), body=b"[]")
    assert (found.happened, found.reason) == (None, "invalid_payload")


async def test_a_job_type_without_reconcile_cannot_tell() -> None:
    job = registered(raising(AssertionError()))
    found = await reconcile_attempt(job, envelope(), Context("k-1", LANE), timeout_s=1)
    assert found == Reconciled(None, reason="no_reconcile")


async def test_a_cut_ends_reconcile_without_an_answer() -> None:
    began = asyncio.Event()

    async def ask(payload: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    async def ask_once(job: Any) -> Reconciled:
        return await reconcile_attempt(
            job, envelope(), Context("k-1", LANE), timeout_s=30, cut=lambda: began.is_set()
        )

    job = registered(raising(AssertionError()), reconcile=ask)
    task = asyncio.create_task(ask_once(job))
    await asyncio.wait_for(began.wait(), 10)
    task.cancel()
    assert await asyncio.wait_for(task, 10) == Reconciled(None, reason="drain_cut")
    assert await ask_once(job) == Reconciled(None, reason="drain_cut")
