"""A daemon prunes beside its work: nothing of the work is lost, and a drain does not wait for it."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from harness import Broker, eventually
from harness.scripted import LANE
from harness.site import scripted, site

OLD = 5_000
WORK = 400
EVERY = {"ACKLAST__LEDGER__PRUNE_EVERY_S": "1"}
_FILL = """
insert into acklast.jobs (lane, key, state, fence, attempts, claims, recorded_at, run)
select $1, 'old-' || n, 'done', 1, 1, 1, now() - interval '31 days', 'old' from generate_series(1, $2::int) n
"""


async def fill(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(_FILL, LANE, OLD)
    await connection.close()


@pytest.mark.soak
async def test_lanes_run_on_while_a_daemon_prunes(tmp_path: Path, broker: Broker, ledger_dsn: str) -> None:
    await fill(ledger_dsn)
    async with site(tmp_path, broker.url, ledger_dsn, concurrency=20) as place:
        jobs = [scripted(f"job-{n}", "effect") for n in range(WORK)]
        waiting = scripted("held", {"do": "wait", "gate": "go"})
        await place.promise([*jobs, waiting])
        with place.daemon(env=EVERY) as daemon:
            await daemon.ready()
            await place.publish(waiting, *jobs)
            told = await daemon.says("prune.done")
            assert (told["done"], told["level"]) == (OLD, "info")
            assert (await place.job("held")).state in (State.QUEUED, State.CLAIMED)
            place.open_gate("go")
            await place.quiet()
            assert await daemon.drained() == Exit.OK
        run, old = await place.run(), await place.ledger.run("old")
        assert run.counts == {State.DONE: WORK + 1}
        assert len(place.log.effects()) == WORK + 1
        assert old is not None
        assert old.pruned == old.counts == {State.DONE: OLD}


async def test_a_drain_ends_a_pass_at_once(tmp_path: Path, broker: Broker, ledger_dsn: str) -> None:
    await fill(ledger_dsn)
    async with site(tmp_path, broker.url, ledger_dsn) as place:
        # Whoever holds this keeps the first batch from its commit.
        holder = await asyncpg.connect(ledger_dsn)
        try:
            await holder.execute("begin")
            await holder.execute("insert into acklast.run_tallies values ('old', 'done', 0, 0)")
            with place.daemon(env=EVERY) as daemon:
                await daemon.ready()
                waits = "select exists (select from pg_locks where not granted)"
                await eventually(lambda: holder.fetchval(waits), what="the pass is at work")
                assert await daemon.drained() == Exit.OK
                receipt = daemon.said("drain.receipt")[0]
                assert receipt["seconds"] < receipt["deadline_s"], "it did not wait for the pass"
                assert daemon.said("prune.done") == []
            await holder.execute("rollback")
        finally:
            await holder.close()
        assert await place.ledger.run("old") is not None
