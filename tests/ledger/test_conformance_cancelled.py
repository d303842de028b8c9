"""Runs that are cancelled, on every store: nothing of them starts, and nothing uncertain is forgotten."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta

import pytest

from acklast.ledger import run_cancel
from acklast.ledger.about import RunCancelled
from acklast.ledger.api import Decided, Fresh, Ledger, ManifestRow, NotDue, Session, State
from acklast.ledger.connect import Address
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.run_cancel import cancel_idle, mark_cancelled
from acklast.outcome import Complete, GiveBack, Retry
from ledger.worlds import LANE, PostgresWorld, World, a_claim, record, start, started, view

RUN = "r1"


async def promised(ledger: Ledger, *keys: str) -> None:
    await ledger.manifest(RUN, [ManifestRow(LANE, key, a_claim().fingerprint) for key in keys])


async def states(ledger: Ledger, *keys: str) -> list[State]:
    return [(await view(ledger, key)).state for key in keys]


async def test_what_has_not_started_is_cancelled(ledger: Ledger, session: Session, world: World) -> None:
    await promised(ledger, "queued", "waiting", "given back", "claimed", "done")
    fresh = await started(ledger, session, "waiting")
    await record(ledger, session, fresh, Retry(fresh.now + timedelta(days=1), "busy"), "waiting")
    await record(
        ledger, session, await started(ledger, session, "given back"), GiveBack("drain"), "given back"
    )
    await record(ledger, session, await started(ledger, session, "done"), Complete(), "done")
    claimed = await started(ledger, session, "claimed")
    assert await world.cancel_run(RUN) == 3
    assert await states(ledger, "queued", "waiting", "given back", "claimed", "done") == [
        State.CANCELLED,
        State.CANCELLED,
        State.CANCELLED,
        State.CLAIMED,
        State.DONE,
    ]
    job = await view(ledger, "waiting")
    assert (job.reason, job.available_at, job.fence) == ("run_cancelled", None, 2)
    # What was in flight ends as it ends.
    await record(ledger, session, claimed, Complete(), "claimed")
    run = await ledger.run(RUN)
    assert run is not None
    assert run.cancelled is not None
    assert (run.counts, run.balanced, run.open) == ({State.DONE: 2, State.CANCELLED: 3}, True, 0)
    assert await world.cancel_run(RUN) == 0


async def test_a_delivery_of_what_was_cancelled_is_decided(
    ledger: Ledger, session: Session, world: World
) -> None:
    await promised(ledger, "k")
    await world.cancel_run(RUN)
    answer = await ledger.claim(session, a_claim("k", run=RUN))
    assert isinstance(answer, Decided)
    assert (answer.state, answer.fence) == (State.CANCELLED, 1)


async def test_a_job_that_comes_after_its_run_was_cancelled_is_entered_as_cancelled(
    ledger: Ledger, session: Session, world: World
) -> None:
    await started(ledger, session, "first", run=RUN)
    await world.cancel_run(RUN)
    later = (await world.now()) + timedelta(hours=1)
    for key, not_before in (("new", None), ("not due", later)):
        for _ in range(2):
            answer = await ledger.claim(session, a_claim(key, run=RUN, not_before=not_before))
            assert isinstance(answer, Decided), answer
            assert answer.state is State.CANCELLED
        job = await view(ledger, key)
        assert (job.state, job.reason, job.run, job.attempts) == (State.CANCELLED, "run_cancelled", RUN, 0)
        assert job.recorded_at is not None
    assert isinstance(await ledger.claim(session, a_claim("other", run="another")), Fresh)
    assert isinstance(await ledger.claim(session, a_claim("none")), Fresh)


async def test_what_comes_back_from_flight_after_the_cancel_is_cancelled(
    ledger: Ledger, session: Session, world: World
) -> None:
    """The claim asks for it, and the ledger cancels it then: due or not, with the run told or not."""
    for key, more in (("due", 0), ("not due", 1)):
        fresh = await started(ledger, session, key, run=RUN)
        await world.cancel_run(RUN)
        at = fresh.now + timedelta(days=more)
        await record(ledger, session, fresh, Retry(at, "busy"), key)
        answer = await ledger.claim(session, a_claim(key))
        assert isinstance(answer, Decided), answer
        assert (answer.state, answer.fence) == (State.CANCELLED, 2)
        await world.uncancel(RUN)


async def test_a_job_whose_run_is_told_by_its_second_message_alone_is_cancelled_too(
    ledger: Ledger, session: Session, world: World
) -> None:
    await started(ledger, session, "first", run=RUN)
    fresh = await started(ledger, session, "k")
    await record(ledger, session, fresh, Retry(fresh.now, "busy"))
    await world.cancel_run(RUN)
    assert isinstance(await ledger.claim(session, a_claim("k", run=RUN)), Decided)
    assert (await view(ledger)).run == RUN


async def test_what_may_have_had_its_effect_is_claimed_and_not_to_be_started(
    ledger: Ledger, session: Session, world: World
) -> None:
    fresh = await started(ledger, session, "unknown", run=RUN)
    later = fresh.now + timedelta(days=1)
    await record(ledger, session, fresh, Retry(later, "timeout", ambiguous=True), "unknown")
    await started(ledger, session, "crashed", run=RUN)
    heir = await start(ledger, "two")
    assert await world.cancel_run(RUN) == 0
    assert await states(ledger, "unknown", "crashed") == [State.WAITING, State.CLAIMED]
    await world.run_out(session)
    for key in ("unknown", "crashed"):
        answer = await ledger.claim(heir, a_claim(key, run=RUN))
        assert isinstance(answer, Fresh), answer
        assert (answer.stopped, answer.ambiguous, answer.attempt) == (True, True, 2)


async def test_nothing_is_said_of_jobs_whose_run_goes_on(
    ledger: Ledger, session: Session, world: World
) -> None:
    fresh = await started(ledger, session, "k", run=RUN)
    await record(ledger, session, fresh, Retry(fresh.now + timedelta(minutes=1), "busy", ambiguous=True))
    assert isinstance(await ledger.claim(session, a_claim("k", run=RUN)), NotDue)
    await world.wait_s(60)
    answer = await ledger.claim(session, a_claim("k", run=RUN))
    assert isinstance(answer, Fresh)
    assert not answer.stopped


async def test_a_cancelled_run_is_promised_nothing_more(ledger: Ledger, world: World) -> None:
    await promised(ledger, "a")
    await world.cancel_run(RUN)
    with pytest.raises(RunCancelled, match=RUN):
        await promised(ledger, "b")
    run = await ledger.run(RUN)
    assert run is not None
    assert (run.manifest, run.total) == (1, 1)


@pytest.mark.ledger
async def test_a_cancel_that_is_cut_short_is_true_and_is_completed_by_the_next(
    postgres: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was killed: the mark stands, some jobs are cancelled, and the rest does not start."""
    monkeypatch.setattr(run_cancel, "_NEXT", "fetch 2 from acklast_idle")
    ledger, keys = postgres.ledger, [f"k{n}" for n in range(5)]
    await promised(ledger, *keys)
    operations = await Operations.connect(Address.of(postgres.dsn))
    await mark_cancelled(operations, RUN, "", Operator("somebody", "nobody@here"))
    async with aclosing(cancel_idle(operations, RUN)) as pieces:
        assert await anext(pieces) == 2
    found = await states(ledger, *keys)
    assert (found.count(State.CANCELLED), found.count(State.QUEUED)) == (2, 3)
    session = await start(ledger)
    left = keys[found.index(State.QUEUED)]
    assert isinstance(await ledger.claim(session, a_claim(left, run=RUN)), Decided)
    assert [count async for count in cancel_idle(operations, RUN)] == [2]
    operations.close()
    assert set(await states(ledger, *keys)) == {State.CANCELLED}
