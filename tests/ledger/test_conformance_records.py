"""What a record does to a job, on every store."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from acklast.errors import ClaimLost
from acklast.fingerprint import fingerprint
from acklast.ledger.api import Fresh, Ledger, Recorded, Session, State
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry, Verdict
from ledger.worlds import LANE, World, a_claim, a_letter, a_record, record, start, started, view


async def test_complete_makes_a_job_done(ledger: Ledger, session: Session, world: World) -> None:
    fresh = await started(ledger, session)
    effect_at = fresh.now + timedelta(seconds=1)
    result = {"sent": 3, "to": ["ä", "b"], "nothing": None, "share": 0.5}
    told = await record(ledger, session, fresh, Complete(result), effect_at=effect_at)
    assert told is Recorded.RECORDED
    job = await view(ledger)
    assert (job.state, job.result, job.effect_at, job.reason) == (State.DONE, result, effect_at, None)
    assert (job.attempts, job.fence) == (1, 1)
    assert job.recorded_at is not None
    assert fresh.now <= job.recorded_at <= await world.now()
    assert job.history == ()  # it simply succeeded


@pytest.mark.parametrize("result", [None, 0, False, "", [], {}, "text"])
async def test_any_small_result_comes_back(ledger: Ledger, session: Session, result: Any) -> None:
    await record(ledger, session, await started(ledger, session), Complete(result))
    assert (await view(ledger)).result == result


async def test_retry_makes_a_job_wait(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    at = fresh.now + timedelta(seconds=30)
    ended = fresh.now + timedelta(seconds=2)
    await record(ledger, session, fresh, Retry(at, "busy"), detail="503", effect_at=ended)
    job = await view(ledger)
    assert (job.state, job.available_at, job.attempts, job.reason) == (State.WAITING, at, 1, "busy")
    assert not job.ambiguous
    (attempt,) = job.history
    assert (attempt.fence, attempt.attempt, attempt.outcome) == (1, 1, "transient")
    assert (attempt.reason, attempt.detail) == ("busy", "503")
    assert (attempt.started_at, attempt.ended_at) == (fresh.now, ended)
    assert (attempt.worker, attempt.version) == ("one:1", "1.2.3")


async def test_a_retry_that_spends_nothing_leaves_the_attempts_as_they_were(
    ledger: Ledger, session: Session
) -> None:
    for n in range(3):
        fresh = await started(ledger, session)
        assert (fresh.fence, fresh.attempt, fresh.rate_limited) == (n + 1, 1, n)
        verdict = Retry(fresh.now, "rate_limited", spends=False)
        await record(ledger, session, fresh, verdict, outcome="rate_limited")
    job = await view(ledger)
    assert (job.attempts, job.rate_limited) == (0, 3)
    assert [attempt.outcome for attempt in job.history] == ["rate_limited"] * 3


async def test_a_success_after_failures_is_in_the_history(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    await record(ledger, session, fresh, Retry(fresh.now, "busy"))
    await record(ledger, session, await started(ledger, session), Complete())
    job = await view(ledger)
    assert [(a.fence, a.attempt, a.outcome) for a in job.history] == [(1, 1, "transient"), (2, 2, "done")]
    assert (job.state, job.attempts) == (State.DONE, 2)


@pytest.mark.parametrize(
    ("verdict", "state"), [(Bury("refused"), State.DEAD), (Hold("refused"), State.UNRESOLVED)]
)
async def test_an_end_without_effect_leaves_a_letter(
    ledger: Ledger, session: Session, verdict: Verdict, state: State, world: World
) -> None:
    fresh = await started(ledger, session, run="r1")
    letter = a_letter(reason="refused", run="r1", detail="HTTP 422")
    await record(ledger, session, fresh, verdict, letter=letter)
    job = await view(ledger)
    assert (job.state, job.reason) == (state, "refused")
    (kept,) = job.letters
    assert (kept.lane, kept.key, kept.run, kept.reason) == (LANE, "k", "r1", "refused")
    assert (kept.detail, kept.attempts, kept.seen) == ("HTTP 422", 1, 1)
    assert (kept.worker, kept.version) == ("one:1", "1.2.3")
    assert (kept.failure, kept.trace_id) == (fingerprint("refused", "HTTP 422", "k"), None)
    assert fresh.now <= kept.first_failure_at == kept.last_failure_at <= await world.now()
    assert [attempt.outcome for attempt in job.history] == ["permanent" if state is State.DEAD else "unknown"]


async def test_a_letter_tells_the_first_failure_and_the_last(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    quota = Retry(fresh.now, "rate_limited", spends=False)
    await record(ledger, session, fresh, quota, outcome="rate_limited")  # no failure
    fresh = await started(ledger, session)
    first = fresh.now - timedelta(minutes=5)
    await record(ledger, session, fresh, Retry(fresh.now, "busy"), effect_at=first)
    fresh = await started(ledger, session)
    await record(ledger, session, fresh, Retry(fresh.now, "busy"), effect_at=first + timedelta(minutes=1))
    fresh = await started(ledger, session)
    await record(ledger, session, fresh, Bury("attempts_exhausted"))
    (kept,) = (await view(ledger)).letters
    assert kept.first_failure_at == first
    assert kept.last_failure_at >= fresh.now
    assert kept.attempts == 3


async def test_hold_keeps_in_mind_that_the_effect_may_have_happened(ledger: Ledger, session: Session) -> None:
    await record(ledger, session, await started(ledger, session), Hold("timeout"))
    assert (await view(ledger)).ambiguous


@pytest.mark.parametrize("verdict", [Bury("refused"), Hold("timeout")])
async def test_no_payload_is_lost_for_want_of_a_letter(
    ledger: Ledger, session: Session, verdict: Verdict
) -> None:
    fresh = await started(ledger, session)
    with pytest.raises(ValueError, match="needs its letter"):
        await record(ledger, session, fresh, verdict, letter=None)
    assert (await view(ledger)).state is State.CLAIMED


async def test_give_back_spends_no_attempt(ledger: Ledger, session: Session) -> None:
    await record(ledger, session, await started(ledger, session), GiveBack("drain"))
    job = await view(ledger)
    assert (job.state, job.attempts, job.reason) == (State.QUEUED, 0, "drain")
    assert [(a.attempt, a.outcome) for a in job.history] == [(1, "interrupted")]


def _unsure(fresh: Fresh, how: str) -> Verdict:
    return Retry(fresh.now, "reset", ambiguous=True) if how == "retry" else GiveBack("cut", ambiguous=True)


@pytest.mark.parametrize("verdict", ["retry", "give back"])
async def test_ambiguous_stays_until_the_job_is_final(ledger: Ledger, session: Session, verdict: str) -> None:
    fresh = await started(ledger, session)
    await record(ledger, session, fresh, _unsure(fresh, verdict))
    fresh = await started(ledger, session)
    assert fresh.ambiguous
    await record(ledger, session, fresh, Retry(fresh.now, "busy"))  # itself quite certain
    fresh = await started(ledger, session)
    assert fresh.ambiguous
    await record(ledger, session, fresh, Complete())
    assert (await view(ledger)).ambiguous


@pytest.mark.parametrize(
    "verdict",
    [Complete(1), Bury("refused"), Hold("timeout"), GiveBack("drain"), "retry"],
    ids=lambda verdict: verdict if isinstance(verdict, str) else type(verdict).__name__,
)
async def test_a_repeated_record_is_recorded_once(
    ledger: Ledger, session: Session, verdict: Verdict | str
) -> None:
    fresh = await started(ledger, session)
    said = Retry(fresh.now, "busy", spends=False) if isinstance(verdict, str) else verdict
    told = a_record(fresh, said)
    assert await ledger.record(session, told) is Recorded.RECORDED
    after = await view(ledger)
    assert await ledger.record(session, told) is Recorded.RECORDED
    assert await view(ledger) == after


async def test_a_record_of_an_older_fence_is_lost(ledger: Ledger, session: Session) -> None:
    old = await started(ledger, session)
    await record(ledger, session, old, GiveBack("drain"))
    new = await started(ledger, session)
    before = await view(ledger)
    assert await record(ledger, session, old, Complete("late")) is Recorded.CLAIM_LOST
    assert await view(ledger) == before
    assert await record(ledger, session, new, Complete("new")) is Recorded.RECORDED
    assert await record(ledger, session, old, Complete("late")) is Recorded.CLAIM_LOST
    assert (await view(ledger)).result == "new"


async def test_a_record_of_a_fence_that_never_was_is_lost(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    assert await record(ledger, session, replace(fresh, fence=7), Complete()) is Recorded.CLAIM_LOST
    assert await record(ledger, session, fresh, Complete(), "unheard-of") is Recorded.CLAIM_LOST
    assert await ledger.jobs("unheard-of") == []


async def test_a_record_after_a_takeover_is_lost(ledger: Ledger, session: Session, world: World) -> None:
    old = await started(ledger, session)
    await world.run_out(session)
    heir = await start(ledger, "two")
    new = await started(ledger, heir)
    assert await record(ledger, session, old, Complete("old")) is Recorded.CLAIM_LOST
    assert await record(ledger, session, old, Bury("late")) is Recorded.CLAIM_LOST
    assert await record(ledger, heir, new, Complete("new")) is Recorded.RECORDED
    job = await view(ledger)
    assert (job.result, job.letters, job.worker) == ("new", (), "two:1")


async def test_a_late_record_counts_where_nobody_took_over(
    ledger: Ledger, session: Session, world: World
) -> None:
    fresh = await started(ledger, session)
    await world.run_out(session)
    assert await record(ledger, session, fresh, Complete()) is Recorded.RECORDED
    assert (await view(ledger)).state is State.DONE


async def test_a_record_after_a_cancel_is_lost(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    assert await ledger.cancel(LANE, "k")
    assert await record(ledger, session, fresh, Complete()) is Recorded.CLAIM_LOST
    job = await view(ledger)
    assert (job.state, job.fence, job.reason) == (State.CANCELLED, 2, "cancelled")


async def test_cancel_ends_whatever_is_not_final(ledger: Ledger, session: Session) -> None:
    assert not await ledger.cancel(LANE, "k")
    fresh = await started(ledger, session)
    await record(ledger, session, fresh, Retry(fresh.now, "busy"))
    assert not await ledger.cancel("another-lane", "k")
    assert await ledger.cancel(LANE, "k")
    assert not await ledger.cancel(LANE, "k")
    await record(ledger, session, await started(ledger, session, "held"), Hold("timeout"), "held")
    assert await ledger.cancel(LANE, "held")


@pytest.mark.parametrize("verdict", [Complete(), Bury("refused")])
async def test_cancel_leaves_what_is_final(ledger: Ledger, session: Session, verdict: Verdict) -> None:
    await record(ledger, session, await started(ledger, session), verdict)
    before = await view(ledger)
    assert not await ledger.cancel(LANE, "k")
    assert await view(ledger) == before


NASTY = "nul \x00, half a pair \ud800, and ü"


async def test_text_that_postgres_refuses_is_kept_as_far_as_it_goes(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    verdict = Retry(fresh.now, f"reason {NASTY}")
    assert await record(ledger, session, fresh, verdict, detail=NASTY) is Recorded.RECORDED
    fresh = await started(ledger, session)
    letter = a_letter(
        headers={"x": NASTY, NASTY: [NASTY]}, properties={"p": {"q": NASTY}}, detail=NASTY, reason=NASTY
    )
    assert await record(ledger, session, fresh, Bury(NASTY), letter=letter) is Recorded.RECORDED
    shown = NASTY.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    job = await view(ledger)
    assert [attempt.detail for attempt in job.history] == [shown, ""]
    assert job.letters[0].detail == shown


async def test_a_result_that_postgres_refuses_is_kept_as_far_as_it_goes(
    ledger: Ledger, session: Session
) -> None:
    result = {"a": "x\x00y", "b\x00": ["\udfff"], "c": float("nan"), "d": "\\u0000", "e": (1, 2)}
    assert await record(ledger, session, await started(ledger, session), Complete(result))
    kept = {"a": "x\ufffdy", "b\ufffd": ["\ufffd"], "c": "nan", "d": "\\u0000", "e": [1, 2]}
    assert (await view(ledger)).result == kept


async def test_detail_is_bounded(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    await record(ledger, session, fresh, Retry(fresh.now, "r" * 9999), detail="d" * 99999)
    job = await view(ledger)
    assert len(job.history[0].detail) == 4096
    assert len(job.reason or "") == 200


# --- the handler's own transaction --------------------------------------------------------------------


async def test_a_transaction_completes_the_job_at_its_end(
    ledger: Ledger, session: Session, world: World
) -> None:
    fresh = await started(ledger, session)
    async with ledger.transaction(session, a_record(fresh, Complete({"n": 1}))):
        assert (await view(ledger)).state is State.CLAIMED
    job = await view(ledger)
    assert (job.state, job.result, job.history) == (State.DONE, {"n": 1}, ())
    assert job.effect_at == job.recorded_at
    assert job.effect_at is not None
    assert fresh.now <= job.effect_at <= await world.now()


async def test_a_transaction_that_fails_leaves_the_claim(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    with pytest.raises(ZeroDivisionError):
        async with ledger.transaction(session, a_record(fresh, Complete())):
            raise ZeroDivisionError
    assert (await view(ledger)).state is State.CLAIMED
    assert await record(ledger, session, fresh, Retry(fresh.now, "bug")) is Recorded.RECORDED


async def test_a_transaction_whose_claim_was_lost_says_so(
    ledger: Ledger, session: Session, world: World
) -> None:
    fresh = await started(ledger, session)
    heir = await start(ledger, "two")

    async def outlive_the_lease() -> None:
        async with ledger.transaction(session, a_record(fresh, Complete("old"))):
            await world.run_out(session)
            await started(ledger, heir)

    with pytest.raises(ClaimLost, match=f"{LANE}/k"):
        await outlive_the_lease()
    assert (await view(ledger)).state is State.CLAIMED


async def test_a_transaction_of_an_attempt_with_a_verdict_is_refused(
    ledger: Ledger, session: Session
) -> None:
    fresh = await started(ledger, session)
    with pytest.raises(ClaimLost):
        async with ledger.transaction(session, a_record(fresh, Complete())):
            # The daemon gave up on the handler meanwhile: no effect must be committed under that verdict.
            await record(ledger, session, fresh, Hold("timeout"))
    assert (await view(ledger)).state is State.UNRESOLVED


async def test_a_second_attempt_in_a_transaction_is_in_the_history(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    await record(ledger, session, fresh, Retry(fresh.now, "busy"))
    fresh = await started(ledger, session)
    async with ledger.transaction(session, a_record(fresh, Complete())):
        pass
    assert [a.outcome for a in (await view(ledger)).history] == ["transient", "done"]


async def test_only_a_completion_can_be_part_of_a_transaction(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    with pytest.raises(ValueError, match="completes its job"):
        async with ledger.transaction(session, a_record(fresh, GiveBack("drain"))):
            pass


async def test_claims_of_one_key_wait_for_nobody_else(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    async with ledger.transaction(session, a_record(fresh, Complete())):
        other = await ledger.claim(session, a_claim("other"))
        assert isinstance(other, Fresh)
