"""Retention in Postgres alone: batches, locks, crashes between them, and how little is looked at."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import asyncpg
import pytest

from acklast.errors import Exit, LedgerUnavailable
from acklast.ledger import expired, manifest, prune
from acklast.ledger.api import Decided, Fresh, ManifestRow, RunView, State
from acklast.ledger.retention import AlreadyPruning, Pruned
from acklast.outcome import Complete
from acklast_topology.items import Manifested
from ledger.keeping import DAY, KEEPS, pruned, whole_pass
from ledger.worlds import LANE, PostgresWorld, a_claim, elsewhere, record, start, started

MANY = 1_730
_FILL = """
insert into acklast.jobs (lane, key, state, fence, attempts, claims, recorded_at, run)
select 'cleanup', to_char(n, 'FM000000'), 'done', 1, 1, 1, now() - interval '31 days', 'r' || n % 3
from generate_series(1, $1::int) n
"""
_PROMISED = "insert into acklast.runs (run, manifest) select run, count(*) from acklast.jobs group by run"


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many stretches, and several batches in each, without a million rows."""
    monkeypatch.setattr(prune, "STRETCH", 8)
    monkeypatch.setattr(prune, "BATCH", 50)


@pytest.fixture
async def many(postgres: PostgresWorld, _small: None) -> PostgresWorld:
    """Three runs, all of their jobs long done."""
    await postgres.sql(_FILL, MANY)
    await postgres.sql(_PROMISED)
    return postgres


async def runs(world: PostgresWorld) -> list[RunView]:
    found = [await world.ledger.run(f"r{n}") for n in range(3)]
    return [run for run in found if run is not None]


async def left(world: PostgresWorld) -> int:
    count: int = (await world.sql("select count(*) from acklast.jobs"))[0][0]
    return count


# --- batches -----------------------------------------------------------------------------------------


async def test_all_goes_in_small_batches(many: PostgresWorld) -> None:
    ledger, steps = await many.another(), []
    async with aclosing(ledger.prune(KEEPS)) as taken:
        async for step in taken:
            steps.append(step)
            run = await many.ledger.run("r1")
            assert run is not None
            assert run.balanced, step
    assert sum((step.pruned for step in steps), Pruned()) == Pruned(done=MANY)
    assert max(step.pruned.done for step in steps) == 50
    assert len(steps) > MANY / 50
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    assert steps[-1].at == steps[-1].of > 0
    assert await left(many) == 0


async def test_a_pass_that_was_stopped_goes_on_where_the_rows_are(many: PostgresWorld) -> None:
    ledger, removed = await many.another(), Pruned()
    async with aclosing(ledger.prune(KEEPS)) as steps:
        async for step in steps:
            removed += step.pruned
            if removed.done >= 200:
                break
    assert await left(many) == MANY - removed.done
    assert all(run.balanced for run in await runs(many))
    assert removed + await whole_pass(ledger) == Pruned(done=MANY)
    assert [run.total for run in await runs(many)] == [run.manifest for run in await runs(many)]


async def test_a_lost_connection_ends_the_pass_and_loses_no_count(many: PostgresWorld) -> None:
    ledger = await many.another()
    async with aclosing(ledger.prune(KEEPS)) as steps:
        await anext(steps)
        await many.sql("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
        with pytest.raises(LedgerUnavailable):
            await anext(steps)
    assert 0 < await left(many) < MANY
    assert all(run.balanced for run in await runs(many))
    assert sum(run.pruned[State.DONE] for run in await runs(many)) == MANY - await left(many)
    await whole_pass(await many.another())
    assert await left(many) == 0


async def test_a_statement_that_fails_half_way_leaves_nothing_behind(many: PostgresWorld) -> None:
    await many.sql("alter table acklast.run_tallies add constraint full_up check (jobs < 40)")
    try:
        with pytest.raises(asyncpg.CheckViolationError):
            await pruned(many)
    finally:
        await many.sql("alter table acklast.run_tallies drop constraint full_up")
    assert all(run.balanced for run in await runs(many))
    assert sum(run.pruned.get(State.DONE, 0) for run in await runs(many)) == MANY - await left(many)


# --- others at work ----------------------------------------------------------------------------------


async def test_a_locked_row_is_left_for_the_next_pass(many: PostgresWorld) -> None:
    async with elsewhere(many, "select from acklast.jobs where key = '000007' for no key update"):
        assert await pruned(many) == Pruned(done=MANY - 1)
    assert await pruned(many) == Pruned(done=1)
    assert all(run.balanced for run in await runs(many))


async def test_a_row_that_changes_meanwhile_is_not_removed(postgres: PostgresWorld) -> None:
    await postgres.sql(_FILL, 3)
    async with elsewhere(postgres, "update acklast.jobs set state = 'queued' where key = '000002'"):
        assert await pruned(postgres) == Pruned(done=2)
    assert await pruned(postgres) == Pruned()
    assert await left(postgres) == 1


async def test_two_passes_at_once_do_not_fight(many: PostgresWorld) -> None:
    one, two = await many.another(), await many.another()
    async with aclosing(one.prune(KEEPS)) as steps:
        await anext(steps)
        with pytest.raises(AlreadyPruning) as caught:
            await whole_pass(two)
        assert caught.value.exit is Exit.INCOMPLETE
        assert (await whole_pass(two, dry_run=True)).done > 0
    assert (await whole_pass(two)).done > 0


async def test_a_key_that_comes_again_while_it_is_removed_is_known_until_it_is_gone(
    postgres: PostgresWorld,
) -> None:
    session = await start(postgres.ledger)
    await record(postgres.ledger, session, await started(postgres.ledger, session), Complete())
    async with elsewhere(postgres, "delete from acklast.jobs"):
        answer = await asyncio.wait_for(postgres.ledger.claim(session, a_claim()), 30)
        assert isinstance(answer, Decided)
        assert answer.state is State.DONE
    again = await postgres.ledger.claim(session, a_claim(body=b"new"))
    assert isinstance(again, Fresh)
    assert again.fence == 1


async def test_a_job_that_is_pruned_under_a_manifest_is_promised_anew(postgres: PostgresWorld) -> None:
    await postgres.ledger.manifest("r1", [ManifestRow(LANE, "k", b"f"), ManifestRow(LANE, "l", b"f")])
    connection = await asyncpg.connect(postgres.dsn, connection_class=_PrunesBeforeTheLook)
    connection.dsn = postgres.dsn
    try:
        rows = [ManifestRow(LANE, "k", b"g"), ManifestRow(LANE, "l", b"f"), ManifestRow(LANE, "m", b"f")]
        answers = await manifest.promise(connection, "r2", rows)
    finally:
        await connection.close()
    assert answers == [Manifested.NEW, Manifested.OPEN, Manifested.NEW]
    run = await postgres.ledger.run("r2")
    assert run is not None
    assert (run.manifest, run.total) == (2, 2)


class _PrunesBeforeTheLook(asyncpg.Connection):
    """A connection beside which another removes job k after the insert has run into it."""

    dsn = ""

    async def fetch(self, query: str, *args: Any, **more: Any) -> Any:
        if self.dsn and "pg_temp.acklast_manifest m join" in query:
            other, self.dsn = await asyncpg.connect(self.dsn), ""
            await other.execute("delete from acklast.jobs where key = 'k'")
            await other.close()
        return await super().fetch(query, *args, **more)


# --- what is looked at -------------------------------------------------------------------------------


async def test_a_stretch_is_read_by_its_pages(postgres: PostgresWorld) -> None:
    await postgres.sql(_FILL, 200)
    settings = "".join(f"set {name} = '{value}';" for name, value in prune.SETTINGS.items())
    connection = await asyncpg.connect(postgres.dsn)
    try:
        await connection.execute(settings)
        for table in ("jobs", "letters", "attempts"):
            sql = getattr(expired, f"REMOVE_{table.upper()}")
            await connection.execute(f"prepare p (text[], float8[], float8[], tid, tid, bigint) as {sql}")
            plan = await connection.fetch(
                "explain execute p ('{cleanup}', '{1}', '{1}', '(0,0)', '(256,0)', 500)"
            )
            await connection.execute("deallocate p")
            text = "\n".join(row[0] for row in plan)
            assert "Tid Range Scan" in text
            assert "Seq Scan" not in text
    finally:
        await connection.close()


async def test_what_is_not_due_is_not_looked_at_again(many: PostgresWorld) -> None:
    ledger = await many.another()
    await many.sql("update acklast.jobs set recorded_at = now() - interval '1 day'")
    assert await whole_pass(ledger) == Pruned()
    await many.grow_old(60)  # behind its back: no clock jumps like that
    assert await whole_pass(ledger) == Pruned()
    assert await whole_pass(ledger, {**KEEPS, "other": KEEPS[LANE]}) == Pruned(done=MANY)


async def test_a_table_that_was_rewritten_is_looked_at_again(many: PostgresWorld) -> None:
    ledger = await many.another()
    await many.sql("update acklast.jobs set recorded_at = now() - interval '1 day'")
    assert await whole_pass(ledger) == Pruned()
    await many.grow_old(60)
    await many.sql("vacuum full acklast.jobs")
    assert await whole_pass(ledger) == Pruned(done=MANY)


async def test_attempts_that_have_lost_their_job_go(postgres: PostgresWorld) -> None:
    await postgres.sql(
        "insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, ended_at, worker, version)"
        " select 'cleanup', key, 1, 1, 'crashed', '', now() - make_interval(days => days), 'w', '1'"
        " from (values ('a', 61), ('b', 61), ('c', 59)) as v (key, days)"
    )
    await postgres.sql("insert into acklast.jobs (lane, key, state) values ('cleanup', 'b', 'waiting')")
    assert await pruned(postgres, dry_run=True) == Pruned(attempts=1)
    assert await pruned(postgres) == Pruned(attempts=1)
    assert [row[0] for row in await postgres.sql("select key from acklast.attempts")] == ["b", "c"]


async def test_an_emptied_letter_holds_nothing_of_its_message(postgres: PostgresWorld) -> None:
    await postgres.sql(
        "insert into acklast.dead_letters (lane, reason, failure, headers, properties, payload,"
        "                                  first_failure_at, last_failure_at, worker, version)"
        " select 'cleanup', 'r', 'f', '{\"a\": 1}', '{\"as_sent_base64\": \"YQ==\", \"priority\": 3}',"
        "        'body', at, at, 'w', '1'"
        " from (select now() - make_interval(secs => $1)) as t (at)",
        41 * DAY,
    )
    assert await pruned(postgres) == Pruned(payloads=1)
    [row] = await postgres.sql("select payload, headers, properties, reason from acklast.dead_letters")
    assert tuple(row) == (None, "{}", '{"priority": 3}', "r")
