"""A rolling upgrade: the version before and this one, on one ledger and one broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg
import pytest

from acklast import __version__
from acklast.errors import Exit
from acklast.ledger.api import State
from acklast.ledger.backlog import read_backlog
from acklast.ledger.postgres import PostgresLedger
from harness import eventually
from harness.daemon import Daemon
from harness.released import laid_out, older, this_as
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

BATCH: Final = 40
GONE: Final = "gone"


def next_minor(version: str) -> str:
    major, minor, *_ = version.split(".")
    return f"{major}.{int(minor) + 1}.0"


@pytest.fixture
def old(tmp_path: Path) -> Mapping[str, str]:
    """The environment of the version before."""
    if not (commit := older()):
        pytest.skip("no version in git's history has a smaller schema and runs on a larger one")
    return {"PYTHONPATH": laid_out(commit, tmp_path / "old", __version__)}


@pytest.fixture
def new(tmp_path: Path) -> Mapping[str, str]:
    """The environment of this one, as the next minor version."""
    return {"PYTHONPATH": this_as(next_minor(__version__), tmp_path / "new")}


async def says(place: Site, env: Mapping[str, str], *arguments: str) -> Any:
    """What a command of a version answers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
    command = [sys.executable, "-m", "acklast", *arguments, "--json", "--config", str(place.config)]
    done = await asyncio.to_thread(
        subprocess.run, command, env={**kept, **env}, cwd=place.directory, capture_output=True, check=False
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return json.loads(done.stdout)


class Load:
    """Batches of jobs, of which the tenth of each fails once and the last one for good."""

    def __init__(self, place: Site) -> None:
        self._place = place
        self._batches = 0
        self.done: list[str] = []
        self.dead: list[str] = []

    async def more(self) -> list[str]:
        """Publish another batch; the keys."""
        self._batches += 1
        keys = [f"{self._batches}-{number}" for number in range(BATCH)]
        jobs = [scripted(key, *steps) for key, steps in zip(keys, self._steps(), strict=True)]
        await self._place.publish(*jobs)
        self.done += keys[:-1]
        self.dead += keys[-1:]
        return keys

    @staticmethod
    def _steps() -> Iterator[tuple[str, ...]]:
        for number in range(1, BATCH):
            yield ("transient", "done") if number % 10 == 0 else ("done",)
        yield ("permanent",)

    async def over(self, *but: str) -> None:
        """Wait until the ledger has every job where it belongs."""

        async def settled() -> bool:
            counts = (await self._place.run()).counts
            found = counts.get(State.DONE, 0), counts.get(State.DEAD, 0)
            return found == (len(self.done) - len(but), len(self.dead))

        await eventually(settled, 60, "all jobs are over")


@pytest.mark.timeout(300)  # four programs that import the product: a busy machine takes long
@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_an_old_and_a_new_version_hand_over_on_one_ledger(
    new_site: NewSite, ledger_dsn: str, empty_dsn: str, old: Mapping[str, str], new: Mapping[str, str]
) -> None:
    async with new_site(drain_s=60) as place:
        # The site's own ledger has the new schema; that of this test has none yet.
        place.config.write_text(place.config.read_text().replace(ledger_dsn, empty_dsn))
        before = (await says(place, old, "ledger", "migrate"))["applied"]
        with place.daemon("old", env=old) as first:
            await first.ready()
            load = Load(place)
            held = scripted("held", {"do": "wait", "gate": "on"})
            await place.publish(held)
            load.done.append("held")
            publishing = asyncio.create_task(load.more())
            added = (await says(place, new, "ledger", "migrate"))["applied"]
            assert added
            assert not set(added) & set(before)
            await publishing
            ledger = await PostgresLedger.connect(empty_dsn, pool_size=1)
            site_ledger, place.ledger = place.ledger, ledger
            try:
                await load.over("held")
                await side_by_side(place, first, load, old, new)
                await counted(empty_dsn, load)
            finally:
                place.ledger = site_ledger
                await ledger.close()


async def side_by_side(
    place: Site, first: Daemon, load: Load, old: Mapping[str, str], new: Mapping[str, str]
) -> None:
    # It crashes with a job at work, and comes back on the schema that is newer than it.
    first.signal(signal.SIGKILL)
    await first.ended()
    with place.daemon("old", env=old) as again, place.daemon("new", env=new) as other:
        await again.ready()
        await other.ready()
        place.open_gate("on")
        assert (await place.reaches("held", State.DONE)).attempts == 2
        await shared(place, load, again, other)
        await handed_over(place, load, again, other)
        assert await other.drained() == Exit.OK
    await accounted(place, load)


async def shared(place: Site, load: Load, *daemons: Daemon) -> None:
    """Both do jobs, and each is shown with what it is."""
    keys = await load.more()
    await load.over()
    ran = {call.pid for call in place.log.effects() if call.key in keys}
    assert ran == {daemon.process.pid for daemon in daemons}
    workers = (await place.command("workers"))["workers"]
    assert {(one["instance"], one["release"], one["state"]) for one in workers} == {
        ("old", __version__, "live"),
        ("new", next_minor(__version__), "live"),
    }


async def handed_over(place: Site, load: Load, leaving: Daemon, staying: Daemon) -> None:
    """The old one is asked by the new version's command to drain, in the midst of its work."""
    keys = [f"long-{number}" for number in range(10)]
    await place.publish(*(scripted(key, {"do": "wait", "gate": "off"}) for key in keys))
    load.done += keys
    await eventually(lambda: len([call for call in place.log.calls() if call.key.startswith("long")]) == 10)
    publishing = asyncio.create_task(load.more())
    said = ("workers", "drain", "old", "--why", "upgrade")
    assert await place.exit_of(*said) in (Exit.OK, Exit.INCOMPLETE)
    await leaving.says("drain.asked")
    place.open_gate("off")
    assert await leaving.ended() == Exit.OK
    await publishing
    keys = await load.more()
    await load.over()
    assert {call.pid for call in place.log.effects() if call.key in keys} == {staying.process.pid}


async def accounted(place: Site, load: Load) -> None:
    """Nothing lost, nothing twice, and no attempt spent on leaving."""
    await place.quiet_queues()
    assert sorted(effect.key for effect in place.log.effects()) == sorted(load.done)
    assert len(place.log.calls()) == len(load.done) + len(load.dead) + 3 * len(load.dead) + 1
    letters = (await place.command("dead", "list"))["letters"]
    assert sorted(letter["key"] for letter in letters) == sorted(load.dead)


async def counted(dsn: str, load: Load) -> None:
    """What is counted beside the jobs is right, whichever version has written them."""
    connection = await asyncpg.connect(dsn)
    try:
        backlog = await read_backlog(connection)
    finally:
        await connection.close()
    assert {(depth.state, depth.jobs) for depth in backlog.depths} == {(State.DEAD, len(load.dead))}
