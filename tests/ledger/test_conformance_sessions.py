"""Worker sessions and what their end means, on every store."""

from __future__ import annotations

import pytest

from acklast.errors import SessionLost
from acklast.ledger import batch
from acklast.ledger.api import Held, Ledger, Session, State
from acklast.outcome import Complete, GiveBack, Retry
from ledger.worlds import LANE, World, a_claim, record, start, started, view


async def test_session_ids_grow(ledger: Ledger) -> None:
    ids = [(await start(ledger, name)).id for name in ("one", "two", "one")]
    assert ids == sorted(set(ids))


async def test_a_renewed_lease_keeps_its_claims(ledger: Ledger, world: World) -> None:
    session = await start(ledger, "one", lease_s=60)
    await started(ledger, session)
    assert await ledger.renew(session)
    answer = await ledger.claim(await start(ledger, "two"), a_claim())
    assert isinstance(answer, Held)


async def test_renewing_moves_the_end_of_the_lease(ledger: Ledger, world: World) -> None:
    session = await start(ledger, "one", lease_s=60)
    await started(ledger, session)
    two = await start(ledger, "two")
    first = await ledger.claim(two, a_claim())
    await world.wait_s(20)
    assert await ledger.renew(session)
    second = await ledger.claim(two, a_claim())
    assert isinstance(first, Held)
    assert isinstance(second, Held)
    assert second.until > first.until


async def test_a_lease_that_ran_out_never_lives_again(ledger: Ledger, session: Session, world: World) -> None:
    await world.run_out(session)
    assert not await ledger.renew(session)
    assert not await ledger.renew(session)
    with pytest.raises(SessionLost):
        await ledger.claim(session, a_claim())


async def test_a_closed_session_cannot_be_renewed(ledger: Ledger, session: Session) -> None:
    await ledger.close_session(session)
    assert not await ledger.renew(session)
    await ledger.close_session(session)


async def test_a_job_of_a_dead_session_is_taken_over(ledger: Ledger, session: Session, world: World) -> None:
    old = await started(ledger, session)
    await world.run_out(session)
    heir = await start(ledger, "two")
    new = await started(ledger, heir)
    assert (new.fence, new.attempt, new.ambiguous) == (2, 2, True)
    job = await view(ledger)
    assert (job.state, job.worker, job.ambiguous) == (State.CLAIMED, "two:1", True)
    (crash,) = job.history
    assert (crash.fence, crash.attempt, crash.outcome) == (1, 1, "crashed")
    assert (crash.worker, crash.version) == ("one:1", "1.2.3")
    assert crash.started_at == old.now
    assert crash.ended_at is not None


async def test_the_session_that_ran_out_during_a_slow_handler_is_fenced_off(
    ledger: Ledger, session: Session, world: World
) -> None:
    slow = await started(ledger, session)
    await world.run_out(session)
    heir = await start(ledger, "two")
    new = await started(ledger, heir)
    assert not await ledger.renew(session)
    await record(ledger, session, slow, Complete("slow"))
    assert await ledger.claim(heir, a_claim())
    assert (await view(ledger)).state is State.CLAIMED
    await record(ledger, heir, new, Complete("heir"))
    assert (await view(ledger)).result == "heir"


async def test_a_restart_of_the_same_instance_recovers_at_once(ledger: Ledger, session: Session) -> None:
    await started(ledger, session)
    again = await start(ledger, session.instance)
    fresh = await started(ledger, again)
    assert (fresh.fence, fresh.ambiguous) == (2, True)
    assert not await ledger.renew(session)
    with pytest.raises(SessionLost):
        await ledger.claim(session, a_claim("other"))


async def test_a_start_of_another_instance_ends_nobody(ledger: Ledger, session: Session) -> None:
    await start(ledger, "two")
    assert await ledger.renew(session)


async def test_a_closed_session_leaves_its_claims_to_others_at_once(ledger: Ledger, session: Session) -> None:
    await started(ledger, session)
    await ledger.close_session(session)
    fresh = await started(ledger, await start(ledger, "two"))
    assert (fresh.attempt, fresh.ambiguous) == (2, True)


async def test_a_takeover_is_remembered_whatever_follows(
    ledger: Ledger, session: Session, world: World
) -> None:
    await started(ledger, session)
    await world.run_out(session)
    heir = await start(ledger, "two")
    fresh = await started(ledger, heir)
    await record(ledger, heir, fresh, GiveBack("drain"))
    fresh = await started(ledger, heir)
    assert (fresh.attempt, fresh.ambiguous) == (2, True)
    await record(ledger, heir, fresh, Retry(fresh.now, "busy"))
    assert (await started(ledger, heir)).ambiguous


async def test_settled_is_noted_for_its_own_fence(
    ledger: Ledger, session: Session, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "NOTES", 1)
    fresh = await started(ledger, session)
    await ledger.settled(LANE, "k", fresh.fence)  # not recorded yet: says nothing
    await record(ledger, session, fresh, Retry(fresh.now, "busy"))
    await ledger.settled(LANE, "k", fresh.fence)
    fresh = await started(ledger, session)  # a new claim forgets when the last delivery was settled
    assert (await view(ledger)).settled_at is None
    await record(ledger, session, fresh, Complete())
    await ledger.settled(LANE, "k", 1)
    await ledger.settled(LANE, "unheard-of", 1)
    await started(ledger, session, "other")  # what is lazy rides along with it
    assert (await view(ledger)).settled_at is None
    await ledger.settled(LANE, "k", fresh.fence)
    await ledger.close()  # flushes what is lazy
    job = await view(await world.another())
    assert job.settled_at is not None
    assert job.recorded_at is not None
    assert job.recorded_at <= job.settled_at
