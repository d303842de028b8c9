"""What is to be done, in numbers: what is read says what the jobs' own rows say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from acklast.ledger.about import RunAbout
from acklast.ledger.api import ManifestRow, Session, State
from acklast.ledger.backlog import Backlog, Depth, read_backlog
from acklast.ledger.connect import Address
from acklast.ledger.operate import Operations
from acklast.ledger.run_status import Status
from acklast.outcome import Bury, Complete, Hold, Retry, Verdict
from ledger.worlds import LANE, PostgresWorld, record, start, started


@pytest.fixture
async def operations(postgres: PostgresWorld) -> AsyncIterator[Operations]:
    made = await Operations.connect(Address.of(postgres.dsn))
    yield made
    made.close()


@pytest.fixture
async def session(postgres: PostgresWorld) -> Session:
    return await start(postgres.ledger)


def depths(backlog: Backlog) -> dict[tuple[State, str | None], int]:
    """Of normal priority, in the one lane."""
    assert {(one.lane, one.priority) for one in backlog.depths} <= {(LANE, "normal")}
    return {(one.state, one.run): one.jobs for one in backlog.depths}


async def test_nothing_is_to_be_done_in_an_empty_ledger(operations: Operations) -> None:
    found = await read_backlog(operations)
    assert found == Backlog(found.at, redrives={})


async def test_every_state_is_counted_by_run(
    postgres: PostgresWorld, operations: Operations, session: Session
) -> None:
    ledger = postgres.ledger
    verdicts: list[Verdict] = [Bury("refused"), Hold("timeout"), Complete(1)]
    for number, verdict in enumerate(verdicts):
        fresh = await started(ledger, session, f"k{number}", run="r")
        await record(ledger, session, fresh, verdict, f"k{number}")
    at = await postgres.now() + timedelta(hours=1)
    await record(ledger, session, await started(ledger, session, "later"), Retry(at, "busy"), "later")
    await started(ledger, session, "now", run="r")
    await ledger.manifest("m", [ManifestRow(LANE, "promised", b"f")], RunAbout(deadline=at))
    found = await read_backlog(operations)
    assert depths(found) == {
        (State.DEAD, "r"): 1,
        (State.UNRESOLVED, "r"): 1,
        (State.CLAIMED, "r"): 1,
        (State.WAITING, None): 1,
        (State.QUEUED, "m"): 1,
    }
    assert found.jobs(LANE, "r", State.DEAD, State.UNRESOLVED) == 2
    promised, other = found.runs
    assert (promised.run, promised.manifest, promised.deadline) == ("m", 1, at)
    assert promised.status(found.at) is Status.OPEN
    assert other.counts == {State.DEAD: 1, State.UNRESOLVED: 1, State.CLAIMED: 1, State.DONE: 1}
    assert (other.open, other.ended_lately) == (1, 3)
    assert sum(one.done for one in found.pace) == 1
    assert sum(one.dead for one in found.pace) == 1
    assert {(one.reason, one.letters) for one in found.dead} == {("refused", 1), ("timeout", 1)}


async def test_depths_add_up(operations: Operations) -> None:
    found = await read_backlog(operations)
    two = [Depth("a", "high", State.QUEUED, None, 2), Depth("b", "low", State.DEAD, "r", 3)]
    both = Backlog(found.at, depths=tuple(two))
    assert (both.jobs(), both.jobs("a"), both.jobs(None, "r"), both.jobs("a", "r")) == (5, 2, 3, 0)
