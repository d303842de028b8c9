"""What is to be done, in numbers: every store says of its jobs what they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest

from acklast.ledger.about import RunAbout
from acklast.ledger.api import Ledger, ManifestRow, Session, State
from acklast.ledger.backlog import (
    Backlog,
    Depth,
    Pace,
    due_bucket,
    ended_lately,
    read_backlog,
)
from acklast.ledger.connect import Address
from acklast.ledger.operate import Operations
from acklast.ledger.run_status import Status
from acklast.outcome import Bury, Complete, Hold, Retry, Verdict
from acklast.telemetry.metric import MOST, OTHER
from ledger.worlds import LANE, PostgresWorld, World, a_letter, record, start, started

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def depths(backlog: Backlog) -> dict[tuple[str, State, str | None], int]:
    """In the one lane."""
    assert {one.lane for one in backlog.depths} <= {LANE}
    return {(one.priority, one.state, one.run): one.jobs for one in backlog.depths}


async def test_nothing_is_to_be_done_in_an_empty_ledger(world: World) -> None:
    found = await world.backlog()
    assert (found.depths, found.oldest, found.pace, found.dead, found.runs) == ((), (), (), (), ())
    assert found.complete


async def test_every_state_is_counted_by_run(world: World, ledger: Ledger, session: Session) -> None:
    verdicts: list[Verdict] = [Bury("refused"), Hold("timeout"), Complete(1)]
    for number, verdict in enumerate(verdicts):
        fresh = await started(ledger, session, f"k{number}", run="r")
        await record(ledger, session, fresh, verdict, f"k{number}")
    at = await world.now() + timedelta(hours=1)
    await record(ledger, session, await started(ledger, session, "later"), Retry(at, "busy"), "later")
    await started(ledger, session, "now", run="r")
    await ledger.manifest("m", [ManifestRow(LANE, "promised", b"f")], RunAbout(deadline=at))
    found = await world.backlog()
    assert depths(found) == {
        ("normal", State.DEAD, "r"): 1,
        ("normal", State.UNRESOLVED, "r"): 1,
        ("normal", State.CLAIMED, "r"): 1,
        ("normal", State.WAITING, None): 1,
        ("normal", State.QUEUED, "m"): 1,
    }
    assert found.jobs(LANE, "r", State.DEAD, State.UNRESOLVED) == 2
    promised, other = found.runs
    assert (promised.run, promised.manifest, promised.deadline) == ("m", 1, at)
    assert promised.status(found.at) is Status.OPEN
    assert other.counts == {State.DEAD: 1, State.UNRESOLVED: 1, State.CLAIMED: 1, State.DONE: 1}
    assert other.open == 1
    assert {one.run for one in found.pace} == {"r", None}
    assert sum(one.done for one in found.pace) == 1
    assert sum(one.dead for one in found.pace) == 2
    assert sum(one.claimed for one in found.pace) == 5
    assert {(one.reason, one.letters) for one in found.dead} == {("refused", 1), ("timeout", 1)}


async def test_thousands_of_open_runs_are_read_at_once(postgres: PostgresWorld) -> None:
    """Though the ledger's statistics know of none: held each against each they take a quarter of a minute."""
    await postgres.sql(
        "insert into acklast.job_counts (lane, run, priority, minute, started)"
        " select 'a', '', '', now(), 1 from generate_series(1, 500)"
    )
    await postgres.sql("analyze acklast.job_counts")
    await postgres.sql(
        "insert into acklast.job_counts (lane, run, priority, queued, dead)"
        " select 'a', 'r' || n, 'normal', sign(n), 1 from generate_series(0, 6000) as n"
    )
    began = monotonic()
    found = await postgres.backlog()
    took_s = monotonic() - began
    await postgres.sql("truncate acklast.job_counts")  # they are of no jobs
    assert took_s < 5
    assert len(found.runs) == 6000
    assert (found.jobs("a", None, State.QUEUED), found.jobs("a", None, State.DEAD)) == (6000, 6001)


async def test_what_is_left_of_runs_that_are_over_is_told_together(
    world: World, ledger: Ledger, session: Session
) -> None:
    for run in ("r", "s", None):
        fresh = await started(ledger, session, f"of-{run}", run=run)
        await record(ledger, session, fresh, Bury("refused"), f"of-{run}")
    found = await world.backlog()
    assert depths(found) == {("normal", State.DEAD, None): 3}
    assert found.runs == ()


async def test_a_cancelled_run_is_open_while_a_job_of_it_runs(
    world: World, ledger: Ledger, session: Session
) -> None:
    await ledger.manifest("r", [ManifestRow(LANE, key, b"f") for key in "ab"])
    await started(ledger, session, "c", run="r")
    await world.cancel_run("r")
    found = await world.backlog()
    [run] = found.runs
    assert run.counts == {State.CLAIMED: 1, State.CANCELLED: 2}
    assert run.status(found.at) is Status.CANCELLING


@pytest.mark.parametrize(
    ("priority", "said"), [(None, "normal"), (0, "low"), (3, "low"), (4, "normal"), (5, "high"), (9, "high")]
)
async def test_the_class_is_that_of_the_message(
    world: World, ledger: Ledger, session: Session, priority: int | None, said: str
) -> None:
    await ledger.manifest("r", [ManifestRow(LANE, "a", b"f", priority=priority)])
    await started(ledger, session, "b", priority=priority)
    assert depths(await world.backlog()) == {(said, State.QUEUED, "r"): 1, (said, State.CLAIMED, None): 1}


async def test_the_class_is_known_from_the_first_message_that_tells_it(
    world: World, ledger: Ledger, session: Session
) -> None:
    await ledger.manifest("r", [ManifestRow(LANE, "k", b"body".ljust(32, b"."))])
    fresh = await started(ledger, session, priority=9)
    assert depths(await world.backlog()) == {("high", State.CLAIMED, "r"): 1}
    await record(ledger, session, fresh, Retry(await world.now(), "busy"))
    await started(ledger, session, priority=0)
    assert depths(await world.backlog()) == {("high", State.CLAIMED, "r"): 1}


# --- the oldest ------------------------------------------------------------------------------------------


async def test_the_oldest_is_the_one_that_may_start_for_longest(
    world: World, ledger: Ledger, session: Session
) -> None:
    now = await world.now()
    soon, later = ManifestRow(LANE, "a", b"f"), ManifestRow(LANE, "b", b"f", not_before=now + timedelta(1))
    await ledger.manifest("r", [soon, later])
    fresh = await started(ledger, session, "c", priority=9)
    await record(ledger, session, fresh, Retry(now + timedelta(days=2), "busy"), "c")
    assert all(one.since >= now for one in (await world.backlog()).oldest)
    await world.grow_old(3)
    found = {one.priority: found_s(await world.now(), one.since) for one in (await world.backlog()).oldest}
    assert found == pytest.approx({"normal": 3 * 86_400, "high": 86_400}, abs=60)


async def test_what_waited_for_its_time_waits_for_it_no_more_when_it_has_come(
    world: World, ledger: Ledger, session: Session
) -> None:
    now = await world.now()
    rows = [
        ManifestRow(LANE, key, b"f", not_before=now + timedelta(days)) for key, days in (("b", 1), ("c", 9))
    ]
    await ledger.manifest("r", [ManifestRow(LANE, "a", b"f"), *rows])
    again = await started(ledger, session, "d")
    await record(ledger, session, again, Retry(now + timedelta(days=2), "busy"), "d")
    assert (await world.backlog()).not_due(LANE) == 3
    await world.grow_old(3)
    found = await world.backlog()
    assert sum(one.jobs for one in found.oldest) == 3
    assert found.not_due(LANE) == 1


def found_s(now: datetime, since: datetime) -> float:
    return (now - since).total_seconds()


async def test_what_has_started_is_not_old(world: World, ledger: Ledger, session: Session) -> None:
    fresh = await started(ledger, session)
    await world.grow_old(1)
    assert (await world.backlog()).oldest == ()
    session = await start(ledger)
    await record(ledger, session, fresh, Bury("refused"))
    assert (await world.backlog()).oldest == ()


@pytest.mark.parametrize(
    ("after_s", "bucket_s"), [(0.0, 0), (0.000_001, 15), (14.9, 15), (15.0, 15), (15.1, 30)]
)
async def test_a_job_counts_as_startable_from_the_next_quarter_of_a_minute_on(
    postgres: PostgresWorld, after_s: float, bucket_s: int
) -> None:
    at, due = NOON + timedelta(seconds=after_s), NOON + timedelta(seconds=bucket_s)
    assert due_bucket(at) == due
    [row] = await postgres.sql("select acklast.job_due('waiting', $1, null, null)", at)
    assert row[0] == due


# --- dead letters ----------------------------------------------------------------------------------------


async def letters_of(world: World) -> dict[tuple[str, str], int]:
    return {(one.lane, one.reason): one.letters for one in (await world.backlog()).dead}


async def strays(ledger: Ledger, *places: tuple[str, str]) -> None:
    for number, (lane, reason) in enumerate(places):
        letter = replace(a_letter(None, reason, digest=b"%d" % number), lane=lane)
        await ledger.bury_stray(letter, worker="one:1", version="1")


async def test_lanes_that_publishers_made_up_are_one(world: World, ledger: Ledger, session: Session) -> None:
    await started(ledger, session)
    made_up = [(f"lane{number}", "unrouted") for number in range(5)]
    await strays(ledger, *made_up, ("", "unrouted"), (LANE, "missing_key"))
    assert await letters_of(world) == {("", "unrouted"): 6, (LANE, "missing_key"): 1}


async def test_a_lane_has_its_commonest_reasons_and_the_others_as_one(
    world: World, ledger: Ledger, session: Session
) -> None:
    await started(ledger, session)
    reasons = [f"reason_{number:03}" for number in range(MOST + 2)]
    strayed = [(LANE, reason) for reason in (*reasons, *reasons[2:])]
    await strays(ledger, *strayed, *((f"lane of {reason}", reason) for reason in reasons))
    found = await letters_of(world)
    assert found.pop((LANE, OTHER)) == 2
    assert found.pop(("", OTHER)) == 2
    named = {(LANE, reason): 2 for reason in reasons[2:]} | {("", reason): 1 for reason in reasons[:MOST]}
    assert found == named


# --- the values ------------------------------------------------------------------------------------------


def test_depths_add_up() -> None:
    two = (Depth("a", "high", State.QUEUED, None, 2), Depth("b", "low", State.DEAD, "r", 3))
    both = Backlog(NOON, depths=two)
    assert (both.jobs(), both.jobs("a"), both.jobs(None, "r"), both.jobs("a", "r")) == (5, 2, 3, 0)


def test_of_the_minute_before_this_one_counts_what_is_within_sixty_seconds() -> None:
    at = NOON.replace(second=15)
    minutes = [NOON, NOON - timedelta(minutes=1), NOON - timedelta(minutes=2)]
    pace = [Pace("a", "r", minute, 30, 1, 10) for minute in minutes]
    assert ended_lately([*pace, Pace("a", None, NOON, 7, 0, 0)], at) == {"r": 40 + 30}


# --- by which rows it is read ----------------------------------------------------------------------------


REPORT = """
insert into acklast.lane_reports (session, lane, heard, concurrency, in_flight, held, started, window_s,
                                  state)
values ($1, $2, 0, 1, 0, 0, 0, 1, 'open')
"""


@pytest.fixture
async def operations(postgres: PostgresWorld) -> AsyncIterator[Operations]:
    made = await Operations.connect(Address.of(postgres.dsn))
    yield made
    made.close()


async def test_workers_and_redrives_are_told_from_their_tables(
    postgres: PostgresWorld, operations: Operations
) -> None:
    session = await start(postgres.ledger)
    await postgres.sql(REPORT, session.id, LANE)
    redrive = "insert into acklast.redrives (lane, selection, letters, actor, login)"
    await postgres.sql(f"{redrive} values ($1, '{{}}', 1, 'a', 'a')", LANE)
    found = await read_backlog(operations)
    assert [(one.lane, one.state, one.workers) for one in found.workers] == [(LANE, "open", 1)]
    assert found.redrives == {"planned": 1}
    await postgres.sql("delete from acklast.lane_reports")


async def test_a_lane_is_known_by_the_daemon_that_has_it_and_by_who_asks(
    postgres: PostgresWorld, operations: Operations
) -> None:
    session = await start(postgres.ledger)
    await strays(postgres.ledger, ("served", "a"), ("configured", "a"), ("made.up", "a"))
    await postgres.sql(REPORT, session.id, "served")
    found = await read_backlog(operations, ["configured"])
    assert {(one.lane, one.letters) for one in found.dead} == {("served", 1), ("configured", 1), ("", 1)}
    await postgres.sql("delete from acklast.lane_reports")
