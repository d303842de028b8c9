"""A timeout is real: the outcome comes when the handler has stopped, and what it says by then counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from acklast import errors
from acklast.handlers import timeouts
from acklast.outcome import Done, Transient
from harness.jobs import Trial, here, outcome_of, unknown


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "AGAIN_S", 0.01)


async def test_a_timeout_cancels_the_handler_and_the_outcome_is_unknown() -> None:
    stopped = asyncio.Event()

    async def handler(payload: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    trial = Trial(handler, timeout_s=0.01)
    outcome = unknown(await trial.outcome())
    assert (outcome.reason, outcome.cut) == ("timeout", False)
    assert outcome.detail.startswith("stopped after 0.01 s: CancelledError at test_handlers_timeout.py:")
    assert stopped.is_set()
    assert trial.open_cancels == 0


async def test_a_handler_that_swallows_cancellation_is_cancelled_again_and_waited_for() -> None:
    swallowed = 0

    async def handler(payload: Any) -> None:
        nonlocal swallowed
        while swallowed < 5:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.Event().wait()

    trial = Trial(handler, timeout_s=0.01)
    with capture_logs() as logs:
        outcome = unknown(await trial.outcome())
    assert (outcome.reason, swallowed, trial.open_cancels) == ("timeout", 5, 0)
    assert [(log["event"], log["timeout_s"]) for log in logs] == [("handler_overdue", 0.01)]


async def test_a_value_that_is_returned_late_is_the_result() -> None:
    async def handler(payload: Any) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "happened"
        raise AssertionError

    trial = Trial(handler, timeout_s=0.01)
    assert await trial.outcome() == Done("happened")
    assert trial.open_cancels == 0


async def test_a_handler_that_is_being_stopped_may_still_say_what_happened() -> None:
    async def handler(payload: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise errors.Transient("not_sent") from None

    trial = Trial(handler, timeout_s=0.01)
    assert await trial.outcome() == Transient("not_sent")
    assert trial.open_cancels == 0


async def test_another_error_while_being_stopped_is_the_timeouts() -> None:
    async def handler(payload: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("secret response")

    outcome = unknown(await outcome_of(handler, timeout_s=0.01))
    assert outcome.reason == "timeout"
    assert outcome.detail.startswith("stopped after 0.01 s: OSError at test_handlers_timeout.py:")


async def test_no_timer_outlives_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def kept(*arguments: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*arguments))
        return timers[-1]

    async def overdue(payload: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async def prompt(payload: Any) -> None: ...

    monkeypatch.setattr(loop, "call_later", kept)
    await here(prompt)
    assert timers == []
    await here(overdue, timeout_s=0.01)
    assert len(timers) == 2  # again, and the one after that
    assert timers[-1].cancelled()


async def test_one_timer_serves_all_who_have_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_at = loop.call_at

    def kept(when: float, *arguments: Any) -> asyncio.TimerHandle:
        timers.append(call_at(when, *arguments))
        return timers[-1]

    async def prompt(payload: Any) -> None: ...

    monkeypatch.setattr(loop, "call_at", kept)
    for _ in range(100):
        await here(prompt)
    assert len(timers) == 1


async def test_whoever_is_late_is_found_behind_those_who_have_ended() -> None:
    async def stuck(payload: Any) -> None:
        await asyncio.Event().wait()

    async def prompt(payload: Any) -> None: ...

    await here(prompt, timeout_s=0.02)
    outcomes = await asyncio.gather(*(outcome_of(stuck, timeout_s=0.02) for _ in range(3)))
    assert [unknown(outcome).reason for outcome in outcomes] == ["timeout"] * 3


@pytest.mark.parametrize(("inner_s", "ours_s"), [(0.001, 60), (60, 0.05)])
async def test_a_timeout_inside_the_handler_and_ours_do_not_mix(inner_s: float, ours_s: float) -> None:
    async def handler(payload: Any) -> None:
        async with asyncio.timeout(inner_s):
            await asyncio.Event().wait()

    trial = Trial(handler, timeout_s=ours_s)
    outcome = unknown(await trial.outcome())
    inner = inner_s < ours_s
    assert outcome.reason == "timeout"
    assert outcome.detail.startswith("TimeoutError at" if inner else "stopped after 0.05 s: CancelledError")
    assert trial.open_cancels == 0


async def test_a_handler_may_recover_from_its_own_timeout() -> None:
    async def handler(payload: Any) -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return "second provider"
        raise AssertionError

    trial = Trial(handler)
    assert await trial.outcome() == Done("second provider")
    assert trial.open_cancels == 0


async def test_the_tasks_of_a_group_are_stopped_with_their_handler() -> None:
    stopped: list[int] = []

    async def child(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(number)

    async def handler(payload: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child(1))
            group.create_task(child(2))

    trial = Trial(handler, timeout_s=0.01)
    assert unknown(await trial.outcome()).reason == "timeout"
    assert sorted(stopped) == [1, 2]
    assert trial.open_cancels == 0


async def test_a_handler_that_takes_cancellations_back_itself_does_no_harm() -> None:
    async def handler(payload: Any) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
        return "happened"

    trial = Trial(handler, timeout_s=0.01)
    assert await trial.outcome() == Done("happened")
    assert trial.open_cancels == 0


@pytest.fixture
async def silent_server() -> AsyncIterator[str]:
    """An HTTP server that takes requests and never answers."""
    never = asyncio.Event()

    async def swallow(request: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", swallow)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    never.set()
    await runner.cleanup()


@pytest.mark.parametrize(
    ("client_s", "ours_s", "detail"), [(30, 0.2, "stopped after 0.2 s"), (0.02, 30, "TimeoutError at")]
)
async def test_a_real_client_is_stopped_in_the_middle_of_a_request(
    silent_server: str, client_s: float, ours_s: float, detail: str
) -> None:
    async def handler(payload: Any) -> None:
        limit = aiohttp.ClientTimeout(total=client_s)
        async with aiohttp.ClientSession(timeout=limit) as session, session.post(silent_server):
            raise AssertionError

    trial = Trial(handler, timeout_s=ours_s)
    outcome = unknown(await trial.outcome())
    assert outcome.reason == "timeout"
    assert outcome.detail.startswith(detail)
    assert trial.open_cancels == 0
