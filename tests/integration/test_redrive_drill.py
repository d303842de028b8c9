"""The drill: thousands died of invalid recipients, and the cause is mended for all but a few."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from acklast.errors import Exit
from acklast_topology.publish import Job
from harness.recipients import CALLS, MENDED, REASON, TYPE
from harness.scripted import LANE
from harness.site import Site
from harness.waiting import eventually

NewSite = Callable[..., AbstractAsyncContextManager[Site]]
RATE = "1000/s"
LOG = logging.getLogger(__name__)


@pytest.fixture
def receiver() -> str:
    """What reads the deliveries has nothing to do with it."""
    return "bulk"


@dataclass
class Drill:
    """So many invitations, of which some can never be sent."""

    place: Site
    dsn: str
    letters: int
    gone: int

    async def die(self) -> None:
        """All of them are published, and die."""
        every = self.letters // self.gone
        jobs = [
            Job.json(LANE, f"invite-{n}", {"gone": n % every == 0}, type=TYPE) for n in range(self.letters)
        ]
        await self.place.publish(*jobs)

        async def dead() -> bool:
            return await self.open_letters() == self.letters

        await eventually(dead, 300, "all are dead")

    async def open_letters(self) -> int:
        connection = await asyncpg.connect(self.dsn)
        try:
            count: int = await connection.fetchval(
                "select count(*) from acklast.dead_letters where closed_at is null"
            )
        finally:
            await connection.close()
        return count

    def calls(self) -> Counter[str]:
        return Counter((self.place.directory / CALLS).read_text().split())

    async def plan(self) -> dict[str, Any]:
        told: dict[str, Any] = await self.place.command("redrive", "plan", "--lane", LANE, "--reason", REASON)
        return told

    async def start(self, plan: int, *more: str, code: int = Exit.OK) -> None:
        words = ("start", str(plan), "--why", "imported again", "--rate", RATE, *more)
        assert await self.place.exit_of("redrive", *words) == code

    async def ends(self, plan: int, code: Exit) -> dict[str, Any]:
        """Watch it until it ends or waits for a verdict, as a person would."""
        watch = ("redrive", "status", str(plan), "--watch", "--timeout", "280s")
        assert await self.place.exit_of(*watch) == code
        found: dict[str, Any] = await self.place.command("redrive", "status", str(plan))
        return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("letters", "gone"), [(600, 10), pytest.param(18_000, 200, marks=pytest.mark.soak)])
@pytest.mark.soak
async def test_a_cause_that_is_mended_for_all_but_a_few(
    new_site: NewSite, ledger_dsn: str, letters: int, gone: int
) -> None:
    took: dict[str, float] = {}
    more = {"app": "harness.recipients:app", "concurrency": 50}
    async with new_site(**more) as place:
        drill = Drill(place, ledger_dsn, letters, gone)
        with place.daemon() as daemon:
            await daemon.ready()
            began = time.monotonic()
            await drill.die()
            took["died_s"] = time.monotonic() - began
            (place.directory / MENDED).touch()
            plan = await drill.plan()
            assert (plan["letters"], plan["excluded"], plan["unchanged"]) == (letters, {}, 0)
            assert sorted(kind["letters"] for kind in plan["kinds"]) == [gone, letters - gone]

            # The first steps have one of each kind: it stops, and says of what.
            began = time.monotonic()
            await drill.start(plan["id"])
            stopped = await drill.ends(plan["id"], Exit.UNFIT)
            assert (stopped["status"], stopped["same"], stopped["other"]) == ("stopped", 1, 0)
            assert stopped["released"] <= 5
            [kind] = stopped["said"]["kinds"]
            assert (kind["outcome"], kind["reason"], kind["count"]) == ("dead", REASON, 1)
            assert drill.calls().total() == letters + stopped["released"]
            took["stopped_s"] = time.monotonic() - began

            began = time.monotonic()
            accept = ("redrive", "verdict", str(plan["id"]), "go-on", "--why", "they are gone for good")
            await place.command(*accept, "--tolerate", "2%")
            ended = await drill.ends(plan["id"], Exit.INCOMPLETE)
            took["finished_s"] = time.monotonic() - began
            assert (ended["status"], ended["done"], ended["same"]) == ("finished", letters - gone, gone)
            assert (ended["other"], ended["refused"], ended["out"]) == (0, 0, 0)
            assert set(drill.calls().values()) == {2}
            assert await drill.open_letters() == gone

            # What is left failed twice of the same, and nothing has changed since.
            again = await drill.plan()
            assert (again["letters"], again["unchanged"]) == (gone, gone)
            await drill.start(again["id"], code=Exit.USAGE)
            assert drill.calls().total() == 2 * letters
            await drill.start(again["id"], "--force", "perhaps they are back")
            forced = await drill.ends(again["id"], Exit.UNFIT)
            assert (forced["status"], forced["released"], forced["same"]) == ("stopped", 1, 1)
            assert drill.calls().total() == 2 * letters + 1
            assert await daemon.drained() == Exit.OK
    LOG.info("%s letters, stopped after %s: %s", letters, stopped["released"], took)
