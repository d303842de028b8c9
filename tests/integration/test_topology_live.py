"""``acklast topology apply --migrate`` and ``--prune`` under a daemon at work, the tool killed half-way."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

import pytest

from acklast.errors import Exit
from acklast_topology.declare import apply, compare, exists, ready
from acklast_topology.finding import Found
from acklast_topology.names import Names
from acklast_topology.plan import Plan, Queue, plan_for
from acklast_topology.publish import Publisher, Status
from harness import Broker, eventually
from harness.scripted import LANE
from harness.site import BUCKETS_S, Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

NAMES: Final = Names()
WORK: Final = NAMES.work(LANE)
WAIT: Final = NAMES.wait(LANE, 5)


async def otherwise(place: Site, plan: Plan, queue: str, **changed: Any) -> None:
    """Make a queue again with other arguments, bound as before."""
    planned = next(one for one in plan.queues if one.name == queue)
    async with place.connection.channel() as channel:
        await channel.queue_delete(queue)
    arguments = {**planned.arguments, **{name.replace("_", "-"): value for name, value in changed.items()}}
    bindings = tuple(one for one in plan.bindings if one.queue == queue)
    await apply(place.connection, Plan((), (Queue(queue, arguments),), bindings))


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_job_waits_in_the_buckets_that_are_configured(new_site: NewSite) -> None:
    async with new_site() as place:
        job = scripted("later", "done", not_before=datetime.now(UTC) + timedelta(seconds=20))
        await place.promise([job])
        await place.publish(job)
        with place.daemon(env={"ACKLAST__WAIT_BUCKETS_S": "1, 2"}) as daemon:

            async def waits() -> bool:
                return (await ready(place.connection, NAMES.wait(LANE, 2)))[0] == 1

            await eventually(waits, what="the job waits for two seconds")
            assert await daemon.drained() == Exit.OK


@pytest.mark.soak
@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_arguments_change_under_a_daemon_at_work(new_site: NewSite, broker: Broker) -> None:
    async with new_site(concurrency=20) as place:
        plan = plan_for(NAMES, [LANE], BUCKETS_S)
        await otherwise(place, plan, WORK, x_delivery_limit=20)
        await otherwise(place, plan, WAIT, x_message_ttl=6000)
        with place.daemon(env={"ACKLAST__DECLARE": "verify"}) as daemon:
            await daemon.ready()
            enough = asyncio.Event()
            publishing = asyncio.create_task(publish(place, enough))
            tool = await migration(place, broker)
            await eventually(lambda: standing_in(place), 60, what="the stand-in is there")
            tool.send_signal(signal.SIGKILL)
            await tool.wait()
            tool = await migration(place, broker)
            out, _ = await tool.communicate()
            assert tool.returncode == Exit.OK, out
            enough.set()
            confirmed = await publishing
            await place.quiet(240)
            assert await daemon.drained() == Exit.OK
        assert {one.status for one in await compare(place.connection, plan)} == {Found.PRESENT}
        assert not await standing_in(place)
        run = await place.run()
        assert {state: number for state, number in run.counts.items() if number} == {"done": confirmed}
        assert len(place.log.effects()) == confirmed


async def migration(place: Site, broker: Broker) -> asyncio.subprocess.Process:
    env = {"ACKLAST__BROKER__MANAGEMENT_URL": broker.management.base, "PATH": ""}
    arguments = ["-m", "acklast", "topology", "apply", "--migrate", "--json"]
    arguments += ["--config", str(place.directory / "acklast.toml")]
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=env, stdout=asyncio.subprocess.PIPE
    )


async def standing_in(place: Site) -> bool:
    return (await exists(place.connection, "queue", NAMES.moving(WORK))).fit


def keeps_up(place: Site, number: int, enough: asyncio.Event) -> bool:
    return enough.is_set() or len(place.log.effects()) > number - 300


async def publish(place: Site, enough: asyncio.Event) -> int:
    """Publish one job after the other, every tenth to be tried again; how many. No more than 300 ahead."""
    async with Publisher.connect(place.broker_url) as publisher:
        for number in count():
            if number % 50 == 0:
                await eventually(partial(keeps_up, place, number, enough), 180, "the daemon keeps up")
            if enough.is_set():
                return number
            steps = ("transient", "done") if number % 10 == 0 else ("done",)
            sent = await publisher.publish(scripted(f"job-{number}", *steps))
            assert sent.status is Status.CONFIRMED, sent
    raise AssertionError
