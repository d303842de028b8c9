"""How the fleet stands, looked up on real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import aio_pika
import pytest

from acklast.config import load
from acklast.errors import LedgerUnavailable
from acklast.ledger.api import ManifestRow
from acklast.ledger.connect import Address
from acklast.ledger.sampling import Sampling
from acklast.sampler import Sampler
from acklast.telemetry import catalogue as of
from acklast.telemetry.events import Emitter, Settled
from acklast.telemetry.metric import Metric
from harness.scripted import LANE
from harness.site import NAMES, Site, scripted

pytestmark = pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
READY = (of.JOBS, (LANE, "normal", "ready"))
QUEUED = (of.JOBS, (LANE, "normal", "queued"))
WAITING = (of.JOBS, (LANE, "normal", "waiting"))
AGE = (of.OLDEST_AGE, (LANE, "normal"))


@dataclass
class Looking:
    """A site without a daemon, and what looks at it."""

    site: Site
    sampler: Sampler
    sampling: Sampling
    dsns: list[str]
    """The ledger's address is the last of them."""

    async def look(self) -> Mapping[tuple[Metric, tuple[str, ...]], float]:
        await self.sampler.once()
        return self.told()

    def told(self) -> Mapping[tuple[Metric, tuple[str, ...]], float]:
        return {(one.metric, one.labels): one.value for one in self.sampler.samples()}


@pytest.fixture
async def looking(new_site: NewSite, ledger_dsn: str) -> AsyncIterator[Looking]:
    async with new_site() as place:

        async def connect() -> aio_pika.abc.AbstractConnection:
            return place.connection

        dsns = [ledger_dsn]
        sampling = Sampling(Address.of(lambda: dsns[-1]))
        sampler = Sampler(load(place.config, {}), sampling, connect, Emitter(), chance=lambda: 0.0)
        yield Looking(place, sampler, sampling, dsns)
        await sampler.close()


async def test_what_waits_is_told_wherever_it_waits(looking: Looking) -> None:
    assert looking.told() == {}
    await looking.site.promise([scripted("promised", "done")])
    await looking.site.publish(scripted("promised", "done"), scripted("sent", "done"))
    series = await looking.look()
    assert (series[QUEUED], series[READY]) == (1, 2)
    assert series[of.RUNS, ("open",)] == 1
    assert series[of.SAMPLE_DURATION, ()] > 0


async def test_a_queue_that_is_not_there_is_not_empty(looking: Looking) -> None:
    async with looking.site.connection.channel() as channel:
        await channel.queue_delete(NAMES.work(LANE))
    series = await looking.look()
    assert READY not in series
    assert series[QUEUED] == 0


async def test_of_jobs_that_no_ledger_knows_the_head_of_the_queue_tells_the_age(looking: Looking) -> None:
    await looking.site.publish(scripted("sent", "done"))
    assert (await looking.look())[AGE] < 60, "since when it waits nobody knows: since it was seen"
    looking.sampler(
        Settled("complete", LANE, "before", outcome="done", queue_s=600.0, pace_s=1.0, total_s=1.5)
    )
    assert 601 <= (await looking.look())[AGE] < 700
    async with looking.site.connection.channel() as channel:
        await (await channel.get_queue(NAMES.work(LANE), ensure=False)).purge()
    assert (await looking.look())[AGE] == 0


async def test_a_look_that_fails_leaves_what_was_seen_and_it_grows_old(looking: Looking) -> None:
    before = await looking.look()
    looking.dsns.append("postgresql://127.0.0.1:1/nothing")
    await looking.sampling.close()
    with pytest.raises(LedgerUnavailable):
        await looking.sampler.once()
    after = looking.told()
    assert after[of.SAMPLE_AGE, ()] > before[of.SAMPLE_AGE, ()]
    assert after.keys() == before.keys()


async def test_it_keeps_short_what_it_reads(looking: Looking) -> None:
    ledger = looking.site.ledger
    for number in range(26):
        rows = [ManifestRow(LANE, f"{number}-{n}", b"f", not_before=later(n)) for n in range(1, 21)]
        await ledger.manifest(f"r{number}", rows)
    assert (await looking.look())[WAITING] == 26 * 20
    backlog, _ = await looking.sampling.read()
    assert backlog.rows.added == 0
    assert (await looking.look())[WAITING] == 26 * 20


def later(n: int) -> datetime:
    return datetime.now(UTC) + timedelta(minutes=n)
