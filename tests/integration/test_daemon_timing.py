"""A job starts no earlier than it may and about a second later at most; past its deadline, never."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from acklast.errors import Exit
from acklast.ledger.api import State
from harness.site import Site, one_receiver_else_soak, scripted

pytestmark = one_receiver_else_soak

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

LATE_S = 1.5
"""A bucket's second, and half of one for the machine."""
TRIES = 3


async def least_late_s(measure: Callable[[str], Awaitable[float]]) -> float:
    """How late a job is: a busy machine makes one late now and then, what is wrong would each of them."""
    late_s = [await measure("job-0")]
    while len(late_s) < TRIES and late_s[-1] > LATE_S:
        late_s.append(await measure(f"job-{len(late_s)}"))
    assert min(late_s) >= 0, "before its time"
    return min(late_s)


async def test_a_retry_waits_as_long_as_the_downstream_asked(new_site: NewSite) -> None:
    async with new_site() as place:

        async def late_s(key: str) -> float:
            await place.publish(scripted(key, {"do": "rate_limited", "retry_after": 2}, "done"))
            job = await place.reaches(key, State.DONE)
            first, second = place.log.calls(key)
            # A refusal for the quota spends no attempt.
            assert (first.attempt, second.attempt, job.attempts, job.rate_limited) == (1, 1, 1, 1)
            assert not second.ambiguous
            return second.at - first.at - 2.0

        with place.daemon() as daemon:
            await daemon.ready()
            assert await least_late_s(late_s) <= LATE_S
            assert await daemon.drained() == Exit.OK
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

        async def late_s(key: str) -> float:
            asked_at = time.monotonic()
            await place.publish(scripted(key, "done", not_before=datetime.now(UTC) + timedelta(seconds=2)))
            await place.reaches(key, State.DONE)
            [call] = place.log.calls(key)
            assert call.attempt == 1
            return call.at - asked_at - 2.0

        with place.daemon() as daemon:
            await daemon.ready()
            assert await least_late_s(late_s) <= LATE_S
            assert await daemon.drained() == Exit.OK
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
