"""``acklast topology apply --migrate`` and ``--prune`` under a daemon at work, the tool killed half-way."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias

import pytest

from acklast.errors import Exit
from acklast_topology.declare import apply, compare, exists
from acklast_topology.finding import Found
from acklast_topology.names import Names
from acklast_topology.plan import Plan, Queue, plan_for
from acklast_topology.publish import Publisher, Status
from harness import Broker, eventually
from harness.scripted import LANE
from harness.site import Site, scripted

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


@pytest.mark.soak
@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_arguments_change_under_a_daemon_at_work(new_site: NewSite, broker: Broker) -> None:
    async with new_site(more="") as place:
        plan = plan_for(NAMES, [LANE])
        await otherwise(place, plan, WORK, x_delivery_limit=20)
        await otherwise(place, plan, WAIT, x_message_ttl=6000)
        jobs = [
            scripted(f"job-{n}", *(("transient", "done") if n % 10 == 0 else ("done",))) for n in range(3000)
        ]
        await place.promise(jobs)
        with place.daemon(env={"ACKLAST__DECLARE": "verify"}) as daemon:
            await daemon.ready()
            publishing = asyncio.create_task(publish(place, jobs))
            command = [sys.executable, "-m", "acklast", "topology", "apply", "--migrate", "--json"]
            env = {"ACKLAST__BROKER__MANAGEMENT_URL": broker.management.base, "PATH": ""}
            tool = await asyncio.create_subprocess_exec(
                *command, "--config", str(place.directory / "acklast.toml"), env=env
            )

            async def standing_in() -> bool:
                return (await exists(place.connection, "queue", NAMES.moving(WORK))).fit

            await eventually(standing_in, 60, what="the stand-in is there")
            tool.send_signal(signal.SIGKILL)
            await tool.wait()
            tool = await asyncio.create_subprocess_exec(
                *command,
                "--config",
                str(place.directory / "acklast.toml"),
                env=env,
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await tool.communicate()
            assert tool.returncode == Exit.OK, out
            await publishing
            await place.quiet(120)
            assert await daemon.drained() == Exit.OK
        assert {one.status for one in await compare(place.connection, plan)} == {Found.PRESENT}
        assert not await standing_in()
        run = await place.run()
        assert run.balanced
        assert run.open == 0
        assert {state: number for state, number in run.counts.items() if number} == {"done": 3000}
        assert len(place.log.effects()) == 3000


async def publish(place: Site, jobs: list[Any]) -> None:
    """About a hundred a second: each waits for its confirm and for a look at the effects."""
    async with Publisher.connect(place.broker_url) as publisher:
        for job in jobs:
            while (await publisher.publish(job)).status is not Status.CONFIRMED:
                await asyncio.sleep(0)  # noqa: ASYNC110
