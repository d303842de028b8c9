"""The messages of open jobs in the ledger's custody: kept from the first word of a job to its end."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta

import pytest

from acklast.ledger.api import Kept, ManifestRow, Session, State
from acklast.ledger.connect import Address
from acklast.ledger.missing import AlreadySearching, Overdue, Search
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry, Verdict
from acklast_topology.items import Manifested
from ledger.worlds import LANE, PostgresWorld, a_claim, a_record, record, start, started

MESSAGE = Kept(b"\0" * 12 + b"\0\0", b"body")


async def kept(world: PostgresWorld) -> list[str]:
    """The keys whose messages are kept."""
    return [row["key"] for row in await world.sql("select key from acklast.custody order by key")]


@pytest.fixture
async def session(postgres: PostgresWorld) -> Session:
    return await start(postgres.ledger)


@pytest.mark.parametrize(
    ("verdict", "stays"),
    [
        (Complete(), False),
        (Bury("no"), False),
        (Hold("who knows"), False),  # its letter has the message
        (GiveBack("drain"), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Verdict) else "",
)
async def test_a_message_is_kept_until_its_job_ends(
    postgres: PostgresWorld, session: Session, verdict: Verdict, stays: bool
) -> None:
    fresh = await started(postgres.ledger, session, kept=MESSAGE)
    assert await kept(postgres) == ["k"]
    await record(postgres.ledger, session, fresh, verdict, frees=True)
    assert await kept(postgres) == (["k"] if stays else [])


async def test_a_retry_keeps_its_message_and_the_end_takes_it(
    postgres: PostgresWorld, session: Session
) -> None:
    ledger = postgres.ledger
    fresh = await started(ledger, session, kept=MESSAGE)
    await record(ledger, session, fresh, Retry(fresh.now, "again"), frees=True)
    again = await started(ledger, session, kept=MESSAGE)
    assert await kept(postgres) == ["k"]
    async with ledger.transaction(session, a_record(again, Complete())):
        pass
    assert await kept(postgres) == []


async def test_a_copy_of_what_is_decided_is_not_kept(postgres: PostgresWorld, session: Session) -> None:
    ledger = postgres.ledger
    fresh = await started(ledger, session, kept=MESSAGE)
    await record(ledger, session, fresh, Complete(), frees=True)
    await ledger.claim(session, a_claim(kept=MESSAGE))
    await ledger.claim(session, a_claim(body=b"other", kept=MESSAGE))
    assert await kept(postgres) == []


async def test_cancelling_lets_go_of_the_message(postgres: PostgresWorld, session: Session) -> None:
    fresh = await started(postgres.ledger, session, kept=MESSAGE)
    await record(postgres.ledger, session, fresh, Retry(fresh.now, "again"), frees=True)
    assert await postgres.ledger.cancel(LANE, "k")
    assert await kept(postgres) == []


def row(key: str, body: bytes = b"body", message: Kept | None = MESSAGE) -> ManifestRow:
    return ManifestRow(LANE, key, body.ljust(32, b"."), kept=message)


async def test_a_manifest_keeps_what_is_promised(postgres: PostgresWorld, session: Session) -> None:
    ledger = postgres.ledger
    await ledger.manifest("r", [row("a", message=None), row("b")])
    assert await kept(postgres) == ["b"]
    # Promised again before it was started: kept from then on.
    assert await ledger.manifest("r", [row("a"), row("a"), row("c"), row("b", b"other")]) == [
        Manifested.OPEN,
        Manifested.DUPLICATE,
        Manifested.NEW,
        Manifested.CONFLICT,
    ]
    assert await kept(postgres) == ["a", "b", "c"]
    fresh = await started(ledger, session, "a", kept=MESSAGE)
    await record(ledger, session, fresh, Complete(), "a", frees=True)
    await ledger.manifest("r", [row("a")])
    assert await kept(postgres) == ["b", "c"]


# --- seeking ---------------------------------------------------------------------------------------------


async def overdue(world: PostgresWorld, older_s: float = 60) -> dict[str, Overdue]:
    search = await Search.connect(Address.of(world.dsn))
    try:
        found: list[Overdue] = []
        async with aclosing(search.overdue([LANE], older_s)) as stretches:
            async for jobs, _, _ in stretches:
                found += jobs
        return {job.key: job for job in found}
    finally:
        await search.close()


async def test_overdue_is_what_nobody_works_on_although_it_is_due(
    postgres: PostgresWorld, session: Session
) -> None:
    ledger = postgres.ledger
    gone = await start(ledger, "two")
    await ledger.manifest("r", [row("promised")])
    await started(ledger, gone, "crashed", kept=MESSAGE)
    waits = await started(ledger, session, "waits")
    await record(ledger, session, waits, Retry(waits.now, "again"), "waits")
    done = await started(ledger, session, "done")
    await record(ledger, session, done, Complete(), "done")
    await postgres.grow_old(1)
    await postgres.sql(
        "update acklast.workers set lease_until = clock_timestamp() + interval '1 h' where id = $1",
        session.id,
    )
    await started(ledger, session, "works")
    later = await started(ledger, session, "later")
    await record(ledger, session, later, Retry(later.now + timedelta(hours=1), "again"), "later")
    await ledger.manifest("r", [row("young")])
    found = await overdue(postgres)
    assert {key: (job.state, job.kept) for key, job in found.items()} == {
        "promised": (State.QUEUED, True),
        "crashed": (State.CLAIMED, True),
        "waits": (State.WAITING, False),
    }
    assert {"young"} == (await overdue(postgres, 0)).keys() - found.keys()


async def test_what_was_sent_again_is_due_anew(postgres: PostgresWorld) -> None:
    await postgres.ledger.manifest("r", [row("a")])
    await postgres.grow_old(1)
    job = (await overdue(postgres))["a"]
    search = await Search.connect(Address.of(postgres.dsn))
    assert await search.take(job) == MESSAGE
    await search.close()
    assert await overdue(postgres) == {}


async def test_nothing_is_sent_of_a_job_that_has_moved(postgres: PostgresWorld) -> None:
    await postgres.ledger.manifest("r", [row("a")])
    await postgres.grow_old(1)
    job = (await overdue(postgres))["a"]
    await started(postgres.ledger, await start(postgres.ledger), "a")
    search = await Search.connect(Address.of(postgres.dsn))
    assert await search.take(job) is None
    await search.close()


async def test_messages_whose_jobs_have_gone_are_swept(postgres: PostgresWorld) -> None:
    await postgres.ledger.manifest("r", [row("a"), row("b")])
    await postgres.sql("update acklast.jobs set state = 'done' where key = 'a'")
    search = await Search.connect(Address.of(postgres.dsn))
    await search.sweep()
    await search.close()
    assert await kept(postgres) == ["b"]


async def test_one_searches_at_a_time(postgres: PostgresWorld) -> None:
    search = await Search.connect(Address.of(postgres.dsn))
    with pytest.raises(AlreadySearching):
        await Search.connect(Address.of(postgres.dsn))
    await search.close()
    await (await Search.connect(Address.of(postgres.dsn))).close()
