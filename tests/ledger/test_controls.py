"""What operators ask, as the ledger keeps it: one truth for every daemon, and a history that is complete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from acklast.ledger.connect import Address
from acklast.ledger.controls import Kind, Report, Target
from acklast.ledger.operate import Change, Operations, Operator, Wanted
from acklast.ledger.standing import read_standing
from harness import eventually
from harness.controls import Ear
from ledger.worlds import PostgresWorld, start

pytestmark = pytest.mark.ledger
DUTY, RELIEF = Operator("duty", "duty@host"), Operator("relief", "root@host")
PAUSE = Change("pause", Target.LANE, "mail", (Kind.PAUSE,), (Wanted(Kind.PAUSE),), "incident")
RESUME = Change("resume", Target.LANE, "mail", (Kind.PAUSE,), reason="over")
REPORT = Report("mail", 10, 1, 2, 30, 5.0, 7, 3, 1.5, "quiet", 60.0)


def lower(count: int, period_s: float = 60.0, until: datetime | timedelta | None = None) -> Change:
    wanted = (Wanted(Kind.QUOTA, count, period_s),)
    return Change("set", Target.BUDGET, "api", (Kind.QUOTA,), wanted, "kind", until)


@pytest.fixture
async def operations(postgres: PostgresWorld, common_dsn: str) -> AsyncIterator[Operations]:
    await postgres.sql("truncate acklast.controls, acklast.lane_reports")
    made = await Operations.connect(Address.of(common_dsn))
    yield made
    made.close()


def kinds(before: list[dict[str, Any]]) -> list[str]:
    return [one["control"] for one in before]


async def test_a_change_is_heard_and_read_by_daemons_with_its_number(
    operations: Operations, ear: Ear
) -> None:
    assert (await ear.wire.read()).controls == ()
    number = await operations.change(PAUSE, DUTY)
    await eventually(lambda: ear.told)
    read = await ear.wire.read()
    assert read.heard == number
    [control] = read.controls
    assert (control.target, control.name, control.kind) == (Target.LANE, "mail", Kind.PAUSE)
    assert (control.actor, control.reason, control.left_s) == ("duty", "incident", None)


async def test_the_history_says_who_when_why_and_what_was_before_and_after(operations: Operations) -> None:
    began = datetime.now(UTC) - timedelta(seconds=5)
    await operations.change(PAUSE, DUTY)
    await operations.change(lower(5), RELIEF)
    await operations.change(lower(3), DUTY)
    await operations.change(RESUME, RELIEF)
    paused, five, three, resumed = await operations.history(None, None, 50)
    assert [one.action for one in (paused, five, three, resumed)] == ["pause", "set", "set", "resume"]
    assert (paused.actor, paused.login, paused.reason) == ("duty", "duty@host", "incident")
    assert (resumed.actor, resumed.login, resumed.reason) == ("relief", "root@host", "over")
    assert paused.at > began
    assert (paused.before, kinds(paused.after)) == ([], ["pause"])
    assert (kinds(resumed.before), resumed.after) == (["pause"], [])
    assert (three.before[0]["amount"], three.after[0]["amount"]) == (5, 3)
    assert three.before[0]["actor"] == "relief"


async def test_a_lanes_history_has_its_budget_and_nothing_of_others(operations: Operations) -> None:
    await operations.change(PAUSE, DUTY)
    await operations.change(lower(5), DUTY)
    await operations.change(Change("resume", Target.LANE, "other", (Kind.PAUSE,)), DUTY)
    other = Change("pause", Target.LANE, "other", (Kind.PAUSE,), (Wanted(Kind.PAUSE),), "x")
    await operations.change(other, DUTY)
    assert [one.name for one in await operations.history("mail", "api", 50)] == ["mail", "api"]
    assert [one.name for one in await operations.history("mail", None, 50)] == ["mail"]
    assert [one.name for one in await operations.history(None, None, 1)] == ["other"]


async def test_ending_what_is_not_there_changes_nothing_and_is_no_history(
    operations: Operations, ear: Ear
) -> None:
    await ear.wire.read()
    assert await operations.change(RESUME, DUTY) is None
    assert await operations.history(None, None, 50) == []
    assert ear.told == 0


async def test_a_change_replaces_its_own_kind_and_leaves_the_others(operations: Operations, ear: Ear) -> None:
    await operations.change(PAUSE, DUTY)
    wanted = (Wanted(Kind.CONCURRENCY, 2),)
    await operations.change(Change("set", Target.LANE, "mail", (Kind.CONCURRENCY,), wanted, "x"), DUTY)
    await operations.change(PAUSE, RELIEF)
    controls = (await ear.wire.read()).controls
    assert [(one.kind, one.actor) for one in controls] == [(Kind.CONCURRENCY, "duty"), (Kind.PAUSE, "relief")]


async def test_what_is_over_is_not_in_force_and_goes_with_the_next_change(
    operations: Operations, ear: Ear, postgres: PostgresWorld
) -> None:
    await operations.change(lower(5, until=timedelta(seconds=60)), DUTY)
    [control] = (await ear.wire.read()).controls
    assert control.left_s is not None
    assert 50 < control.left_s <= 60
    await postgres.sql("update acklast.controls set until = clock_timestamp()")
    assert (await ear.wire.read()).controls == ()
    assert (await read_standing(operations)).controls == ()
    await operations.change(PAUSE, DUTY)
    assert (await postgres.sql("select count(*) from acklast.controls"))[0][0] == 1


async def test_a_time_is_taken_as_it_was_given(operations: Operations, ear: Ear) -> None:
    until = datetime.now(UTC) + timedelta(hours=3)
    await operations.change(lower(5, until=until), DUTY)
    assert (await ear.wire.read()).controls[0].until == until


async def test_changes_at_the_same_time_come_one_after_another(
    operations: Operations, common_dsn: str, ear: Ear
) -> None:
    desks = [await Operations.connect(Address.of(common_dsn)) for _ in range(4)]
    try:
        changes = (desk.change(lower(count), DUTY) for count, desk in enumerate(desks, start=1))
        numbers = await asyncio.gather(*changes)
    finally:
        for desk in desks:
            desk.close()
    history = await operations.history(None, None, 50)
    assert sorted(entry.id for entry in history) == sorted(number for number in numbers if number)
    for earlier, later in pairwise(history):
        assert later.before == earlier.after, "each saw what the one before it had left"
    [control] = (await ear.wire.read()).controls
    assert control.amount == history[-1].after[0]["amount"]


async def test_a_lost_connection_is_told_for_a_notice_may_have_been_missed(
    ear: Ear, postgres: PostgresWorld, operations: Operations
) -> None:
    await ear.wire.read()
    await postgres.sql(
        "select pg_terminate_backend(l.pid) from pg_stat_activity l"
        " where l.query like '%lanes.%' and l.pid <> pg_backend_pid() and l.datname = current_database()"
    )
    await eventually(lambda: ear.told)
    assert (await ear.wire.read()).controls == ()


async def test_what_a_daemon_reports_is_read_while_its_session_lives(
    operations: Operations, ear: Ear, postgres: PostgresWorld
) -> None:
    session = await start(postgres.ledger)
    await ear.wire.report(session.id, 7, [REPORT])
    await ear.wire.report(session.id, 8, [REPORT])
    standing = await read_standing(operations)
    [daemon] = standing.lanes["mail"]
    assert (daemon.session, daemon.live, daemon.heard, daemon.in_flight) == (session.id, True, 8, 1)
    assert daemon.until is not None
    assert 50 < (daemon.until - standing.now).total_seconds() <= 60
    assert [(one.heard, one.lanes) for one in await operations.followers()] == [(8, ("mail",))]
    await postgres.run_out(session)
    [silent] = (await read_standing(operations)).lanes["mail"]
    assert not silent.live
    assert await operations.followers() == []


async def test_a_session_that_has_ended_says_nothing_and_its_row_goes(
    operations: Operations, ear: Ear, postgres: PostgresWorld
) -> None:
    first, second = await start(postgres.ledger, "one"), await start(postgres.ledger, "two")
    await ear.wire.report(first.id, 0, [REPORT])
    await postgres.ledger.close_session(first)
    assert (await read_standing(operations)).lanes == {}
    await ear.wire.report(second.id, 0, [REPORT])
    rows = await postgres.sql("select session from acklast.lane_reports")
    assert [row["session"] for row in rows] == [second.id]


async def test_a_daemon_that_never_reported_follows_nothing(
    operations: Operations, postgres: PostgresWorld
) -> None:
    await start(postgres.ledger)
    assert [one.heard for one in await operations.followers()] == [None]
