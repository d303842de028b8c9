"""Retention, on every store: what goes, what stays whatever its age, and accounts that balance after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acklast.ledger.api import Fresh, Ledger, ManifestRow, RunView, Session, State
from acklast.ledger.retention import Keep, Pruned
from acklast.outcome import Bury, Complete, Hold, Retry
from acklast_topology.items import Manifested
from ledger.keeping import (
    DEAD_DAYS,
    DONE_DAYS,
    KEEPS,
    PAYLOAD_DAYS,
    one_in_every_state,
    pruned,
    states,
    whole_pass,
)
from ledger.worlds import LANE, World, a_claim, a_letter, is_fresh, record, start, started, view

OPEN = {State.QUEUED, State.CLAIMED, State.WAITING, State.UNRESOLVED}
NOTHING = Pruned()


def a_row(key: str) -> ManifestRow:
    return ManifestRow(LANE, key, a_claim().fingerprint)


async def account(ledger: Ledger, run: str = "r1") -> RunView:
    found = await ledger.run(run)
    assert found is not None
    return found


async def done(ledger: Ledger, session: Session, key: str = "k", run: str | None = None) -> None:
    await record(ledger, session, await started(ledger, session, key, run=run), Complete(), key)


# --- what goes and what stays ------------------------------------------------------------------------


async def test_nothing_goes_before_its_time(ledger: Ledger, session: Session, world: World) -> None:
    await one_in_every_state(ledger, session)
    await world.grow_old(DONE_DAYS - 0.01)
    assert await pruned(world) == NOTHING
    assert await states(ledger) == set(State)


async def test_done_and_cancelled_jobs_go_first(ledger: Ledger, session: Session, world: World) -> None:
    await one_in_every_state(ledger, session)
    await world.grow_old(DONE_DAYS + 0.01)
    # The cancelled one had been refused once before.
    assert await pruned(world) == Pruned(done=1, cancelled=1, attempts=1)
    assert await states(ledger) == OPEN | {State.DEAD}
    assert await pruned(world) == NOTHING


async def test_a_dead_job_goes_with_its_letter(ledger: Ledger, session: Session, world: World) -> None:
    await record(ledger, session, await started(ledger, session), Bury("refused"))
    await world.grow_old(DEAD_DAYS + 0.01)
    assert await pruned(world) == Pruned(dead=1, attempts=1, letters=1)
    assert await ledger.jobs("k") == []


@pytest.mark.parametrize("days", [DEAD_DAYS + 1, 10_000])
async def test_an_open_job_never_goes(ledger: Ledger, session: Session, world: World, days: float) -> None:
    await one_in_every_state(ledger, session)
    before = {state: await view(ledger, state.value) for state in OPEN}
    await world.grow_old(days)
    await pruned(world)
    assert await states(ledger) == OPEN
    for state, job in before.items():
        after = await view(ledger, state.value)
        assert (after.fence, after.attempts, len(after.history)) == (
            job.fence,
            job.attempts,
            len(job.history),
        )
    assert len((await view(ledger, "unresolved")).letters) == 1


async def test_a_job_stays_as_long_as_its_letter(ledger: Ledger, session: Session, world: World) -> None:
    await record(ledger, session, await started(ledger, session), Hold("timeout"))
    await ledger.cancel(LANE, "k")
    await world.grow_old(DONE_DAYS + 1)
    assert await pruned(world) == NOTHING
    await world.grow_old(DEAD_DAYS - DONE_DAYS)
    assert await pruned(world) == Pruned(cancelled=1, attempts=1, letters=1)


async def test_an_older_letter_of_a_job_goes_by_its_own_time(
    ledger: Ledger, session: Session, world: World
) -> None:
    letter = a_letter("k", "key_conflict", digest=b"d")
    await ledger.bury_stray(letter, worker="one:1", version="1.2.3")
    await started(ledger, session)
    await world.grow_old(DEAD_DAYS + 1)
    assert await pruned(world) == Pruned(letters=1)
    assert (await view(ledger)).letters == ()


async def test_other_lanes_are_left_alone(ledger: Ledger, session: Session, world: World) -> None:
    await one_in_every_state(ledger, session)
    await ledger.bury_stray(a_letter(None, "missing_key", digest=b"d"), worker="one:1", version="1")
    await world.grow_old(DEAD_DAYS + 1)
    assert await pruned(world, {"other": KEEPS[LANE]}) == NOTHING
    assert await states(ledger) == set(State)


async def test_each_lane_has_its_own_windows(ledger: Ledger, session: Session, world: World) -> None:
    await done(ledger, session)
    for lane in ("b", "c"):
        fresh = await ledger.claim(session, replace(a_claim(), lane=lane))
        assert isinstance(fresh, Fresh)
    await world.grow_old(2)
    keeps = {"b": Keep(1, 1, 1), LANE: Keep(10 * 86_400, 20 * 86_400, 20 * 86_400)}
    assert await pruned(world, keeps) == NOTHING
    await world.grow_old(9)
    assert await pruned(world, keeps) == Pruned(done=1)


# --- the payload of a letter -------------------------------------------------------------------------


async def test_a_letter_is_emptied_once_and_stays(ledger: Ledger, session: Session, world: World) -> None:
    await record(ledger, session, await started(ledger, session), Bury("refused"))
    await world.grow_old(PAYLOAD_DAYS + 0.01)
    assert await pruned(world) == Pruned(payloads=1)
    assert await pruned(world) == NOTHING
    job = await view(ledger)
    assert (job.state, [letter.reason for letter in job.letters]) == (State.DEAD, ["refused"])


async def test_what_an_open_job_may_need_is_not_emptied(
    ledger: Ledger, session: Session, world: World
) -> None:
    await record(ledger, session, await started(ledger, session), Hold("timeout"))
    await world.grow_old(10_000)
    assert (await pruned(world)).payloads == 0


async def test_an_emptied_letter_is_whole_again_when_its_message_comes_again(
    ledger: Ledger, world: World
) -> None:
    letter = a_letter(None, "missing_key", digest=b"d")
    for _ in range(2):
        await ledger.bury_stray(letter, worker="one:1", version="1.2.3")
        await world.grow_old(PAYLOAD_DAYS + 1)
        assert await pruned(world) == Pruned(payloads=1)
    await world.grow_old(DEAD_DAYS - PAYLOAD_DAYS)
    assert await pruned(world) == Pruned(letters=1)


# --- accounts ----------------------------------------------------------------------------------------


async def test_a_run_balances_when_its_jobs_are_gone(ledger: Ledger, session: Session, world: World) -> None:
    await ledger.manifest("r1", [a_row(state.value) for state in State])
    await one_in_every_state(ledger, session)
    before = await account(ledger)
    await world.grow_old(DEAD_DAYS + 1)
    assert before.pruned == {}
    await pruned(world)
    after = await account(ledger)
    assert after.pruned == {State.DONE: 1, State.DEAD: 1, State.CANCELLED: 1}
    # Tallied, not lost: all the rest of the account is what it was.
    passing: dict[str, Any] = {"created_at": None, "at": None, "ended_lately": 0, "ended_at": None}
    assert replace(after, pruned={}, **passing) == replace(before, **passing)
    assert (after.manifest, after.total, after.balanced, after.open) == (7, 7, True, 3)


async def test_a_run_without_a_manifest_is_remembered_too(
    ledger: Ledger, session: Session, world: World
) -> None:
    fresh = await started(ledger, session, "a", run="foreign")
    await record(ledger, session, fresh, Retry(fresh.now, "busy"), "a")
    await done(ledger, session, "a", run="foreign")
    await world.grow_old(DONE_DAYS + 1)
    assert await pruned(world) == Pruned(done=1, attempts=2)
    run = await account(ledger, "foreign")
    assert (run.manifest, run.counts, run.pruned) == (None, {State.DONE: 1}, {State.DONE: 1})
    assert (run.attempts, run.balanced, run.open) == (2, True, 0)


async def test_a_tally_grows_with_every_pass(ledger: Ledger, session: Session, world: World) -> None:
    keys = ["a", "b", "c"]
    await ledger.manifest("r1", [a_row(key) for key in keys])
    for nth, key in enumerate(keys, 1):
        living = await start(ledger, f"nr-{nth}")
        await done(ledger, living, key)
        await world.grow_old(DONE_DAYS + 1)
        await pruned(world)
        run = await account(ledger)
        assert (run.pruned, run.total, run.balanced) == ({State.DONE: nth}, 3, True)


async def test_a_pruned_key_is_a_new_job(ledger: Ledger, session: Session, world: World) -> None:
    fresh = await started(ledger, session)
    await record(ledger, session, fresh, Retry(fresh.now, "busy"))
    await done(ledger, session)
    await world.grow_old(DONE_DAYS + 1)
    await pruned(world)
    again = await started(ledger, await start(ledger, "two"), body=b"another body")
    assert (again.fence, again.attempt, again.ambiguous) == (1, 1, False)
    assert (await view(ledger)).history == ()


async def test_a_run_that_is_enqueued_again_after_its_window_promises_anew(
    ledger: Ledger, session: Session, world: World
) -> None:
    await ledger.manifest("r1", [a_row("a"), a_row("b")])
    await done(ledger, session, "a")
    await world.grow_old(DONE_DAYS + 1)
    await pruned(world)
    assert await ledger.manifest("r1", [a_row("a"), a_row("b")]) == [Manifested.NEW, Manifested.OPEN]
    run = await account(ledger)
    assert (run.manifest, run.counts) == (3, {State.DONE: 1, State.QUEUED: 2})
    assert run.balanced


# --- dry runs ----------------------------------------------------------------------------------------


async def test_a_dry_run_counts_what_a_pass_removes(ledger: Ledger, session: Session, world: World) -> None:
    await one_in_every_state(ledger, session, "r1")
    await ledger.bury_stray(a_letter(None, "missing_key", digest=b"d"), worker="one:1", version="1")
    await world.grow_old(PAYLOAD_DAYS + 1)
    await ledger.bury_stray(a_letter(None, "missing_key", digest=b"e"), worker="one:1", version="1")
    for _ in range(2):
        told = await pruned(world, dry_run=True)
        assert told == Pruned(done=1, cancelled=1, attempts=1, payloads=2)
    assert await states(ledger) == set(State)
    assert (await account(ledger)).pruned == {}
    await world.grow_old(DEAD_DAYS - PAYLOAD_DAYS)
    told = await pruned(world, dry_run=True)
    assert told == Pruned(done=1, dead=1, cancelled=1, attempts=2, letters=2)
    assert await pruned(world) == told


async def test_a_dry_run_does_not_keep_a_pass_from_looking(
    ledger: Ledger, session: Session, world: World
) -> None:
    await done(ledger, session)
    await world.grow_old(DONE_DAYS + 1)
    store = await world.another()
    assert await whole_pass(store, dry_run=True) == Pruned(done=1)
    assert await whole_pass(store) == Pruned(done=1)


# --- worker sessions ---------------------------------------------------------------------------------


async def test_old_sessions_go_and_living_ones_stay(ledger: Ledger, session: Session, world: World) -> None:
    await start(ledger, "two")
    await ledger.close_session(session)
    await world.grow_old(89)
    assert await pruned(world) == NOTHING
    await world.grow_old(2)
    living = await start(ledger, "three")
    assert await pruned(world) == Pruned(sessions=2)
    assert await ledger.renew(living)


async def test_a_session_is_kept_as_long_as_a_job_may_name_it(
    ledger: Ledger, session: Session, world: World
) -> None:
    await world.grow_old(100)
    keeps = {LANE: Keep(200 * 86_400, 200 * 86_400, 200 * 86_400)}
    assert await pruned(world, keeps) == NOTHING


async def test_a_claim_outlives_the_memory_of_its_session(
    ledger: Ledger, session: Session, world: World
) -> None:
    await started(ledger, session)
    await world.grow_old(1000)
    assert await pruned(world) == Pruned(sessions=1)
    assert (await view(ledger)).worker is None
    again = await ledger.claim(await start(ledger, "two"), a_claim())
    assert is_fresh(again)
    job = await view(ledger)
    assert (job.state, job.ambiguous) == (State.CLAIMED, True)
    assert [(one.outcome, one.worker) for one in job.history] == [("crashed", "")]
