"""A job starts no earlier than it may and about a second later at most; past its deadline, never."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from acklast.errors import Exit
from acklast.ledger.api import State
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

LATE_S = 1.5
"""A bucket's second, and half of one for a busy machine."""


async def test_a_retry_waits_as_long_as_the_downstream_asked(new_site: NewSite) -> None:
    async with new_site() as place:
        await place.publish(scripted("asked", {"do": "rate_limited", "retry_after": 2}, "done"))
        with place.daemon() as daemon:
            job = await place.reaches("asked", State.DONE)
            assert await daemon.drained() == Exit.OK
        first, second = place.log.calls("asked")
        assert 2.0 <= second.at - first.at <= 2.0 + LATE_S
        # A refusal for the quota spends no attempt.
        assert (first.attempt, second.attempt, job.attempts, job.rate_limited) == (1, 1, 1, 1)
        assert not second.ambiguous
        assert await place.ready() == {}


async def test_a_transient_failure_spends_an_attempt(new_site: NewSite) -> None:
    async with new_site(max_attempts=3) as place:
        await place.publish(scripted("fails", "transient"), scripted("recovers", "transient", "done"))
        with place.daemon() as daemon:
            await place.reaches("recovers", State.DONE)
            job = await place.reaches("fails", State.DEAD)
            assert await daemon.drained() == Exit.OK
        assert [call.attempt for call in place.log.calls("recovers")] == [1, 2]
        assert [call.attempt for call in place.log.calls("fails")] == [1, 2, 3]
        assert [letter.reason for letter in job.letters] == ["not_now"]
        assert [attempt.outcome for attempt in job.history] == ["transient"] * 3


async def test_a_job_does_not_start_before_its_time(new_site: NewSite) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            await daemon.ready()
            asked_at = time.monotonic()
            job = scripted("later", "done", not_before=datetime.now(UTC) + timedelta(seconds=2))
            await place.publish(job)
            await place.reaches("later", State.DONE)
            assert await daemon.drained() == Exit.OK
        [call] = place.log.calls("later")
        assert 2.0 <= call.at - asked_at <= 2.0 + LATE_S
        assert call.attempt == 1
        assert await place.ready() == {}


async def test_past_its_deadline_a_job_neither_starts_nor_retries(new_site: NewSite) -> None:
    now = datetime.now(UTC)
    wait = {"do": "rate_limited", "retry_after": 600}
    async with new_site() as place:
        await place.publish(
            scripted("late", "done", deadline=now - timedelta(seconds=1)),
            scripted("no-time-left", wait, deadline=now + timedelta(seconds=300)),
            scripted("in-time", "done", deadline=now + timedelta(seconds=300)),
        )
        with place.daemon() as daemon:
            late = await place.reaches("late", State.DEAD)
            no_time_left = await place.reaches("no-time-left", State.DEAD)
            await place.reaches("in-time", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert [letter.reason for letter in late.letters] == ["deadline_exceeded"]
        assert [letter.reason for letter in no_time_left.letters] == ["deadline_exceeded"]
        assert {call.key for call in place.log.calls()} == {"no-time-left", "in-time"}
        assert await place.ready() == {}
