"""Unresolved jobs: a daemon finds out what became of them, under the lane's pacing, whatever dies then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.publish import Job
from harness import Broker
from harness.reconciled import PLAIN_TYPE
from harness.scripted import LANE, TYPE
from harness.site import RUN, Site, site

HAPPENED = {"say": True}
NOT = {"say": False}
WHY = ("--why", "the provider was down")


def lost(key: str, *found: dict[str, Any], effect: bool = False, **more: Any) -> Job:
    """A job whose first attempt ends without an answer; ``found``: what its reconcile says, one a call."""
    steps = [{"do": "unknown" if effect else "lost"}, {"do": "done"}]
    payload = {"steps": steps, "found": list(found)}
    return Job.json(LANE, key, payload, **{"type": TYPE, "run": RUN} | more)


@asynccontextmanager
async def place_of(directory: Path, broker: Broker, dsn: str, **settings: Any) -> AsyncIterator[Site]:
    """A site whose lane holds what is unknown."""
    app = "harness.reconciled:app"
    async with site(directory, broker.url, dsn, app=app, on_unknown="hold", **settings) as place:
        yield place


@pytest.fixture
async def sql(ledger_dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(ledger_dsn)
    yield connection
    await connection.close()


async def unresolved(place: Site, *jobs: Job) -> None:
    """Publish jobs, and wait until all of them are unresolved."""
    await place.promise(jobs)
    await place.publish(*jobs)
    for job in jobs:
        await place.reaches(job.key, State.UNRESOLVED)


async def test_what_is_found_becomes_of_the_job(
    broker: Broker, ledger_dsn: str, tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with place_of(tmp_path, broker, ledger_dsn) as place:
        with place.daemon() as daemon:
            jobs = [
                lost("happened", HAPPENED, effect=True),
                lost("result", {"say": {"ref": 7}}, effect=True),
                lost("not", NOT),
                lost("late", NOT),
                lost("nobody-knows", {"say": None}),
                lost("error", {"error": "secret"}),
                lost("plain", HAPPENED, type=PLAIN_TYPE),
            ]
            await unresolved(place, *jobs)
            await sql.execute("update acklast.jobs set deadline = now() - interval '1 s' where key = 'late'")
            told = await place.command("unresolved", "reconcile", "--run", RUN, *WHY, code=Exit.INCOMPLETE)
            counts = {name: told[name] for name in ("asked", "done", "retry", "dead", "unresolved", "open")}
            assert counts == {"asked": 7, "done": 2, "retry": 1, "dead": 1, "unresolved": 3, "open": 0}
            said = daemon.said("reconcile.found")
            assert {line["key"]: line["effect"] for line in said}["late"] == "dead"
            assert "secret" not in daemon.text()
            await place.reaches("not", State.DONE)
            assert len(place.log.effects("not")) == 1
        views = {job.key: await place.job(job.key) for job in jobs}
        states = {key: (view.state, view.reason) for key, view in views.items()}
        assert states == {
            "happened": (State.DONE, None),
            "result": (State.DONE, None),
            "not": (State.DONE, None),
            "late": (State.DEAD, "deadline_exceeded"),
            "nobody-knows": (State.UNRESOLVED, "no_answer"),
            "error": (State.UNRESOLVED, "no_answer"),
            "plain": (State.UNRESOLVED, "no_answer"),
        }
        assert views["result"].result == {"ref": 7}
        found = {key: view.history[1] for key, view in views.items()}
        assert {(one.outcome, one.fence, one.attempt) for one in found.values()} == {("reconciled", 2, 1)}
        assert {key: one.reason for key, one in found.items()} == {
            "happened": "happened",
            "result": "happened",
            "not": "not_happened",
            "late": "not_happened",
            "nobody-knows": "cannot_tell",
            "error": "exception:RuntimeError",
            "plain": "no_reconcile",
        }
        [redrive] = await sql.fetch("select * from acklast.redrives")
        assert (redrive["decided"], redrive["steps"], redrive["reason"]) == (True, [1], WHY[1])
        assert len(place.log.asked()) == 6
        entries = await place.command("audit", "--action", "unresolved.found")
        assert {entry["effect"]["effect"] for entry in entries["entries"]} == {
            "done",
            "retry",
            "dead",
            "unresolved",
        }
        letters = await sql.fetch(
            "select d.key, d.held, d.closed_as, d.fence = j.fence as same from acklast.dead_letters d"
            " join acklast.jobs j using (lane, key) order by key"
        )
        assert {row["key"]: (row["held"], row["closed_as"], row["same"]) for row in letters} == {
            "happened": (True, "done", True),
            "result": (True, "done", True),
            "not": (True, "redriven", False),
            "late": (False, None, True),
            "nobody-knows": (True, None, True),
            "error": (True, None, True),
            "plain": (True, None, True),
        }
