"""The counts of jobs are those of the jobs: after any change, in every snapshot, whoever sums them meanwhile.

That holds at the end of every other test here too: ``PostgresWorld.close`` looks.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from acklast.errors import ClaimLost
from acklast.ledger import job_counts
from acklast.ledger import migrate as migrations
from acklast.ledger.api import Fresh, Ledger, ManifestRow, Session, State
from acklast.ledger.backlog import read_backlog
from acklast.ledger.connect import Address, Connection
from acklast.ledger.erase import erase
from acklast.ledger.job_counts import count_all, sum_up, worth_a_sum
from acklast.ledger.migrate import migrate, shipped
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.postgres import PostgresLedger
from acklast.ledger.prune import prune
from acklast.ledger.retention import Dues, Keep
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry, Verdict
from harness import Databases
from ledger.worlds import (
    LANE,
    PostgresWorld,
    a_claim,
    a_record,
    elsewhere,
    miscounted,
    record,
    start,
    started,
)

WHO = Operator("day-shift", "anna@desk")


@pytest.fixture
async def connection(postgres: PostgresWorld) -> AsyncIterator[Connection]:
    made = await Address.of(postgres.dsn).open()
    yield made
    made.terminate()


@pytest.fixture
async def session(postgres: PostgresWorld) -> Session:
    return await start(postgres.ledger)


async def rows(postgres: PostgresWorld) -> int:
    [row] = await postgres.sql("select count(*) from acklast.job_counts")
    count: int = row[0]
    return count


async def told(postgres: PostgresWorld) -> dict[str, int]:
    """Jobs by state, by the counts alone."""
    found = {one.state.value: one.jobs for one in (await postgres.backlog()).depths}
    [over] = await postgres.sql(
        "select sum(done)::int as done, sum(cancelled)::int as cancelled from (select done, cancelled from"
        " acklast.job_counts union all select done, cancelled from acklast.job_counts_over) as c"
    )
    return found | {name: jobs for name, jobs in over.items() if jobs}


# --- any history -----------------------------------------------------------------------------------------


class History:
    """Some daemons and people at work on a few jobs, as chance has it."""

    def __init__(self, world: PostgresWorld, ledgers: Sequence[Ledger], seed: int) -> None:
        self.world, self.ledgers, self.dice = world, ledgers, random.Random(seed)
        self.sessions: dict[Ledger, Session] = {}
        self.held: list[tuple[Ledger, Session, str, Fresh]] = []

    async def step(self) -> None:
        kinds = [
            self.claims,
            self.claims,
            self.ends,
            self.ends,
            self.a_transaction,
            self.cancels,
            self.promises,
        ]
        await self.dice.choice([*kinds, self.a_daemon_goes, self.prunes, self.a_hand, self.comes_due])()

    def key(self) -> str:
        return f"k{self.dice.randrange(12)}"

    async def claims(self) -> None:
        ledger = self.dice.choice(self.ledgers)
        if ledger not in self.sessions:
            self.sessions[ledger] = await start(ledger, f"i{self.ledgers.index(ledger)}")
        session, now = self.sessions[ledger], await self.world.now()
        keys = {self.key() for _ in range(self.dice.randrange(1, 6))}
        asked = [
            a_claim(
                key,
                run=self.dice.choice([None, "r", "s"]),
                priority=self.dice.choice([None, 0, 4, 9]),
                not_before=self.dice.choice([None, now + timedelta(seconds=30)]),
            )
            for key in keys
        ]
        answers = await asyncio.gather(*(ledger.claim(session, one) for one in asked))
        self.held += [
            (ledger, session, one.key, answer)
            for one, answer in zip(asked, answers, strict=True)
            if isinstance(answer, Fresh)
        ]

    def taken(self) -> tuple[Ledger, Session, str, Fresh]:
        return self.held.pop(self.dice.randrange(len(self.held)))

    async def ends(self) -> None:
        some = [self.taken() for _ in range(min(len(self.held), self.dice.randrange(1, 4)))]
        at = await self.world.now() + timedelta(seconds=self.dice.randrange(60))
        verdicts: list[Verdict] = [
            *(Complete(1), Complete(None), Retry(at, "busy"), Bury("refused")),
            *(Hold("timeout"), GiveBack("drain", ambiguous=False)),
        ]
        await asyncio.gather(
            *(
                record(ledger, session, fresh, self.dice.choice(verdicts), key)
                for ledger, session, key, fresh in some
            )
        )

    async def a_transaction(self) -> None:
        if not self.held:
            return
        ledger, session, key, fresh = self.taken()
        with suppress(ClaimLost):
            async with ledger.transaction(session, a_record(fresh, Complete(1), key)):
                pass

    async def cancels(self) -> None:
        await self.world.ledger.cancel(LANE, self.key())

    async def promises(self) -> None:
        now = await self.world.now()
        promised = [
            ManifestRow(
                LANE,
                self.key(),
                b"body".ljust(32, b"."),
                priority=self.dice.choice([None, 9]),
                not_before=self.dice.choice([None, now + timedelta(minutes=1)]),
            )
            for _ in range(3)
        ]
        await self.world.ledger.manifest(f"m{self.dice.randrange(3)}", promised)

    async def a_daemon_goes(self) -> None:
        if self.sessions:
            session = self.sessions.pop(self.dice.choice([*self.sessions]))
            await self.world.run_out(session)

    async def prunes(self) -> None:
        async for _ in prune(Address.of(self.world.dsn), {LANE: Keep(0, 0, 0)}, Dues(), dry_run=False):
            pass

    async def a_hand(self) -> None:
        """Somebody at a prompt, who knows nothing of counts."""
        change = self.dice.choice(
            [
                "update acklast.jobs set state = 'queued', fence = fence + 1 where state = 'dead'",
                "update acklast.jobs set run = 'other' where key = 'k3'",
                "update acklast.jobs set result = null",
                "delete from acklast.jobs where key = 'k5'",
            ]
        )
        await self.world.sql(change)

    async def comes_due(self) -> None:
        await self.world.wait_s(20)


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 9))])
async def test_the_counts_hold_after_every_step_of_any_history(
    postgres: PostgresWorld, connection: Connection, seed: int
) -> None:
    history = History(postgres, [postgres.ledger, await postgres.another()], seed)
    for number in range(30):
        await history.step()
        assert await miscounted(postgres) == [], f"after step {number}"
        if number % 5 == 0:
            assert await sum_up(connection)
            assert await miscounted(postgres) == [], f"summed after step {number}"


async def test_every_snapshot_is_true_while_jobs_go_on_and_others_sum(
    postgres: PostgresWorld, connection: Connection, session: Session
) -> None:
    ledger, over = postgres.ledger, asyncio.Event()

    async def job(number: int) -> None:
        fresh = await started(ledger, session, f"k{number}", run=f"r{number % 3}")
        await record(ledger, session, fresh, Complete(1), f"k{number}")

    async def jobs() -> None:
        for first in range(0, 600, 50):
            await asyncio.gather(*(job(number) for number in range(first, first + 50)))
        over.set()

    async def sums() -> int:
        done = 0
        while not over.is_set():
            done += await sum_up(connection)
        return done

    async def looks() -> int:
        seen = 0
        while not over.is_set():
            assert await miscounted(postgres) == []
            seen += 1
        return seen

    _, summed, seen = await asyncio.gather(jobs(), sums(), looks())
    assert summed > 0
    assert seen > 0
    assert await told(postgres) == {"done": 600}


# --- kinds of change -------------------------------------------------------------------------------------


async def test_a_flush_adds_few_rows_whatever_is_in_it(postgres: PostgresWorld, session: Session) -> None:
    ledger = postgres.ledger
    await started(ledger, session, "warm")
    before = await rows(postgres)
    claims = [a_claim(f"k{number}", run=f"r{number % 2}") for number in range(100)]
    await asyncio.gather(*(ledger.claim(session, one) for one in claims))
    assert await rows(postgres) - before <= 2 * 3, "two runs, and hardly more than one flush"


async def test_what_changes_nothing_adds_nothing(postgres: PostgresWorld, session: Session) -> None:
    fresh = await started(postgres.ledger, session)
    await record(postgres.ledger, session, fresh, Complete({"id": 1}))
    before = await rows(postgres)
    await postgres.sql("update acklast.jobs set settled_at = clock_timestamp(), result = null")
    assert await rows(postgres) == before


async def test_what_is_rolled_back_was_never_counted(postgres: PostgresWorld, connection: Connection) -> None:
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("insert into acklast.jobs (lane, key, state) values ('l', 'k', 'queued')")
    await transaction.rollback()
    assert (await postgres.backlog()).depths == ()


async def test_an_emptied_table_has_no_jobs(
    postgres: PostgresWorld, session: Session, connection: Connection
) -> None:
    await record(postgres.ledger, session, await started(postgres.ledger, session), Complete(1))
    await started(postgres.ledger, session, "other")
    await sum_up(connection)
    await postgres.sql("truncate acklast.jobs")
    assert await told(postgres) == {}


async def test_erasing_a_key_changes_no_count(postgres: PostgresWorld, session: Session) -> None:
    await record(postgres.ledger, session, await started(postgres.ledger, session), Bury("refused"))
    before = await told(postgres)
    operations = await Operations.connect(Address.of(postgres.dsn))
    await erase(operations, LANE, "k", "asked", WHO, dry_run=False)
    operations.close()
    assert await told(postgres) == before == {"dead": 1}


# --- sums ------------------------------------------------------------------------------------------------


async def test_a_sum_keeps_what_is_open_what_may_start_and_the_minutes(
    postgres: PostgresWorld, session: Session, connection: Connection
) -> None:
    ledger = postgres.ledger
    for number in range(20):
        fresh = await started(ledger, session, f"k{number}", run="r")
        verdict = Complete(1) if number % 2 else Retry(await postgres.now(), "busy")
        await record(ledger, session, fresh, verdict, f"k{number}")
    await postgres.wait_s(60)
    before = await postgres.backlog()
    assert (before.rows.added, before.rows.summed) == (await rows(postgres), 0)
    await sum_up(connection)
    after = await postgres.backlog()
    assert sorted(after.depths, key=repr) == sorted(before.depths, key=repr)
    assert (after.oldest, after.runs) == (before.oldest, before.runs)
    assert sorted(after.pace, key=repr) == sorted(before.pace, key=repr)
    assert after.rows.added == 0
    assert after.rows.summed <= 5


async def test_a_run_that_is_over_is_read_no_more_and_comes_back_with_a_job(
    postgres: PostgresWorld, session: Session, connection: Connection
) -> None:
    ledger = postgres.ledger
    await record(ledger, session, await started(ledger, session, "a", run="r"), Complete(1), "a")
    await sum_up(connection)
    await postgres.sql("update acklast.job_counts set minute = minute - interval '2 hours'")
    await sum_up(connection)
    assert await rows(postgres) == 0
    await started(ledger, session, "b", run="r")
    [run] = (await postgres.backlog()).runs
    assert run.counts == {State.DONE: 1, State.CLAIMED: 1}


async def test_what_retention_removed_leaves_no_row(
    postgres: PostgresWorld, session: Session, connection: Connection
) -> None:
    await record(postgres.ledger, session, await started(postgres.ledger, session), Complete(1))
    await sum_up(connection)
    await postgres.grow_old(3)
    async for _ in prune(Address.of(postgres.dsn), {LANE: Keep(86_400, 86_400, 0)}, Dues(), dry_run=False):
        pass
    await sum_up(connection)
    assert await postgres.sql("select from acklast.job_counts_over") == []
    assert await told(postgres) == {}


async def test_of_two_sums_at_once_one_does_nothing_and_waits_for_nobody(
    postgres: PostgresWorld, connection: Connection, session: Session
) -> None:
    await started(postgres.ledger, session)
    other = await Address.of(postgres.dsn).open()
    try:
        async with other.transaction():
            assert await sum_up(other)
            assert not await sum_up(connection)
            # Nor does it hold up a flush.
            await started(postgres.ledger, session, "meanwhile")
    finally:
        other.terminate()


@pytest.mark.parametrize(
    ("added", "summed", "worth"), [(0, 0, False), (500, 0, False), (501, 0, True), (5_000, 10_000, False)]
)
def test_a_sum_is_worth_its_writes(added: int, summed: int, worth: bool) -> None:
    assert worth_a_sum(added, summed) is worth


# --- the jobs from before --------------------------------------------------------------------------------

_OLDER = """
insert into acklast.jobs (lane, key, state, run, available_at)
select 'l' || n % 3, 'k' || n, (array['queued', 'claimed', 'waiting', 'done', 'dead'])[1 + n % 5],
       case when n % 2 = 0 then 'r' || n % 7 end, case when n % 5 = 2 then now() + n * interval '1 s' end
from generate_series(1, 2000) n
"""


@pytest.fixture
async def older(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresWorld]:
    """A ledger with jobs from before there were counts, just migrated and not counted yet."""
    dsn = databases.create()
    known = shipped()

    async def later(_: Connection) -> None:
        """Nothing is counted yet."""

    with monkeypatch.context() as uncounted:
        uncounted.setattr(job_counts, "count_older", later)
        uncounted.setattr(migrations, "shipped", lambda: [one for one in known if one.number < 16])
        await migrate(dsn)
        connection = await Address.of(dsn).open()
        await connection.execute(_OLDER)
        connection.terminate()
        uncounted.setattr(migrations, "shipped", lambda: known)
        assert "0016_job_counts" in await migrate(dsn)
    world = PostgresWorld(dsn, await PostgresLedger.connect(dsn))
    yield world
    await world.close()
    databases.drop(dsn)


async def test_nothing_is_told_before_all_is_counted(older: PostgresWorld) -> None:
    await older.sql("update acklast.jobs set state = 'done' where state = 'claimed'")
    found = await older.backlog()
    assert not found.complete
    assert (found.depths, found.runs) == ((), ())
    assert await migrate(older.dsn) == []
    found = await older.backlog()
    assert found.complete
    assert found.jobs() == 1200


async def test_jobs_that_change_while_they_are_counted_are_counted_once(older: PostgresWorld) -> None:
    connection = await Address.of(older.dsn).open()
    held = "update acklast.jobs set state = 'done' where state = 'claimed' and key < 'k5'"
    async with elsewhere(older, held, "delete from acklast.jobs where key < 'k15'"):
        await older.sql("update acklast.jobs set state = 'dead' where state = 'waiting' and key > 'k5'")
        await count_all(connection)
        await sum_up(connection)
    connection.terminate()
    assert await miscounted(older) == []


async def test_counting_again_adds_nothing_and_makes_right_what_is_wrong(
    postgres: PostgresWorld, session: Session, connection: Connection
) -> None:
    await started(postgres.ledger, session)
    before = await rows(postgres)
    await asyncio.gather(count_all(connection))
    assert await rows(postgres) == before
    await postgres.sql("delete from acklast.job_counts")
    assert await miscounted(postgres) != []
    await count_all(connection)
    assert await miscounted(postgres) == []


async def test_two_that_count_at_once_count_once(older: PostgresWorld) -> None:
    both = [await Address.of(older.dsn).open() for _ in range(2)]
    await asyncio.gather(*(count_all(one) for one in both))
    for one in both:
        one.terminate()
    assert await miscounted(older) == []


async def test_what_an_older_program_takes_in_is_counted(older: PostgresWorld) -> None:
    """It knows nothing of the priority, nor of counts."""
    await migrate(older.dsn)
    await older.sql(
        "insert into acklast.jobs (lane, key, state, fingerprint, type, run, deadline)"
        " values ('l', 'new', 'queued', null, null, 'r', null)"
    )
    assert await miscounted(older) == []
    operations = await Operations.connect(Address.of(older.dsn))
    assert (await read_backlog(operations)).jobs("l", "r", State.QUEUED) == 1
    operations.close()
