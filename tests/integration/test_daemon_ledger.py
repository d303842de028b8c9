"""The ledger goes away under a daemon: nothing starts, nothing is acked, and all goes on soon after."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.publish import Job
from dev.postgres import Cluster, either_dsn
from harness import Broker, eventually
from harness.daemon import Daemon
from harness.postgres import migrated, own_cluster, own_pair, small_cluster
from harness.site import Site, scripted, site

JOBS = 40
SOON_S = 20.0
"""Generous: what is asked for is seconds, on a machine that does other things too."""
LOOKS = 30
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'acklast/%'"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with own_cluster() as made:
        yield made


class Scene:
    """A daemon at work, and the jobs that it has been given."""

    def __init__(self, place: Site, daemon: Daemon) -> None:
        self.place, self.daemon = place, daemon
        self.keys: list[str] = []

    async def publish(self, count: int = JOBS, *steps: Any, **more: Any) -> list[str]:
        keys = [f"k{len(self.keys) + n}" for n in range(count)]
        self.keys += keys
        await self.place.publish(*(scripted(key, *(steps or ("done",)), run=None, **more) for key in keys))
        return keys

    def done(self) -> int:
        return len({effect.key for effect in self.place.log.effects()})

    async def all_done(self, timeout_s: float = 60) -> None:
        await eventually(lambda: self.done() == len(self.keys), timeout_s, "every job is done")
        await eventually(self.place.is_drained, what="no queue holds any")

    async def stands_still(self) -> None:
        """The ledger is away: jobs that come now are neither started nor acked."""
        await self.daemon.says("ledger.unavailable")
        calls, settled = len(self.place.log.calls()), len(self.daemon.said("job.settled"))
        await self.publish()
        looks: list[int] = []

        async def still() -> bool:
            # What is delivered but not acked is in no count: it must not come down.
            looks.append(sum((await self.place.ready()).values()))
            return len(looks) > LOOKS and len(set(looks[-LOOKS:])) == 1

        await eventually(still, what="the daemon takes nothing more in")
        assert len(self.place.log.calls()) == calls
        assert len(self.daemon.said("job.settled")) == settled

    async def goes_on(self) -> float:
        """The ledger is back: seconds until a job was done again."""
        before, began = self.done(), time.monotonic()
        await self.daemon.says("ledger.back", timeout_s=SOON_S)
        await eventually(lambda: self.done() > before, SOON_S, "a job is done again")
        again_s = time.monotonic() - began
        await self.all_done()
        return again_s

    def one_effect_each(self) -> None:
        effects = sorted(effect.key for effect in self.place.log.effects())
        assert effects == sorted(self.keys)

    def said_once(self) -> None:
        for event in ("ledger.unavailable", "ledger.back"):
            assert len(self.daemon.said(event)) == 1, self.daemon.said(event)
        complaints = [
            line
            for line in self.daemon.log()
            if line["level"] in ("warning", "error") and line["event"] != "job.settled"
        ]
        assert len(complaints) <= 5, [line["event"] for line in complaints]
        assert not self.daemon.said("lane.interrupted")


@asynccontextmanager
async def at_work(directory: Path, broker: Broker, dsn: str, **settings: Any) -> AsyncIterator[Scene]:
    settings = {"concurrency": 8, "prefetch": 500, **settings}
    async with site(directory, broker.url, dsn, **settings) as place:
        with place.daemon() as daemon:
            scene = Scene(place, daemon)
            await scene.publish()
            await scene.all_done()
            yield scene
            assert await daemon.drained() == Exit.OK
            scene.one_effect_each()


async def a_database(cluster: Cluster) -> str:
    return await migrated(cluster, f"ledger_{token_hex(4)}")


async def test_a_server_that_crashes_and_starts_again(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    async with at_work(tmp_path, broker, await a_database(cluster)) as scene:
        cluster.kill()
        try:
            await scene.publish()
            await scene.stands_still()
        finally:
            await asyncio.to_thread(cluster.start)
        assert await scene.goes_on() < SOON_S
        scene.said_once()
        assert not scene.daemon.said("session.lost")


@pytest.mark.soak
async def test_connections_that_are_cut_again_and_again(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    async with at_work(tmp_path, broker, await a_database(cluster)) as scene:
        await scene.publish(300)
        cuts = 0
        while scene.done() < len(scene.keys):
            cuts += len(cluster.sql(CUT).split())
            done = scene.done()
            await eventually(lambda: scene.done() > min(done + 20, len(scene.keys) - 1), SOON_S)  # noqa: B023
        await scene.all_done()
        assert cuts > 5
        assert not scene.daemon.said("session.lost")
        assert len(scene.daemon.said("ledger.unavailable")) <= 2


async def durability(place: Site) -> str:
    """What ``acklast check`` says of it."""
    [found] = [one for one in (await place.command("check"))["checks"] if one["name"] == "durability"]
    return str(found["detail"] + found["remedy"])


async def test_hosts_of_which_none_waits_for_another(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    dsn = await a_database(cluster)
    both = dsn.replace(f":{cluster.port}/", f":{cluster.port},127.0.0.1:1/")
    async with site(tmp_path, broker.url, both) as place:
        said = await durability(place)
    assert "a failover among the 2 hosts of the DSN can lose the last ones" in said
    assert "synchronous_standby_names" in said


@pytest.mark.soak
async def test_a_primary_that_is_lost_to_its_standby(broker: Broker, tmp_path: Path) -> None:
    with own_pair() as (primary, standby):
        database = urlsplit(await a_database(primary)).path[1:]
        both = either_dsn(primary, standby, database)
        async with at_work(tmp_path, broker, both) as scene:
            assert "failover" not in await durability(scene.place)
            await scene.publish()
            await eventually(lambda: scene.done() > JOBS + 5, what="some are done")
            primary.kill()
            await scene.stands_still()
            told = {line["key"] for line in scene.daemon.said("job.settled", disposition="complete")}
            await asyncio.to_thread(standby.promote)
            assert await scene.goes_on() < SOON_S
            scene.said_once()
            known = standby.sql("SELECT key FROM acklast.jobs WHERE state = 'done'", database)
            assert told <= set(known.split()), "a job that was acked is done on the new primary too"


@pytest.mark.soak
async def test_a_table_that_somebody_locks(cluster: Cluster, broker: Broker, tmp_path: Path) -> None:
    dsn = await a_database(cluster)
    async with at_work(tmp_path, broker, dsn, lease_s=3) as scene:
        other = await asyncpg.connect(dsn)
        async with other.transaction():
            await other.execute("LOCK TABLE acklast.jobs IN ACCESS EXCLUSIVE MODE")
            await scene.publish()
            await scene.stands_still()
        await other.close()
        assert await scene.goes_on() < SOON_S
        scene.said_once()
        assert not scene.daemon.said("session.lost"), "its lease was renewed all the time"


async def test_a_job_that_somebody_locks_holds_up_no_other(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    dsn = await a_database(cluster)
    async with at_work(tmp_path, broker, dsn) as scene:
        [waits] = await scene.publish(1, {"do": "wait", "gate": "go"})
        await eventually(lambda: scene.place.log.calls(waits))
        other, idle = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
        await idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM acklast.jobs")
        async with other.transaction():
            await other.execute("SELECT 1 FROM acklast.jobs WHERE key = $1 FOR UPDATE", waits)
            scene.place.open_gate("go")
            others = await scene.publish()
            await eventually(lambda: {e.key for e in scene.place.log.effects()} >= set(others), SOON_S)
            assert (await scene.place.job(others[-1])).state is State.DONE
        await scene.place.reaches(waits, State.DONE)
        await other.close()
        await idle.close()
        await scene.all_done()
        assert not scene.daemon.said("ledger.unavailable")


@pytest.mark.soak
async def test_a_server_that_stands_still_for_longer_than_the_lease(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    async with at_work(tmp_path, broker, await a_database(cluster), lease_s=4) as scene:
        await scene.publish(1, {"do": "wait", "gate": "go"})
        await eventually(lambda: len(scene.place.log.calls()) == len(scene.keys))
        cluster.pause()
        try:
            await scene.publish()
            await scene.stands_still()
            await scene.daemon.says("session.lost")
            scene.place.open_gate("go")
        finally:
            cluster.resume()
        assert await scene.goes_on() < SOON_S
        scene.said_once()


@pytest.mark.soak
async def test_a_disk_that_is_full(broker: Broker, tmp_path: Path) -> None:
    with small_cluster(160) as cluster:
        async with at_work(tmp_path, broker, await a_database(cluster)) as scene:
            ballast = cluster.home / "ballast"
            fill(ballast)
            refused = [scripted(f"large-{n}", "permanent", run=None) for n in range(30)]
            await scene.place.publish(*(larger(job) for job in refused))
            await scene.stands_still()
            ballast.unlink()
            if not cluster.runs():  # it gives up where not even its log can be written
                await asyncio.to_thread(cluster.start)
            await scene.goes_on()
            for job in refused:
                assert (await scene.place.reaches(job.key, State.DEAD)).reason == "refused"
            scene.said_once()


def larger(job: Job) -> Job:
    """With a megabyte that no disk compresses away."""
    more = token_hex(2**19).encode()
    return replace(job, payload=job.payload[:-1] + b', "more": "' + more + b'"}')


def fill(ballast: Path) -> None:
    """Leave a megabyte."""
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(b"\0" * 2**20)
                file.flush()
        except OSError:
            file.truncate(max(0, file.tell() - 2**20))
