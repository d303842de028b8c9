"""Plain handlers in threads: they cannot be stopped, so their end is waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from acklast import Context, errors
from acklast.handlers.threads import Threads
from acklast.outcome import Done, Interrupted, RateLimited, Transient
from harness import eventually
from harness.jobs import LANE, Trial, outcome_of, registered, unknown

SOON_S = 0.3
"""Of a thread that is to be late: by then it must have begun, on a busy machine too."""


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What plain handlers wait for; set at the end, so that no thread outlives its test for long."""
    event = threading.Event()
    yield event
    event.set()


class Plain:
    """A plain ``def`` handler that waits for ``held``, and what became of it."""

    def __init__(self, held: threading.Event) -> None:
        self.held = held
        self.began = threading.Event()

    def handler(self, payload: Any, ctx: Context) -> bool:
        self.began.set()
        self.held.wait(20)
        return ctx.draining.is_set()


async def test_a_thread_that_is_late_is_waited_for_and_its_value_counts(held: threading.Event) -> None:
    plain = Plain(held)
    draining = asyncio.Event()
    trial = Trial(plain.handler, context=Context("k-1", LANE, draining=draining), timeout_s=SOON_S)
    with capture_logs() as logs:
        await eventually(lambda: logs)
        assert not trial.task.done()
        draining.set()
        held.set()
        assert await trial.outcome() == Done(True)
    assert [(log["event"], log["timeout_s"]) for log in logs] == [("handler_overdue", SOON_S)]


async def test_a_thread_that_fails_late_timed_out(held: threading.Event) -> None:
    began = threading.Event()

    def handler(payload: Any) -> None:
        began.set()
        held.wait(20)
        raise ValueError

    trial = Trial(handler, timeout_s=SOON_S)
    with capture_logs() as logs:
        await eventually(lambda: logs)
        held.set()
        outcome = unknown(await trial.outcome())
    assert outcome.reason == "timeout"
    assert "ValueError at test_handlers_threads.py:" in outcome.detail


async def test_a_thread_cannot_be_cut_and_its_end_is_waited_for(held: threading.Event) -> None:
    plain = Plain(held)
    trial = Trial(plain.handler)
    await eventually(plain.began.is_set)
    trial.cut()
    await eventually(lambda: trial.task.cancelling() == 0)
    assert not trial.task.done()
    held.set()
    assert await trial.outcome() == Done(False)
    assert trial.open_cancels == 0


async def test_what_a_thread_raises_after_a_cut_is_its_own(held: threading.Event) -> None:
    began = threading.Event()

    def handler(payload: Any) -> None:
        began.set()
        held.wait(20)
        raise ValueError

    trial = Trial(handler)
    await eventually(began.is_set)
    trial.cut()
    held.set()
    outcome = unknown(await trial.outcome())
    assert (outcome.reason, outcome.cut) == ("exception:ValueError", False)


async def test_a_cancellation_from_outside_leaves_the_thread(held: threading.Event) -> None:
    plain = Plain(held)
    trial = Trial(plain.handler)
    await eventually(plain.began.is_set)
    trial.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial.outcome()
    assert not held.is_set()


async def _full(held: threading.Event) -> tuple[Plain, Trial, Any]:
    """A job type with one thread, which is busy."""
    plain = Plain(held)
    job = registered(plain.handler)
    job.threads.limit = 1
    busy = Trial(job)
    await eventually(plain.began.is_set)
    plain.began.clear()
    return plain, busy, job


async def test_a_job_that_no_thread_took_in_time_has_not_happened(held: threading.Event) -> None:
    plain, busy, job = await _full(held)
    queued = Trial(job, timeout_s=0.01)
    with capture_logs() as logs:
        assert await queued.outcome() == Transient("no_thread", "no thread came free")
    assert logs == []
    held.set()
    await busy.outcome()
    assert await Trial(job).outcome() == Done(False)
    assert plain.began.is_set()


async def test_a_job_that_no_thread_took_before_the_cut_is_given_back(held: threading.Event) -> None:
    plain, busy, job = await _full(held)
    queued = Trial(job)
    await eventually(lambda: not job.threads._work.empty())
    queued.cut()
    assert await queued.outcome() == Interrupted()
    assert queued.open_cancels == 0
    held.set()
    await busy.outcome()
    assert not plain.began.is_set()


async def test_threads_are_kept_and_reused_up_to_the_limit() -> None:
    threads = Threads(limit=2)
    barrier = threading.Barrier(3)
    for _ in range(3):
        both = [threads.submit(lambda: [barrier.wait(10), threading.current_thread().name][1]) for _ in "ab"]
        await asyncio.to_thread(barrier.wait, 10)
        names = {future.result(10) for future in both}
        assert names == {"acklast-handler-1", "acklast-handler-2"}
    threads.close()


async def test_closed_threads_end() -> None:
    threads = Threads(limit=1)
    thread: threading.Thread = threads.submit(threading.current_thread).result(10)
    threads.close()
    await eventually(lambda: not thread.is_alive())


async def test_a_quota_refusal_of_a_thread_is_heard() -> None:
    def handler(payload: Any) -> None:
        raise errors.RateLimited("5")

    assert await outcome_of(handler) == RateLimited(5.0)
