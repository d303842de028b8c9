"""Attempts at a job without a broker or a ledger: what the handler tests are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from acklast import App, Context
from acklast.handlers.app import JobType
from acklast.handlers.attempt import attempt
from acklast.outcome import Outcome, Unknown
from acklast_topology.contract import Envelope, RawMessage

LANE = "reminders"
TYPE = "rent.reminder.v1"


def envelope(
    body: bytes = b"{}",
    *,
    content_type: str = "application/json",
    key: str = "k-1",
    headers: Mapping[str, Any] | None = None,
) -> Envelope:
    """A message that keeps the contract."""
    raw = RawMessage(body=body, content_type=content_type, headers=headers or {})
    return Envelope(key, TYPE, body, content_type, b"", None, None, None, None, raw)


def registered(handler: Callable[..., Any], **options: Any) -> JobType:
    """The handler as the only job type of an app of its own."""
    app = App()
    app.job(TYPE, lane=LANE, **options)(handler)
    job = app.find(LANE, TYPE)
    assert job is not None
    return job


async def here(
    handler: Callable[..., Any] | JobType, *, timeout_s: float = 30.0, cut: Callable[[], bool] = lambda: False
) -> Outcome:
    """What one attempt comes to, made in the caller's own task."""
    job = handler if isinstance(handler, JobType) else registered(handler)
    return await attempt(
        job, envelope(), Context("k-1", LANE), timeout_s=timeout_s, retry_after_cap_s=60.0, cut=cut
    )


class Trial:
    """One attempt, running in a task of its own."""

    def __init__(
        self,
        handler: Callable[..., Any] | JobType,
        message: Envelope | None = None,
        *,
        context: Context | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self.job = handler if isinstance(handler, JobType) else registered(handler)
        self.context = context or Context("k-1", LANE)
        self.cutting = False
        self.open_cancels: int | None = None
        """Cancellations that the attempt left open on its task."""
        self.task = asyncio.create_task(self._run(message or envelope(), timeout_s))

    async def _run(self, message: Envelope, timeout_s: float) -> Outcome:
        result = await attempt(
            self.job,
            message,
            self.context,
            timeout_s=timeout_s,
            retry_after_cap_s=60.0,
            cut=lambda: self.cutting,
        )
        task = asyncio.current_task()
        assert task is not None
        self.open_cancels = task.cancelling()
        return result

    def cut(self) -> None:
        """What a drain does at its deadline."""
        self.cutting = True
        self.task.cancel()

    async def outcome(self) -> Outcome:
        """What it came to; fails where it does not end."""
        done, _ = await asyncio.wait([self.task], timeout=10)
        assert done, "the attempt does not end"
        return self.task.result()


class Gate:
    """A handler's inside: it says that it began, and waits to be let go."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()

    async def wait(self) -> None:
        self.began.set()
        await self.go.wait()

    async def handler(self, payload: Any) -> str:
        await self.wait()
        return "done"

    async def entered(self) -> None:
        await asyncio.wait_for(self.began.wait(), 10)


def unknown(outcome: Outcome) -> Unknown:
    assert isinstance(outcome, Unknown)
    return outcome


async def outcome_of(
    handler: Callable[..., Any] | JobType, message: Envelope | None = None, **options: Any
) -> Outcome:
    """What one attempt comes to."""
    return await Trial(handler, message, **options).outcome()
