"""The worker session: renewed while it can be, never live beyond the ledger's lease, replaced when lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from acklast.errors import LedgerUnavailable, SessionLost
from acklast.ledger.api import Claim, Session
from acklast.ledger.lease import Lease
from acklast.ledger.memory import MemoryLedger
from acklast.telemetry.events import Emitter, Event, Notice
from harness.virtual import elapse, turns, virtual

LEASE_S = 15.0
EPOCH = datetime(2025, 6, 1, tzinfo=UTC)
DOWN = LedgerUnavailable("the ledger does not answer", "Wait.")


def now() -> float:
    return asyncio.get_running_loop().time()


def ledger_clock() -> datetime:
    return EPOCH + timedelta(seconds=now())


class Flaky(MemoryLedger):
    """A ledger that can be away, slow, defective, or forget a session."""

    def __init__(self) -> None:
        super().__init__(ledger_clock)
        self.failure: Exception | None = None
        self.delay_s = 0.001
        self.renewals = 0

    async def _reach(self) -> None:
        """One way through the network: there, or back."""
        await elapse(self.delay_s)
        if self.failure:
            raise self.failure

    async def open_session(self, instance: str, *, worker: str, version: str, lease_s: float) -> Session:
        await self._reach()
        session = await super().open_session(instance, worker=worker, version=version, lease_s=lease_s)
        await self._reach()
        return session

    async def renew(self, session: Session) -> bool:
        self.renewals += 1
        await self._reach()
        renewed = await super().renew(session)
        await self._reach()
        return renewed

    async def close_session(self, session: Session) -> None:
        await self._reach()
        await super().close_session(session)

    def living(self, session: Session) -> bool:
        """Whether the ledger still holds the session for alive."""
        return self._alive(session.id)


class Site:
    def __init__(self) -> None:
        self.ledger = Flaky()
        self.notices: list[str] = []
        self.results: list[str] = []
        self.lease = Lease(
            self.ledger,
            Emitter(self._note),
            instance="one",
            worker="one@host:1",
            version="1",
            lease_s=LEASE_S,
            clock=now,
        )

    def _note(self, event: Event) -> None:
        assert isinstance(event, Notice)
        self.notices.append(event.name)
        if event.name == "session.renewal":
            self.results.append(event.fields["result"])


@asynccontextmanager
async def started() -> AsyncIterator[tuple[Site, Session]]:
    site = Site()
    session = await site.lease.start()
    try:
        yield site, session
    finally:
        site.ledger.failure = None
        await site.lease.close()


@virtual
async def test_a_session_lives_as_long_as_it_is_renewed() -> None:
    async with started() as (site, session):
        for _ in range(100):
            await elapse(7)
            assert site.lease.live
            assert site.ledger.living(session)
            assert await site.lease.current() is session


@virtual
async def test_two_missed_renewals_are_not_the_end() -> None:
    async with started() as (site, session):
        site.ledger.failure = DOWN
        await elapse(0.6 * LEASE_S)
        site.ledger.failure = None
        await elapse(LEASE_S)
        assert await site.lease.current() is session
        assert "session.lost" not in site.notices
        assert set(site.results) == {"failed", "renewed"}
        assert site.results.count("failed") >= 2
        assert 0 < site.lease.left_s <= LEASE_S


@virtual
async def test_who_cannot_renew_starts_nothing_before_the_ledger_gives_its_jobs_away() -> None:
    async with started() as (site, session):
        site.ledger.failure = DOWN
        while site.lease.live:
            assert site.ledger.living(session), "the ledger's lease must outlive ours"
            await elapse(0.1)
        assert site.notices.count("ledger.unavailable") == 1


@virtual
async def test_a_slow_answer_does_not_lengthen_the_lease() -> None:
    async with started() as (site, session):
        site.ledger.delay_s = 0.2 * LEASE_S
        await elapse(2 * LEASE_S)
        site.ledger.failure = DOWN
        while site.lease.live:
            assert site.ledger.living(session), (
                "counted from before the renewal was sent, never from its answer"
            )
            await elapse(0.05)


@virtual
async def test_a_start_waits_for_the_ledger_to_come_back_and_gets_a_new_session() -> None:
    async with started() as (site, session):
        site.ledger.failure = DOWN
        await elapse(2 * LEASE_S)
        starts = [asyncio.create_task(site.lease.current()) for _ in range(3)]
        await turns()
        assert not any(start.done() for start in starts)
        site.ledger.failure = None
        sessions = await asyncio.wait_for(asyncio.gather(*starts), LEASE_S)
        assert {s.id for s in sessions} == {session.id + 1}
        assert not site.ledger.living(session)


@virtual
async def test_a_session_that_the_ledger_has_ended_is_replaced_at_the_next_beat() -> None:
    async with started() as (site, session):
        await site.ledger.close_session(session)
        await elapse(LEASE_S / 2)
        assert (await site.lease.current()).id == session.id + 1
        assert site.notices.count("session.lost") == 1
        assert site.results.count("refused") == 1


@virtual
async def test_a_claim_that_finds_the_session_dead_gets_the_next_one_without_delay() -> None:
    async with started() as (site, session):
        await elapse(1)  # the next renewal is four seconds away
        await site.ledger.close_session(session)
        with pytest.raises(SessionLost):
            await site.ledger.claim(session, Claim("lane", "k", b""))
        began = now()
        site.lease.lost(session)
        assert not site.lease.live
        assert (await site.lease.current()).id == session.id + 1
        assert now() - began < 1, "a lane must not stand still until the next renewal is due"


@virtual
async def test_a_later_session_does_not_hold_what_was_claimed_under_an_earlier_one() -> None:
    async with started() as (site, session):
        assert site.lease.holds(session)
        await site.ledger.close_session(session)
        await elapse(LEASE_S / 2)
        newer = await site.lease.current()
        assert not site.lease.holds(session)
        assert site.lease.holds(newer)


@virtual
async def test_a_late_word_of_an_older_session_does_not_end_the_new_one() -> None:
    async with started() as (site, session):
        await site.ledger.close_session(session)
        await elapse(LEASE_S / 2)
        newer = await site.lease.current()
        site.lease.lost(session)
        assert await site.lease.current() is newer


@virtual
async def test_a_defect_of_the_ledger_does_not_end_the_renewals_in_silence() -> None:
    async with started() as (site, _):
        site.ledger.failure = RuntimeError("a defect")
        await elapse(2 * LEASE_S)
        site.ledger.failure = None
        assert "session.renewal_failed" in site.notices
        await asyncio.wait_for(site.lease.current(), LEASE_S)


@virtual
async def test_a_frozen_process_is_not_live_when_it_thaws() -> None:
    async with started() as (site, session):
        site.lease._clock = lambda: now() + 10 * LEASE_S
        assert not site.lease.live
        assert site.ledger.living(session)


@virtual
async def test_closing_ends_the_session_in_the_ledger_and_sends_home_who_waits() -> None:
    site = Site()
    session = await site.lease.start()
    site.lease.lost(session)
    waiting = asyncio.create_task(site.lease.current())
    site.ledger.failure = DOWN
    await turns()
    await site.lease.close()
    with pytest.raises(SessionLost):
        await waiting
    with pytest.raises(SessionLost):
        await site.lease.current()


@virtual
async def test_closing_lets_the_next_daemon_take_over_at_once() -> None:
    site = Site()
    session = await site.lease.start()
    await site.lease.close()
    assert not site.ledger.living(session)
    renewals = site.ledger.renewals
    await elapse(10 * LEASE_S)
    assert site.ledger.renewals == renewals, "nothing beats on"


@virtual
async def test_closing_while_the_ledger_is_away_leaves_the_lease_to_run_out() -> None:
    site = Site()
    session = await site.lease.start()
    site.ledger.failure = DOWN
    await site.lease.close()
    assert "session.not_closed" in site.notices
    assert site.ledger.living(session)
    await elapse(LEASE_S)
    assert not site.ledger.living(session)


@virtual
async def test_no_session_at_the_start_is_the_callers_to_hear_of() -> None:
    site = Site()
    site.ledger.failure = DOWN
    with pytest.raises(LedgerUnavailable):
        await site.lease.start()
    assert not site.lease.live
