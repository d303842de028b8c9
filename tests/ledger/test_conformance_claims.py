"""What a claim answers, on every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from acklast.errors import SessionLost
from acklast.ledger.api import (
    Conflict,
    Decided,
    Fresh,
    Held,
    Ledger,
    ManifestRow,
    NotDue,
    Recorded,
    Session,
    State,
)
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry, Verdict
from ledger.worlds import LANE, World, a_claim, is_fresh, record, start, started, view


async def test_the_first_claim_of_a_key_is_fresh(ledger: Ledger, session: Session, world: World) -> None:
    before = await world.now()
    answer = await ledger.claim(session, a_claim())
    assert isinstance(answer, Fresh)
    assert (answer.fence, answer.attempt, answer.rate_limited, answer.ambiguous) == (1, 1, 0, False)
    assert before <= answer.now <= await world.now()


async def test_the_first_claim_tells_the_ledger_what_the_delivery_knew(
    ledger: Ledger, session: Session, world: World
) -> None:
    now = await world.now()
    told: dict[str, Any] = {
        "type": "rent.v1",
        "run": "r1",
        "published_at": now - timedelta(minutes=1),
        "deadline": now + timedelta(hours=1),
    }
    await started(ledger, session, **told)
    job = await view(ledger)
    assert {name: getattr(job, name) for name in told} == told
    assert (job.state, job.worker, job.version) == (State.CLAIMED, "one:1", "1.2.3")
    assert job.claimed_at is not None
    assert job.enqueued_at <= job.claimed_at


async def test_a_claim_fills_what_the_manifest_did_not_know_and_nothing_else(
    ledger: Ledger, session: Session, world: World
) -> None:
    now = await world.now()
    deadline = now + timedelta(hours=1)
    await ledger.manifest("r1", [ManifestRow(LANE, "k", a_claim().fingerprint, "rent.v1", deadline)])
    await started(ledger, session, type="other.v2", run="r2", published_at=now, deadline=now)
    job = await view(ledger)
    assert (job.type, job.run, job.deadline, job.published_at) == ("rent.v1", "r1", deadline, now)


async def test_the_same_key_in_another_lane_is_another_job(ledger: Ledger, session: Session) -> None:
    await started(ledger, session)
    other = a_claim()
    answer = await ledger.claim(session, type(other)("letters", other.key, other.fingerprint))
    assert is_fresh(answer)
    assert [job.lane for job in await ledger.jobs("k")] == [LANE, "letters"]
    assert [job.lane for job in await ledger.jobs("k", "letters")] == ["letters"]


async def test_keys_are_compared_byte_by_byte(ledger: Ledger, session: Session) -> None:
    for key in ("a", "A", "á", "a\u0301", "a ", "ﬀ", "ff", "é" * 127):
        assert is_fresh(await ledger.claim(session, a_claim(key))), key


@pytest.mark.parametrize("holder", ["another session", "the same session"])
async def test_a_job_of_a_live_session_is_held(ledger: Ledger, session: Session, holder: str) -> None:
    fresh = await started(ledger, session, "k")
    asking = session if holder == "the same session" else await start(ledger, "two")
    answer = await ledger.claim(asking, a_claim())
    assert isinstance(answer, Held)
    assert timedelta(seconds=500) < answer.until - answer.now <= timedelta(seconds=600)
    assert (await view(ledger)).fence == fresh.fence


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (Complete({"n": 1}), State.DONE),
        (Bury("refused"), State.DEAD),
        (Hold("timeout"), State.UNRESOLVED),
    ],
)
async def test_a_recorded_verdict_decides(
    ledger: Ledger, session: Session, verdict: Verdict, state: State
) -> None:
    await record(ledger, session, await started(ledger, session), verdict)
    answer = await ledger.claim(session, a_claim())
    assert isinstance(answer, Decided)
    assert answer.state is state
    assert (await view(ledger)).fence == 1


async def test_a_cancelled_job_is_decided(ledger: Ledger, session: Session) -> None:
    await ledger.manifest("r1", [ManifestRow(LANE, "k", a_claim().fingerprint)])
    assert await ledger.cancel(LANE, "k")
    answer = await ledger.claim(session, a_claim())
    assert isinstance(answer, Decided)
    assert answer.state is State.CANCELLED


async def test_a_job_that_waits_is_not_due_before_its_time(
    ledger: Ledger, session: Session, world: World
) -> None:
    fresh = await started(ledger, session)
    at = fresh.now + timedelta(seconds=90)
    await record(ledger, session, fresh, Retry(at, "busy"))
    answer = await ledger.claim(session, a_claim())
    assert isinstance(answer, NotDue)
    assert answer.at == at
    await world.wait_s(91)
    again = await started(ledger, session)
    assert (again.fence, again.attempt) == (2, 2)
    assert (await view(ledger)).available_at is None


async def test_not_before_makes_a_new_job_wait(ledger: Ledger, session: Session, world: World) -> None:
    at = await world.now() + timedelta(seconds=90)
    for _ in range(2):
        answer = await ledger.claim(session, a_claim(not_before=at))
        assert isinstance(answer, NotDue)
        assert answer.at == at
    job = await view(ledger)
    assert (job.state, job.fence, job.attempts, job.available_at) == (State.WAITING, 0, 0, at)
    await world.wait_s(91)
    assert (await started(ledger, session, not_before=at)).attempt == 1


async def test_not_before_in_the_past_changes_nothing(ledger: Ledger, session: Session, world: World) -> None:
    await started(ledger, session, not_before=await world.now() - timedelta(days=1))


async def test_not_before_holds_for_a_job_of_a_manifest(
    ledger: Ledger, session: Session, world: World
) -> None:
    await ledger.manifest("r1", [ManifestRow(LANE, "k", a_claim().fingerprint)])
    at = await world.now() + timedelta(seconds=90)
    answer = await ledger.claim(session, a_claim(not_before=at))
    assert isinstance(answer, NotDue)
    assert answer.at == at
    await started(ledger, session)


async def test_a_job_that_was_given_back_is_fresh_again(ledger: Ledger, session: Session) -> None:
    await record(ledger, session, await started(ledger, session), GiveBack("drain"))
    again = await started(ledger, session)
    assert (again.fence, again.attempt, again.ambiguous) == (2, 1, False)


@pytest.mark.parametrize("state", ["claimed", "done", "waiting", "queued", "cancelled"])
async def test_another_body_under_the_same_key_is_a_conflict(
    ledger: Ledger, session: Session, world: World, state: str
) -> None:
    if state in ("queued", "cancelled"):
        await ledger.manifest("r1", [ManifestRow(LANE, "k", a_claim().fingerprint)])
    else:
        fresh = await started(ledger, session)
    if state == "done":
        await record(ledger, session, fresh, Complete())
    elif state == "waiting":
        await record(ledger, session, fresh, Retry(fresh.now, "busy"))
    elif state == "cancelled":
        await ledger.cancel(LANE, "k")
    before = await view(ledger)
    assert isinstance(await ledger.claim(session, a_claim(body=b"other")), Conflict)
    assert await view(ledger) == before


async def test_fifty_claims_of_one_key_start_it_once(world: World) -> None:
    stores = [world.ledger, *[await world.another() for _ in range(4)]]
    sessions = [await start(store, f"daemon-{n}") for n, store in enumerate(stores)]
    for key in ("a", "b", "c"):
        answers = await asyncio.gather(
            *(stores[n % 5].claim(sessions[n % 5], a_claim(key)) for n in range(50))
        )
        assert sum(is_fresh(answer) for answer in answers) == 1
        assert sum(isinstance(answer, Held) for answer in answers) == 49
        assert (await view(world.ledger, key)).fence == 1


async def test_fifty_claims_of_one_waiting_job_start_it_once(world: World) -> None:
    stores = [world.ledger, *[await world.another() for _ in range(4)]]
    sessions = [await start(store, f"daemon-{n}") for n, store in enumerate(stores)]
    fresh = await started(stores[0], sessions[0])
    await record(stores[0], sessions[0], fresh, Retry(fresh.now, "busy"))
    answers = await asyncio.gather(*(stores[n % 5].claim(sessions[n % 5], a_claim()) for n in range(50)))
    assert sorted(answer.fence for answer in answers if isinstance(answer, Fresh)) == [2]


async def test_fifty_takeovers_of_one_job_start_it_once(world: World) -> None:
    dead = await start(world.ledger, "dead")
    await started(world.ledger, dead)
    await world.run_out(dead)
    stores = [world.ledger, *[await world.another() for _ in range(4)]]
    sessions = [await start(store, f"daemon-{n}") for n, store in enumerate(stores)]
    answers = await asyncio.gather(*(stores[n % 5].claim(sessions[n % 5], a_claim()) for n in range(50)))
    fresh = [answer for answer in answers if isinstance(answer, Fresh)]
    assert [(one.fence, one.attempt, one.ambiguous) for one in fresh] == [(2, 2, True)]
    assert len((await view(world.ledger)).history) == 1


async def test_a_session_whose_lease_has_ended_claims_nothing(
    ledger: Ledger, session: Session, world: World
) -> None:
    await started(ledger, session, "known")
    await world.run_out(session)
    for key in ("known", "new"):
        with pytest.raises(SessionLost):
            await ledger.claim(session, a_claim(key))
    assert await ledger.jobs("new") == []


async def test_a_closed_session_claims_nothing(ledger: Ledger, session: Session) -> None:
    await ledger.close_session(session)
    with pytest.raises(SessionLost):
        await ledger.claim(session, a_claim())


async def test_many_claims_at_once_are_each_answered(ledger: Ledger, session: Session) -> None:
    keys = [f"run-1:{n:05}" for n in range(1200)]
    answers = await asyncio.gather(*(ledger.claim(session, a_claim(key)) for key in keys))
    assert all(is_fresh(answer) for answer in answers)
    told = await asyncio.gather(
        *(
            record(ledger, session, answer, Complete(), key)
            for key, answer in zip(keys, answers, strict=True)
            if isinstance(answer, Fresh)
        )
    )
    assert told == [Recorded.RECORDED] * len(keys)
