"""The daemons as the ledger knows them, and the one that is asked to drain: durable, once, with its audit."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from acklast.ledger.audit import Asked, entries
from acklast.ledger.connect import Address
from acklast.ledger.controls import DrainAsked, Report
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.workers import State, WorkerView, ask_to_drain, read_workers
from harness import eventually
from harness.controls import Ear
from ledger.worlds import PostgresWorld

pytestmark = pytest.mark.ledger
DUTY, RELIEF = Operator("duty", "duty@host"), Operator("relief", "root@host")
MAIL, RENT = (Report(lane, 10, 1, 2, 30, 5.0, None, None, None, "open") for lane in ("mail", "rent"))


@pytest.fixture
async def operations(postgres: PostgresWorld, common_dsn: str) -> AsyncIterator[Operations]:
    await postgres.sql("truncate acklast.lane_reports")
    made = await Operations.connect(Address.of(common_dsn))
    yield made
    made.close()


async def opened(postgres: PostgresWorld, name: str) -> int:
    session = await postgres.ledger.open_session(f"{name}:id", worker=f"{name}@h:1", version="7", lease_s=60)
    return session.id


async def only(operations: Operations) -> WorkerView:
    [view] = await read_workers(operations, ended=True)
    return view


async def test_a_daemon_hears_that_it_is_asked_and_no_other_does(
    postgres: PostgresWorld, operations: Operations, ear: Ear
) -> None:
    one, two = await opened(postgres, "one"), await opened(postgres, "two")
    assert (await ear.wire.read([one])).drain is None
    view = (await read_workers(operations, ended=False))[0]
    assert (view.session, view.instance, view.worker) == (one, "one", "one@h:1")
    assert await ask_to_drain(operations, view, DUTY, "new version")
    await eventually(lambda: ear.told, what="the daemons are told")
    assert (await ear.wire.read([one])).drain == DrainAsked("duty", "new version")
    assert (await ear.wire.read([two])).drain is None
    assert (await ear.wire.read()).drain is None


async def test_what_was_asked_of_a_session_holds_for_the_process_when_it_has_another(
    postgres: PostgresWorld, operations: Operations, ear: Ear
) -> None:
    first = await opened(postgres, "one")
    assert await ask_to_drain(operations, await only(operations), DUTY, "new version")
    second = await opened(postgres, "one")
    assert (await ear.wire.read([first, second])).drain == DrainAsked("duty", "new version")
    # The process after this one knows of the second alone.
    assert (await ear.wire.read([second])).drain is None


async def test_it_is_asked_once_with_one_entry_in_the_audit(
    postgres: PostgresWorld, operations: Operations
) -> None:
    session = await opened(postgres, "one")
    view = await only(operations)
    assert await ask_to_drain(operations, view, DUTY, "new version")
    assert not await ask_to_drain(operations, view, RELIEF, "again")
    assert (await only(operations)).drain_by == "duty"
    [entry] = await entries(operations, Asked(action="workers.drain"), 10)
    assert (entry.operator, entry.reason) == ("duty", "new version")
    assert entry.effect == {"session": session, "worker": "one@h:1"}


async def test_one_that_has_ended_is_not_asked(postgres: PostgresWorld, operations: Operations) -> None:
    await opened(postgres, "one")
    view = await only(operations)
    await postgres.sql("update acklast.workers set ended_at = clock_timestamp()")
    assert not await ask_to_drain(operations, view, DUTY, "new version")
    assert await entries(operations, Asked(action="workers"), 10) == []
    assert (await only(operations)).state is State.ENDED
    assert await read_workers(operations, ended=False) == []


async def test_it_tells_what_it_has_and_that_it_drains(
    postgres: PostgresWorld, operations: Operations, ear: Ear
) -> None:
    session = await opened(postgres, "one")
    view = await only(operations)
    assert (view.state, view.lanes, view.in_flight, view.held) == (State.LIVE, (), None, None)
    await ear.wire.report(session, 0, [RENT, MAIL])
    view = await only(operations)
    assert (view.lanes, view.in_flight, view.held) == (("mail", "rent"), 2, 4)
    await ear.wire.report(session, 0, [MAIL], draining=True)
    first = await only(operations)
    assert first.state is State.DRAINING
    await ear.wire.report(session, 0, [RENT], draining=True)
    assert (await only(operations)).draining_at == first.draining_at


async def test_a_renewal_is_a_heartbeat(postgres: PostgresWorld, operations: Operations) -> None:
    session = await postgres.ledger.open_session("one:id", worker="one@h:1", version="7", lease_s=60)
    before = await only(operations)
    assert 0 < before.lease_left_s <= 60
    assert await postgres.ledger.renew(session)
    after = await only(operations)
    assert before.started_at <= before.heartbeat_at < after.heartbeat_at
