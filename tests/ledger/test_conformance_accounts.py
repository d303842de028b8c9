"""Runs, manifests and letters, on every store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from acklast.ledger.api import Ledger, ManifestRow, NotDue, Session, State
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry, Verdict
from acklast_topology.items import Manifested
from ledger.worlds import LANE, World, a_claim, a_letter, record, start, started, view

NEW, OPEN, DUPLICATE, CONFLICT = Manifested.NEW, Manifested.OPEN, Manifested.DUPLICATE, Manifested.CONFLICT


def a_row(key: str, body: bytes = b"body") -> ManifestRow:
    return ManifestRow(LANE, key, a_claim(body=body).fingerprint, "rent.v1")


async def test_a_manifest_promises_jobs(ledger: Ledger, world: World) -> None:
    before = await world.now()
    assert await ledger.manifest("r1", [a_row("b"), a_row("a")]) == [NEW, NEW]
    job = await view(ledger, "a")
    assert (job.state, job.run, job.type, job.fence) == (State.QUEUED, "r1", "rent.v1", 0)
    assert before <= job.enqueued_at
    run = await ledger.run("r1")
    assert run is not None
    assert (run.manifest, run.total, run.balanced, run.open, run.attempts) == (2, 2, True, 2, 0)


async def test_a_promise_with_a_time_of_its_own_waits_for_it(
    ledger: Ledger, world: World, session: Session
) -> None:
    """It is not due, and so neither overdue nor lost while its message is in a wait queue."""
    now = await world.now()
    soon = timedelta(minutes=5)
    rows = [replace(a_row("later"), not_before=now + soon), replace(a_row("over"), not_before=now - soon)]
    assert await ledger.manifest("r1", rows) == [NEW, NEW]
    later, over = await view(ledger, "later"), await view(ledger, "over")
    assert (later.state, later.available_at, later.fence) == (State.WAITING, now + soon, 0)
    assert (over.state, over.available_at) == (State.QUEUED, None)
    # Whoever was interrupted before it had published anything publishes both again.
    assert await ledger.manifest("r1", rows) == [OPEN, OPEN]
    answer = await ledger.claim(session, a_claim("later", not_before=now + soon))
    assert isinstance(answer, NotDue)
    assert answer.at == now + soon
    assert await ledger.manifest("r1", rows) == [OPEN, OPEN]
    await world.wait_s(soon.total_seconds() + 1)
    assert (await started(ledger, session, "later")).attempt == 1
    assert await ledger.manifest("r1", rows) == [DUPLICATE, OPEN]


async def test_an_interrupted_enqueue_is_told_what_to_publish_again(ledger: Ledger, session: Session) -> None:
    rows = [a_row(key) for key in ("open", "started", "done", "waiting")]
    await ledger.manifest("r1", rows)
    await started(ledger, session, "started")
    await record(ledger, session, await started(ledger, session, "done"), Complete(), "done")
    fresh = await started(ledger, session, "waiting")
    await record(ledger, session, fresh, Retry(fresh.now, "busy"), "waiting")
    again = await ledger.manifest("r1", [*rows, a_row("new")])
    assert again == [OPEN, DUPLICATE, DUPLICATE, DUPLICATE, NEW]
    run = await ledger.run("r1")
    assert run is not None
    assert (run.manifest, run.balanced) == (5, True)


async def test_a_job_that_was_given_back_is_no_longer_open(ledger: Ledger, session: Session) -> None:
    await ledger.manifest("r1", [a_row("k")])
    await record(ledger, session, await started(ledger, session), GiveBack("drain"))
    assert (await view(ledger)).state is State.QUEUED
    assert await ledger.manifest("r1", [a_row("k")]) == [DUPLICATE]


async def test_another_content_under_a_promised_key_is_a_conflict(ledger: Ledger, session: Session) -> None:
    await ledger.manifest("r1", [a_row("queued")])
    await started(ledger, session, "claimed")
    rows = [a_row("queued", b"other"), a_row("claimed", b"other"), a_row("fine")]
    assert await ledger.manifest("r1", rows) == [CONFLICT, CONFLICT, NEW]
    assert await ledger.manifest("r1", [a_row("queued")]) == [OPEN]


async def test_repeated_rows_of_one_manifest_are_one_job(ledger: Ledger) -> None:
    rows = [a_row("a"), a_row("b"), a_row("a"), a_row("a", b"other"), a_row("b")]
    assert await ledger.manifest("r1", rows) == [NEW, NEW, DUPLICATE, CONFLICT, DUPLICATE]
    assert await ledger.manifest("r1", rows) == [OPEN, OPEN, DUPLICATE, CONFLICT, DUPLICATE]
    run = await ledger.run("r1")
    assert run is not None
    assert (run.manifest, run.total) == (2, 2)


async def test_an_empty_manifest_is_a_run_with_nothing_to_do(ledger: Ledger) -> None:
    assert await ledger.manifest("r1", []) == []
    run = await ledger.run("r1")
    assert run is not None
    assert (run.manifest, run.total, run.balanced) == (0, 0, True)


async def test_a_job_belongs_to_the_run_that_promised_it_first(ledger: Ledger) -> None:
    await ledger.manifest("r1", [a_row("k")])
    assert await ledger.manifest("r2", [a_row("k"), a_row("other")]) == [OPEN, NEW]
    first, second = await ledger.run("r1"), await ledger.run("r2")
    assert first is not None
    assert second is not None
    assert (first.manifest, first.balanced, second.manifest, second.balanced) == (1, True, 1, True)


async def test_manifests_at_once_promise_each_job_once(world: World) -> None:
    stores = [world.ledger, await world.another(), await world.another()]
    rows = [a_row(f"k{n:04}") for n in range(300)]
    answers = await asyncio.gather(
        *(store.manifest("r1", rows[::step]) for store, step in zip(stores, (1, -1, 1), strict=True))
    )
    said = [answer for one in answers for answer in one]
    assert (said.count(NEW), said.count(OPEN)) == (300, 600)
    run = await world.ledger.run("r1")
    assert run is not None
    assert (run.manifest, run.balanced) == (300, True)


async def test_every_job_of_a_run_is_in_one_state(ledger: Ledger, session: Session, world: World) -> None:
    keys = ["done", "waiting", "claimed", "queued", "dead", "unresolved", "cancelled"]
    await ledger.manifest("r1", [a_row(key) for key in keys])
    for key in keys:
        if key in ("queued", "cancelled"):
            continue
        fresh = await started(ledger, session, key)
        verdicts: dict[str, Verdict] = {
            "done": Complete(),
            "waiting": Retry(fresh.now + timedelta(hours=1), "busy"),
            "dead": Bury("refused"),
            "unresolved": Hold("timeout"),
        }
        if key in verdicts:
            await record(ledger, session, fresh, verdicts[key], key)
    await ledger.cancel(LANE, "cancelled")
    run = await ledger.run("r1")
    assert run is not None
    assert run.counts == dict.fromkeys(State, 1)
    assert (run.manifest, run.balanced, run.open, run.attempts) == (7, True, 3, 5)
    assert run.created_at is not None
    assert run.created_at <= await world.now()


async def test_a_run_of_foreign_publishers_has_no_manifest(ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session, "a", run="foreign")
    await record(ledger, session, fresh, Retry(fresh.now, "busy"), "a")
    await started(ledger, session, "a", run="foreign")
    await started(ledger, session, "b", run="foreign")
    run = await ledger.run("foreign")
    assert run is not None
    assert (run.manifest, run.created_at, run.balanced) == (None, None, True)
    assert (run.counts, run.attempts) == ({State.CLAIMED: 2}, 3)


async def test_an_unknown_run_is_nothing(ledger: Ledger) -> None:
    assert await ledger.run("r1") is None


async def test_an_unknown_key_has_no_job(ledger: Ledger) -> None:
    assert await ledger.jobs("k") == []


async def test_a_malformed_message_seen_twice_is_one_letter(ledger: Ledger, session: Session) -> None:
    await started(ledger, session)
    letter = a_letter(reason="key_conflict", digest=b"d1")
    for _ in range(2):
        await ledger.bury_stray(letter, worker="one:1", version="1.2.3")
    await ledger.bury_stray(replace(letter, digest=b"d2"), worker="one:1", version="1.2.3")
    await ledger.bury_stray(replace(letter, lane="letters"), worker="one:1", version="1.2.3")
    kept = (await view(ledger)).letters
    assert [(one.reason, one.seen, one.attempts) for one in kept] == [
        ("key_conflict", 2, 0),
        ("key_conflict", 1, 0),
    ]
    assert kept[0].first_failure_at <= kept[0].last_failure_at


async def test_a_message_without_a_key_is_kept_too(ledger: Ledger) -> None:
    nasty = a_letter(key=None, reason="missing_key", detail="\x00\ud800", headers={"\x00": "\ud800"})
    await ledger.bury_stray(replace(nasty, digest=b"d"), worker="one:1", version="1.2.3")
    await ledger.bury_stray(replace(nasty, digest=b"d"), worker="one:1", version="1.2.3")


async def test_instances_have_their_own_sessions(ledger: Ledger) -> None:
    one, two = await start(ledger, "one"), await start(ledger, "two")
    await started(ledger, one, "a")
    await started(ledger, two, "b")
    assert [(await view(ledger, key)).worker for key in "ab"] == ["one:1", "two:1"]


async def test_a_run_tells_what_has_ended_of_late(ledger: Ledger, session: Session, world: World) -> None:
    await ledger.manifest("r1", [a_row("done"), a_row("waiting"), a_row("queued")])
    before = await world.now()
    await record(ledger, session, await started(ledger, session, "done"), Complete(), "done")
    fresh = await started(ledger, session, "waiting")
    await record(ledger, session, fresh, Retry(fresh.now, "busy"), "waiting")
    run = await ledger.run("r1")
    assert run is not None
    assert run.at is not None
    assert run.ended_at is not None
    assert before <= run.ended_at <= run.at
    assert (run.ended_lately, run.open) == (1, 2)
    await world.grow_old(1)
    run = await ledger.run("r1")
    assert run is not None
    assert run.ended_lately == 0
