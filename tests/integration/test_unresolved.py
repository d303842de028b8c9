"""Unresolved jobs: a daemon finds out what became of them, under the lane's pacing, whatever dies then."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.faults import QUESTION_POINTS
from acklast.ledger.api import State
from acklast_topology.publish import Job
from harness import Broker, eventually
from harness.daemon import Fault
from harness.reconciled import PLAIN_TYPE, lost
from harness.scripted import LANE
from harness.site import RUN, Site, site

HAPPENED = {"say": True}
NOT = {"say": False}
WHY = ("--why", "the provider was down")


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
            assert all(line["run"] == RUN and line["fence"] > 0 and line["attempt"] >= 1 for line in said)
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


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=pytest.mark.soak) for point in QUESTION_POINTS if point != "question_answered"]
    + ["question_answered"],
)
async def test_a_daemon_that_dies_leaves_its_question_to_the_next(
    broker: Broker, ledger_dsn: str, tmp_path: Path, point: str
) -> None:
    async with place_of(tmp_path, broker, ledger_dsn) as place:
        with place.daemon() as daemon:
            await unresolved(place, lost("k", HAPPENED, effect=True))
            assert await daemon.drained() == Exit.OK
        with place.daemon(fault=Fault(point)) as daemon:
            await daemon.ready()
            await place.command("unresolved", "reconcile", "k", *WHY, "--no-wait")
            await daemon.dies_at_fault()
        with place.daemon() as daemon:
            await daemon.ready()
            view = await place.reaches("k", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert len(place.log.asked()) == {"question_answered": 2}.get(point, 1)
        assert [one.outcome for one in view.history] == ["unknown", "reconciled"]
        assert len(place.log.effects()) == 1


@pytest.mark.soak
async def test_two_daemons_ask_each_question_once(broker: Broker, ledger_dsn: str, tmp_path: Path) -> None:
    async with place_of(tmp_path, broker, ledger_dsn) as place:
        with place.daemon("one") as one, place.daemon("two") as two:
            jobs = [lost(f"k{number}", HAPPENED if number % 2 else NOT) for number in range(20)]
            await unresolved(place, *jobs)
            told = await place.command("unresolved", "reconcile", "--lane", LANE, *WHY)
            assert (told["done"], told["retry"], told["open"], told["unserved"]) == (10, 10, 0, [])
            for job in jobs:
                await place.reaches(job.key, State.DONE)
            assert [await daemon.drained() for daemon in (one, two)] == [Exit.OK, Exit.OK]
        assert sorted(asked.key for asked in place.log.asked()) == sorted(job.key for job in jobs)
        assert sorted(effect.key for effect in place.log.effects()) == sorted(job.key for job in jobs[::2])


@pytest.mark.soak
async def test_an_answer_under_a_lost_lease_changes_nothing(
    broker: Broker, ledger_dsn: str, tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with place_of(tmp_path, broker, ledger_dsn) as place:
        with place.daemon("one") as one:
            await unresolved(place, lost("k", {"say": {"late": True}, "gate": "go"}, HAPPENED))
            await place.command("unresolved", "reconcile", "k", *WHY, "--no-wait")
            await eventually(place.log.asked, what="the first daemon asks")
            await sql.execute("update acklast.workers set lease_until = clock_timestamp()")
            with place.daemon("two") as two:
                view = await place.reaches("k", State.DONE)
                place.open_gate("go")
                await one.says("reconcile.found", effect="superseded")
                assert await two.drained() == Exit.OK
        again = await place.job("k")
        assert (again.result, again.fence, len(again.history)) == (None, view.fence, 2)
        assert len(place.log.asked()) == 2


@pytest.mark.soak
async def test_who_decides_while_a_daemon_asks_is_ahead_of_it(
    broker: Broker, ledger_dsn: str, tmp_path: Path
) -> None:
    async with place_of(tmp_path, broker, ledger_dsn) as place:
        with place.daemon() as daemon:
            await unresolved(place, lost("k", {"say": True, "gate": "go"}))
            await place.command("unresolved", "reconcile", "k", *WHY, "--no-wait")
            await eventually(place.log.asked, what="the daemon asks")
            await place.command("unresolved", "resolve", "k", "--as", "dead", "--why", "nobody needs it")
            place.open_gate("go")
            await daemon.says("reconcile.found", found="happened", effect="superseded")
            assert await daemon.drained() == Exit.OK
        view = await place.job("k")
        assert (view.state, view.fence, len(view.history)) == (State.DEAD, 2, 1)
        told = await place.command("unresolved", "reconcile", "k", *WHY, code=Exit.INCOMPLETE)
        assert told["refused"] == {"not_unresolved": 1}


@pytest.mark.soak
async def test_a_question_is_answered_once_the_ledger_is_there_again(
    broker: Broker, ledger_dsn: str, tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    name = await sql.fetchval("select current_database()")
    admin = await asyncpg.connect(ledger_dsn.rsplit("/", 1)[0] + "/postgres")
    async with place_of(tmp_path, broker, ledger_dsn) as place:
        with place.daemon() as daemon:
            await unresolved(place, lost("k", {"say": True, "gate": "go"}))
            await place.command("unresolved", "reconcile", "k", *WHY, "--no-wait")
            await eventually(place.log.asked, what="the daemon asks")
            await admin.execute(f'alter database "{name}" allow_connections false')
            cut = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1"
            await admin.fetch(cut, name)
            place.open_gate("go")
            await daemon.says("ledger.unavailable")
            await admin.execute(f'alter database "{name}" allow_connections true')
            await admin.close()
            await place.reaches("k", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert len(place.log.asked()) == 1


@pytest.mark.soak
async def test_a_pause_holds_questions_too(broker: Broker, ledger_dsn: str, tmp_path: Path) -> None:
    async with place_of(tmp_path, broker, ledger_dsn, quota="100 per 1 s") as place:
        with place.daemon() as daemon:
            await unresolved(place, lost("lane", HAPPENED), lost("budget", HAPPENED))
            for target in ((LANE,), ("--budget", "api")):
                key = "budget" if "--budget" in target else "lane"
                await place.command("lanes", "pause", *target, "--reason", "quiet")
                ask = ("unresolved", "reconcile", key, *WHY, "--timeout", "2s")
                assert (await place.command(*ask, code=Exit.INCOMPLETE))["open"] == 1
                assert not place.log.asked(key)
                await place.command("lanes", "resume", *target, "--reason", "loud")
                await place.reaches(key, State.DONE)
            assert await daemon.drained() == Exit.OK


@pytest.mark.parametrize("answers", [pytest.param(True, marks=pytest.mark.soak), False], ids=str)
async def test_a_drain_waits_for_what_is_asked_as_for_a_handler(
    broker: Broker, ledger_dsn: str, tmp_path: Path, answers: bool
) -> None:
    async with place_of(tmp_path, broker, ledger_dsn, drain_s=30 if answers else 1) as place:
        with place.daemon() as daemon:
            await unresolved(place, lost("k", {"say": True, "gate": "go"}, HAPPENED))
            await place.command("unresolved", "reconcile", "k", *WHY, "--no-wait")
            await eventually(place.log.asked, what="the daemon asks")
            daemon.signal(signal.SIGTERM)
            await daemon.says("drain.started")
            if answers:
                place.open_gate("go")
            assert await daemon.ended() == (Exit.OK if answers else Exit.CUT)
        view = await place.job("k")
        assert (view.state is State.DONE) == answers
        with place.daemon() as daemon:
            await daemon.ready()
            view = await place.reaches("k", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert [one.outcome for one in view.history] == ["unknown", "reconciled"]
        assert len(place.log.asked()) == (1 if answers else 2)


@pytest.mark.soak
async def test_questions_are_calls_at_the_provider_s_meter(
    broker: Broker, ledger_dsn: str, tmp_path: Path
) -> None:
    async with place_of(tmp_path, broker, ledger_dsn, quota="3 per 1 s") as place:
        with place.daemon() as daemon:
            jobs = [lost(f"k{number}", NOT) for number in range(4)]
            await unresolved(place, *jobs)
            assert await daemon.drained() == Exit.OK
        with place.daemon("two") as daemon:  # without a job in sight it is to get permits for these
            told = await place.command("unresolved", "reconcile", "--lane", LANE, *WHY)
            assert told["retry"] == 4
            for job in jobs:
                await place.reaches(job.key, State.DONE)
            assert await daemon.drained() == Exit.OK
        times = sorted(call.at for call in (*place.log.asked(), *place.log.calls()))
        assert len(times) == 12
        assert max(sum(at <= other < at + 1.0 for other in times) for at in times) <= 3


async def test_a_retry_that_somebody_decides_on_has_one_effect_more(
    broker: Broker, ledger_dsn: str, tmp_path: Path
) -> None:
    async with place_of(tmp_path, broker, ledger_dsn) as place:
        with place.daemon() as daemon:
            binary = {"bytes": bytearray(b"\0\xff")}
            await unresolved(place, lost("k", NOT, effect=True, headers=binary))
            told = await place.command("unresolved", "resolve", "k", "--as", "retry", *WHY)
            assert (told["changed"], len(told["redrives"])) == (1, 1)
            view = await place.reaches("k", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert (len(place.log.calls("k")), len(place.log.effects("k"))) == (2, 2)
        assert [one.outcome for one in view.history] == ["unknown", "done"]
        assert (await place.run()).counts == {State.DONE: 1}
        assert (await place.command("unresolved", "list"))["unresolved"] == []
