"""Priority classes: what is urgent starts at once, what is not goes on, and nobody waits for nothing.

A lane with ``fair_by = "priority"`` has a class for each priority. RabbitMQ's own are none before 4.0, two of
them in 4.0 and strict in 4.3: on each version the shares are the daemon's, and the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.plan import FAIR_QUEUES
from acklast_topology.publish import Job
from harness import Broker, eventually
from harness.scripted import LANE
from harness.site import NAMES, Site, scripted, site

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

LOW: Final = 0
HIGH: Final = 9
BEHIND: Final = 1_000
SOON_S: Final = 20.0
"""About a second where nothing else runs on the machine; all that is ahead would take fifty."""


@pytest.fixture
def one_site(broker: Broker, ledger_dsn: str, tmp_path: Path) -> NewSite:
    settings: dict[str, Any] = {"fair_by": "priority", "quota": "20 per 1 s", "concurrency": 2}
    return partial(site, tmp_path, broker.url, ledger_dsn, **settings)


def jobs_of(name: str, count: int, priority: int | None) -> list[Job]:
    more: dict[str, Any] = {} if priority is None else {"priority": priority}
    return [scripted(f"{name}-{number:05}", "done", **more) for number in range(count)]


def order(place: Site) -> list[str]:
    """Of which class each start was, in order: the first part of its key."""
    return [call.key.partition("-")[0] for call in place.log.calls()]


async def set_aside(place: Site, timeout_s: float) -> None:
    """Wait until the daemon has gone through the work queue."""

    async def through() -> bool:
        return NAMES.work(LANE) not in await place.ready()

    await eventually(through, timeout_s, "the work queue is empty")


async def starts_after(place: Site, jobs: list[Job]) -> tuple[float, list[str]]:
    """Publish jobs: how long until the first of them starts, and the starts until the last is done."""
    before, keys = len(order(place)), {job.key for job in jobs}
    began = time.monotonic()
    await place.publish(*jobs)
    await eventually(lambda: any(call.key in keys for call in place.log.calls()), 100, "the first starts")
    first_s = time.monotonic() - began
    for job in jobs:
        await place.reaches(job.key, State.DONE, 100)
    return first_s, order(place)[before:]


async def test_what_is_urgent_starts_at_once_and_the_rest_goes_on(one_site: NewSite) -> None:
    async with one_site() as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.publish(*jobs_of("low", BEHIND, LOW))
            await set_aside(place, 120)
            first_s, starts = await starts_after(place, jobs_of("high", 40, HIGH))
            assert first_s < SOON_S
            # 0.2 to 2 between them: four beside forty, and what was on its way to its start already.
            assert 2 <= starts.count("low") <= 16
            _, starts = await starts_after(place, jobs_of("unset", 20, None))
            assert 2 <= starts.count("low") <= 16
            # Nothing is held back for a class that has nothing waiting.
            began, count = time.monotonic(), len(order(place))
            await eventually(lambda: len(order(place)) >= count + 60, 60, "sixty more of the rest")
            assert time.monotonic() - began < SOON_S, "at the rate of its own share it would take 48 seconds"
            assert await daemon.drained() == Exit.OK


async def test_a_priority_stays_as_it_came_through_every_hop(one_site: NewSite) -> None:
    async with one_site(lookahead=10, quota="1 per 5 s") as place:
        await place.publish(*jobs_of("low", 60, LOW), *jobs_of("unset", 60, None), *jobs_of("high", 60, HIGH))
        with place.daemon() as daemon:
            await daemon.ready()
            await set_aside(place, 60)
            assert await daemon.drained() == Exit.OK
        assert await aside(place) == {"low": {LOW}, "unset": {None}, "high": {HIGH}}


async def aside(place: Site) -> dict[str, set[int | None]]:
    """The priorities of what was set aside, by class."""
    found: dict[str, set[int | None]] = {}
    async with place.connection.channel() as channel:
        underlay = await channel.get_underlay_channel()  # the other one makes a 0 of none
        for number in FAIR_QUEUES:
            queue = NAMES.fair(LANE, number)
            while (properties := (await underlay.basic_get(queue, no_ack=True)).header.properties).headers:
                key = str(properties.headers["job-key"])
                found.setdefault(key.partition("-")[0], set()).add(properties.priority)
    return found


async def test_a_retry_keeps_its_class(one_site: NewSite) -> None:
    async with one_site() as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.publish(*jobs_of("low", 500, LOW))
            await set_aside(place, 60)
            await place.publish(scripted("high-again", "transient", "done", priority=HIGH))
            await place.reaches("high-again", State.DONE, 20)
            assert "low" in order(place)[-5:]
            assert await daemon.drained() == Exit.OK
