"""One publish becomes a job in each of two lanes, and what happens to one is nothing to the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

from acklast.config import load
from acklast.errors import Exit
from acklast.ledger.api import JobView, State
from acklast_topology.contract import Reason
from acklast_topology.declare import apply
from acklast_topology.job import Job
from harness import Broker, eventually
from harness.fanned import FAN_OUT, SIDE, TABLES
from harness.scripted import LANE
from harness.site import RUN, Site, site

NewPlace: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]


@pytest.fixture
def new_place(broker: Broker, ledger_dsn: str, tmp_path: Path) -> NewPlace:
    """Makes the test's site. Once, on the usual receiver: the broker makes the copies."""
    return partial(
        site, tmp_path, broker.url, ledger_dsn, app="harness.fanned:app", more=TABLES, custody="ledger"
    )


def fanned(key: str, work: list[str], side: list[str]) -> Job:
    return Job.json(FAN_OUT, key, {LANE: work, SIDE: side}, run=RUN)


async def both(place: Site, key: str, work: State, side: State) -> tuple[JobView, JobView]:
    """The jobs of a key in both lanes, once each is in its state."""

    async def there() -> list[JobView] | None:
        views = sorted(await place.ledger.jobs(key), key=lambda view: view.lane != LANE)
        return list(views) if [view.state for view in views] == [work, side] else None

    at_work, aside = await eventually(there, 30, f"{key} is {work} in one lane and {side} in the other")
    return at_work, aside


async def states(place: Site, key: str) -> dict[str, State]:
    """Of each lane that knows the key."""
    return {view.lane: view.state for view in await place.ledger.jobs(key)}


def calls(place: Site) -> list[str]:
    return sorted(call.key for call in place.log.calls())


async def test_one_publish_is_a_job_in_each_lane_with_its_own_account(new_place: NewPlace) -> None:
    async with new_place() as place:
        with place.daemon() as daemon:
            await daemon.ready()
            retried = fanned("retried", ["transient", "transient", "done"], ["done"])
            await place.publish(retried, fanned("dead", ["done"], ["permanent"]))
            at_work, aside = await both(place, "retried", State.DONE, State.DONE)
            assert (at_work.attempts, aside.attempts, aside.fence) == (3, 1, 1)
            assert [one.outcome for one in at_work.history] == ["transient", "transient", "done"]
            assert aside.history == ()
            at_work, aside = await both(place, "dead", State.DONE, State.DEAD)
            assert (at_work.letters, [letter.lane for letter in aside.letters]) == ((), [SIDE])
            await eventually(place.is_drained)
            # The same publish again is a duplicate in each of them.
            await place.publish(retried)
            await place.publish(fanned("last", ["done"], ["done"]))
            await both(place, "last", State.DONE, State.DONE)
            await eventually(place.is_drained)
        once = ["side/dead", "side/last", "side/retried", "work/dead", "work/last"]
        assert calls(place) == [*once, *["work/retried"] * 3]
        run = await place.run()
        assert run.counts == {State.DONE: 5, State.DEAD: 1}


async def test_a_cancel_ends_the_job_of_each_lane_by_its_own_state(new_place: NewPlace) -> None:
    async with new_place(concurrency=1) as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.publish(fanned("held", ["wait"], ["done"]))
            await both(place, "held", State.CLAIMED, State.DONE)
            await place.publish(fanned("next", ["done"], ["transient", "wait"]))
            await eventually(lambda: "side/next" in calls(place))
            await place.command("runs", "cancel", RUN)
            place.open_gate("go")
            await both(place, "held", State.DONE, State.DONE)
            await eventually(lambda: states(place, "next"), what="the ledger has heard of the one that waits")
            assert (await states(place, "next"))[LANE] is State.CANCELLED
        assert "work/next" not in calls(place)


async def test_what_came_before_the_fan_out_was_there_is_sent_on_to_each_lane(new_place: NewPlace) -> None:
    async with new_place() as place:
        await place.publish(fanned("early", ["done"], ["done"]))
        assert await place.ready() == {"acklast.v1.unrouted": 1}
        with place.daemon() as daemon:
            await daemon.says("unrouted.sent_on", lane=FAN_OUT, key="early")
            await both(place, "early", State.DONE, State.DONE)
            await eventually(place.is_drained)
        assert calls(place) == ["side/early", "work/early"]


async def test_a_fan_out_that_nothing_configures_is_a_typo(new_place: NewPlace) -> None:
    async with new_place(more="[lanes.side]") as place:
        await place.publish(fanned("lost", ["done"], ["done"]))
        with place.daemon() as daemon:
            await daemon.says("letter.filed", key="lost", reason=Reason.UNROUTED, lane=FAN_OUT)


async def test_the_outbox_takes_a_fan_outs_name(new_place: NewPlace, ledger_dsn: str) -> None:
    async with new_place() as place:
        with place.daemon() as daemon:
            await daemon.ready()
            connection = await asyncpg.connect(ledger_dsn)
            enqueue = "select acklast.enqueue($1, 'promised', $2::jsonb, run => $3)"
            await connection.execute(enqueue, FAN_OUT, '{"work": ["done"], "side": ["done"]}', RUN)
            await both(place, "promised", State.DONE, State.DONE)
            await eventually(lambda: is_empty(connection))
            await connection.close()
        assert calls(place) == ["side/promised", "work/promised"]


async def is_empty(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    return not await connection.fetchval("select count(*) from acklast.outbox")


async def test_a_daemon_of_one_lane_has_the_others_copies_kept(new_place: NewPlace) -> None:
    """It declares the queues and bindings of both: what comes before the other daemon is not lost to it."""
    async with new_place() as place:
        one = load(place.directory / "acklast.toml", {"HOME": str(place.directory)}).only([LANE])
        assert all(finding.fit for finding in await apply(place.connection, one.plan()))
        await place.publish(fanned("kept", ["done"], ["done"]))
        with place.daemon():
            await both(place, "kept", State.DONE, State.DONE)


@pytest.mark.soak
async def test_an_enqueue_promises_and_publishes_a_job_in_each_lane(new_place: NewPlace) -> None:
    async with new_place() as place:
        rows = [{"id": key, LANE: ["done"], SIDE: ["done"]} for key in "ab"]
        file = place.directory / "rows.jsonl"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        enqueue = ("enqueue", FAN_OUT, str(file), "--run", RUN, "--key", "{id}")
        with place.daemon() as daemon:
            await daemon.ready()
            # One lane has one of them already: the other gets its own all the same.
            await place.publish(Job(LANE, "a", json.dumps(rows[0]).encode(), run=RUN))
            await place.reaches("a", State.DONE)
            assert await place.exit_of(*enqueue) == Exit.OK
            await both(place, "a", State.DONE, State.DONE)
            await both(place, "b", State.DONE, State.DONE)
            assert await place.exit_of(*enqueue) == Exit.OK
            await eventually(place.is_drained)
            run = await place.run()
            assert (run.manifest, run.total, run.counts) == (3, 4, {State.DONE: 4})
        assert calls(place) == ["side/a", "side/b", "work/a", "work/b"]
        assert await place.exit_of(*enqueue, "--dry-run") == Exit.USAGE
