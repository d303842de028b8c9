"""What a handler knows of its job, and what a result may be."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from structlog.testing import capture_logs

from acklast import Context
from acklast.errors import AcklastError, ClaimLost
from acklast.handlers.context import structured
from acklast.handlers.result import RESULT_BYTES, kept
from acklast.outcome import Done, Outcome, Unknown
from harness.jobs import Trial, envelope, outcome_of


class Ledger:
    """A transaction that says what was asked of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.said: list[Any] = []

    @asynccontextmanager
    async def begin(self, result: Any) -> AsyncIterator[str]:
        self.said.append(("begin", result))
        try:
            yield "connection"
        except BaseException:
            self.said.append("rollback")
            raise
        if self.error is not None:
            raise self.error
        self.said.append("commit")

    def context(self) -> Context:
        return Context("k-1", "lane", transaction=self.begin)


# --- what it says ------------------------------------------------------------------------------------


def test_a_context_says_what_it_was_given() -> None:
    deadline = datetime(2026, 1, 31, tzinfo=UTC)
    ctx = Context(
        "k-1",
        "lane",
        type="a.v1",
        run="r-1",
        attempt=3,
        deadline=deadline,
        ambiguous=True,
        headers={"n": b"\xff"},
    )
    assert (ctx.key, ctx.lane, ctx.type, ctx.run, ctx.attempt) == ("k-1", "lane", "a.v1", "r-1", 3)
    assert (ctx.deadline, ctx.ambiguous) == (deadline, True)
    assert ctx.headers == {"n": b"\xff"}
    with pytest.raises(TypeError):
        ctx.headers["n"] = 1  # type: ignore[index]


def test_a_bare_context_is_enough_for_a_test() -> None:
    ctx = Context("k-1", "lane")
    assert (ctx.attempt, ctx.ambiguous, ctx.completed, dict(ctx.headers)) == (1, False, False, {})
    assert not ctx.draining.is_set()
    assert ctx.remaining_s() == math.inf


def test_a_context_holds_nothing_else() -> None:
    with pytest.raises(AttributeError):
        Context("k-1", "lane").attempts = 1  # type: ignore[attr-defined]


def test_the_logger_says_which_job_it_speaks_of() -> None:
    ctx = Context("k-1", "lane", run="r-1", attempt=2)
    with capture_logs() as logs:
        ctx.log.info("sent", receipt=7)
    assert logs == [
        {
            "event": "sent",
            "receipt": 7,
            "lane": "lane",
            "key": "k-1",
            "run": "r-1",
            "attempt": 2,
            "log_level": "info",
        }
    ]
    assert ctx.log is ctx.log


async def test_the_logger_costs_nothing_until_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def used() -> None:
        raise AssertionError("a logger was made")

    monkeypatch.setattr(structlog, "get_logger", used)
    assert await outcome_of(quiet) == Done(1)


async def quiet(payload: Any, ctx: Context) -> int:
    return ctx.attempt


async def test_remaining_time_counts_down_to_the_timeout() -> None:
    seen: list[float] = []

    async def handler(payload: Any, ctx: Context) -> None:
        seen.append(ctx.remaining_s())
        seen.append(ctx.remaining_s())

    await outcome_of(handler, timeout_s=5)
    assert 0 < seen[1] <= seen[0] <= 5


async def test_an_overdue_handler_has_no_time_left() -> None:
    async def handler(payload: Any, ctx: Context) -> float:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return ctx.remaining_s()
        raise AssertionError

    assert await outcome_of(handler, timeout_s=0.01) == Done(0.0)


async def test_a_handler_can_wait_for_the_drain() -> None:
    event = asyncio.Event()

    async def handler(payload: Any, ctx: Context) -> bool:
        await ctx.draining.wait()
        return ctx.draining.is_set()

    trial = Trial(handler, context=Context("k-1", "lane", draining=event))
    event.set()
    assert await trial.outcome() == Done(True)


# --- idempotency header ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run-1:P-00001", '"run-1:P-00001"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("50%", '"50%25"'),
        ("Zürich", '"Z%C3%BCrich"'),
        ("a\r\nEvil: 1", '"a%0D%0AEvil: 1"'),
        (" x ", '" x "'),
    ],
)
def test_a_key_goes_as_a_structured_field_string(key: str, value: str) -> None:
    assert Context(key, "lane").idempotency_headers == {"Idempotency-Key": value}


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_two_keys_share_a_header(one: str, other: str) -> None:
    assert structured(one).isascii()
    assert structured(one).isprintable()
    assert (structured(one) == structured(other)) is (one == other)


# --- transaction -------------------------------------------------------------------------------------


async def test_a_transaction_completes_the_job_with_its_result() -> None:
    ledger = Ledger()

    async def handler(payload: Any, ctx: Context) -> str:
        async with ctx.transaction({"paid": Decimal("1.50")}) as connection:
            assert connection == "connection"
            assert not ctx.completed
        assert ctx.completed
        return "another result"

    assert await outcome_of(handler, context=ledger.context()) == Done({"paid": "1.50"})
    assert ledger.said == [("begin", {"paid": "1.50"}), "commit"]


async def test_what_comes_after_the_commit_cannot_undo_it() -> None:
    async def handler(payload: Any, ctx: Context) -> None:
        async with ctx.transaction(7):
            pass
        raise ValueError

    assert await outcome_of(handler, context=Ledger().context()) == Done(7)


async def test_a_timeout_after_the_commit_cannot_undo_it() -> None:
    async def handler(payload: Any, ctx: Context) -> None:
        async with ctx.transaction(7):
            pass
        await asyncio.Event().wait()

    assert await outcome_of(handler, context=Ledger().context(), timeout_s=0.01) == Done(7)


async def test_an_error_inside_rolls_back_and_completes_nothing() -> None:
    ledger = Ledger()

    async def handler(payload: Any, ctx: Context) -> None:
        async with ctx.transaction():
            raise ValueError

    outcome = await outcome_of(handler, context=(ctx := ledger.context()))
    assert (_reason(outcome), ctx.completed, ledger.said[-1]) == ("exception:ValueError", False, "rollback")


async def test_a_commit_that_fails_completes_nothing() -> None:
    async def handler(payload: Any, ctx: Context) -> None:
        async with ctx.transaction():
            pass

    ctx = Ledger(ClaimLost("the claim is lost", "Nothing to do")).context()
    assert _reason(await outcome_of(handler, context=ctx)) == "exception:ClaimLost"
    assert not ctx.completed


@pytest.mark.parametrize("failed", [False, True])
async def test_a_second_transaction_is_an_error(failed: bool) -> None:
    ctx = Ledger(OSError() if failed else None).context()
    for error in [OSError] if failed else []:
        with pytest.raises(error):
            async with ctx.transaction():
                pass
    if not failed:
        async with ctx.transaction():
            pass
    with pytest.raises(AcklastError, match=r"used twice in one attempt. Do all of the job's work in one"):
        ctx.transaction()


async def test_a_transaction_in_a_plain_def_handler_is_an_error() -> None:
    ledger = Ledger()
    errors: list[str] = []

    def handler(payload: Any, ctx: Context) -> None:
        try:
            ctx.transaction()
        except AcklastError as error:
            errors.append(str(error))
            raise

    assert _reason(await outcome_of(handler, context=ledger.context())) == "exception:AcklastError"
    assert errors == ["ctx.transaction() was called in a plain def handler. Write the handler as async def"]
    assert ledger.said == []


async def test_a_transaction_without_a_ledger_is_an_error() -> None:
    with pytest.raises(AcklastError, match=r"no ledger behind it. Pass transaction=\.\.\. to the Context"):
        Context("k-1", "lane").transaction()


def _reason(outcome: Outcome) -> str:
    assert isinstance(outcome, Unknown)
    return outcome.reason


# --- results -----------------------------------------------------------------------------------------


class Receipt(BaseModel):
    at: datetime


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (None, None),
        (False, False),
        ({"a": [1, "é", None]}, {"a": [1, "é", None]}),
        (Receipt(at=datetime(2026, 1, 31, tzinfo=UTC)), {"at": "2026-01-31T00:00:00Z"}),
        (Point(1), {"x": 1}),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ((1, {2}), [1, [2]]),
        (b"abc", "abc"),
        (math.inf, "Infinity"),
        ("x" * (RESULT_BYTES - 2), "x" * (RESULT_BYTES - 2)),
    ],
)
def test_a_result_becomes_plain_json(value: Any, result: Any) -> None:
    assert kept(value).value == result
    assert not kept(value).omitted


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x" * (RESULT_BYTES - 1), "too large"),
        ("é" * (RESULT_BYTES // 2), "too large"),
        (object(), "not JSON"),
        (b"\xff", "not JSON"),
        ("\ud800", "not JSON"),
        ("a\0b", "holds NUL"),
        (nested(230), "nested too deeply"),
    ],
)
async def test_a_result_that_cannot_be_kept_is_still_a_result(value: Any, why: str) -> None:
    async def handler(payload: Any) -> Any:
        return value

    with capture_logs() as logs:
        assert await outcome_of(handler) == Done({"omitted": why})
    assert [(log["event"], log["why"], log["log_level"]) for log in logs] == [
        ("result_omitted", why, "warning")
    ]


def test_a_result_that_holds_itself_is_not_json() -> None:
    value: list[Any] = []
    value.append(value)
    assert kept(value).omitted == "not JSON"
    assert kept(SimpleNamespace()).omitted == "not JSON"


async def test_headers_come_from_the_message() -> None:
    message = envelope(headers={"tenant": "t-1"})
    seen: list[Any] = []

    async def handler(payload: Any, ctx: Context) -> None:
        seen.append(ctx.headers["tenant"])

    await outcome_of(handler, message, context=Context("k-1", "lane", headers=message.raw.headers))
    assert seen == ["t-1"]
