"""When daemons lived and what was paused, as the ledger tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from acklast.ledger.connect import Address
from acklast.ledger.controls import Kind, Target
from acklast.ledger.operate import Change, Operations, Operator, Wanted
from acklast.ledger.standing import read_standing
from ledger.worlds import PostgresWorld, start

pytestmark = pytest.mark.ledger
DUTY = Operator("duty", "duty@host")
PAUSE = Change("pause", Target.LANE, "mail", (Kind.PAUSE,), (Wanted(Kind.PAUSE),), "incident")
RESUME = Change("resume", Target.LANE, "mail", (Kind.PAUSE,), reason="over")


@pytest.fixture
async def operations(postgres: PostgresWorld, common_dsn: str) -> AsyncIterator[Operations]:
    await postgres.sql("truncate acklast.controls")
    made = await Operations.connect(Address.of(common_dsn))
    yield made
    made.close()


async def test_sessions_are_told_with_their_end_and_those_of_long_ago_are_not(
    operations: Operations, postgres: PostgresWorld
) -> None:
    names = ("gone", "closed", "killed", "live")
    gone, closed, killed, live = [await start(postgres.ledger, name) for name in names]
    for one in (gone, closed):
        await postgres.ledger.close_session(one)
    await postgres.sql("update acklast.workers set ended_at = now() - interval '2 h' where id = $1", gone.id)
    await postgres.run_out(killed)
    found = {one.session: one for one in (await read_standing(operations)).sessions}
    assert set(found) == {closed.id, killed.id, live.id}
    assert found[live.id].end is None
    [times] = await postgres.sql("select * from acklast.workers where id = $1", closed.id)
    assert (found[closed.id].begin, found[closed.id].end) == (times["started_at"], times["ended_at"])
    [times] = await postgres.sql("select * from acklast.workers where id = $1", killed.id)
    assert found[killed.id].end == times["lease_until"] - timedelta(seconds=times["lease_s"])


async def test_a_pause_is_told_when_it_is_over(operations: Operations) -> None:
    await operations.change(PAUSE, DUTY)
    await operations.change(RESUME, DUTY)
    paused, resumed = await operations.history("mail", None, 2)
    [stop] = (await read_standing(operations)).stops
    assert (stop.target, stop.name, stop.begin, stop.end) == (Target.LANE, "mail", paused.at, resumed.at)


async def test_a_pause_that_is_in_force_has_its_own_end_or_none(operations: Operations) -> None:
    await operations.change(PAUSE, DUTY)
    shared = Change(
        "pause", Target.BUDGET, "api", (Kind.PAUSE,), (Wanted(Kind.PAUSE),), "x", timedelta(seconds=60)
    )
    await operations.change(shared, DUTY)
    mail, api = sorted((await read_standing(operations)).stops, key=lambda stop: stop.target, reverse=True)
    assert (mail.name, mail.end) == ("mail", None)
    assert (api.name, api.target) == ("api", Target.BUDGET)
    assert api.begin is not None
    assert api.end is not None
    assert 59 < (api.end - api.begin).total_seconds() <= 60
