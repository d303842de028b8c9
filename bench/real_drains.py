"""Two drains of a real daemon, forecast on the way by ``acklast forecast`` and held against their end.

One lane is held back by its quota, and a tenth of its jobs fails once; the other by its slots, and its
handler takes half as long again from the middle on. Both at once take about two minutes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

import aio_pika
from rich.console import Console
from rich.table import Table

from acklast.cli.forecast import Wanted, look_ahead
from acklast.cli.forecast_view import document
from acklast.config import Config
from acklast.config.load import load
from acklast.ledger.api import ManifestRow, State
from acklast.ledger.postgres import PostgresLedger
from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from acklast_topology.publish import Job, Publisher
from bench import ledgers
from bench.children import Child
from bench.command import carry_out
from bench.contenders.forecast_lanes import PACED, SLOTS, TYPES
from bench.progress import Progress
from bench.queues import BenchError
from bench.servers import Servers
from dev.stack import stack

_ROOT: Final = Path(__file__).parents[1]
_POLL_S: Final = 0.25
_LONGEST_S: Final = 600.0
_PARTS: Final = (0.3, 0.5, 0.8)
_LANES: Final = (PACED, SLOTS)
_CONFIG: Final = f"""
app = "bench.contenders.forecast_lanes:app"
state_dir = "{{directory}}/state"
[broker]
url = "{{url}}"
[ledger]
dsn = "{{dsn}}"
[budgets.downstream]
quota = "10 per 1 s"
[lanes.{PACED}]
budget = "downstream"
[lanes.{SLOTS}]
concurrency = 4
"""


@dataclass(frozen=True, slots=True)
class Look:
    """One forecast of one lane's run, and what was then left of the time; seconds."""

    lane: str
    part: float
    told: dict[str, Any]
    at: float
    left_s: float = 0.0

    @property
    def held(self) -> bool:
        low, high = self.told["earliest_s"], self.told["latest_s"]
        return low is not None and high is not None and low <= self.left_s <= high


def jobs_of(lane: str) -> list[Job]:
    """The run of a lane, which has its name."""
    if lane == PACED:
        works = [{"seconds": 0.05, "fails": n % 10 == 0} for n in range(900)]
    else:
        works = [{"seconds": 0.3 if n < 500 else 0.45} for n in range(1000)]
    return [Job.json(lane, f"{lane}-{n}", work, type=TYPES[lane], run=lane) for n, work in enumerate(works)]


async def drains(servers: Servers) -> list[Look]:
    """Both drains, and every forecast of them."""
    dsn = await ledgers.create(servers.dsn, "forecast")
    with servers.vhost() as url, TemporaryDirectory(prefix="forecast-") as name:
        ledger = await PostgresLedger.connect(dsn, pool_size=1)
        try:
            await _fill(url, ledger)
            async with _daemon(Path(name), url, dsn):
                return await _follow(ledger, Path(name))
        finally:
            await ledger.close()


async def _fill(url: str, ledger: PostgresLedger) -> None:
    async with await aio_pika.connect(url) as connection:
        findings = await apply(connection, plan_for(Names(), list(_LANES)))
    if bad := [finding for finding in findings if not finding.fit]:
        raise BenchError(f"the topology does not fit: {bad}")
    async with Publisher.connect(url, in_flight=512) as publisher:
        for lane in _LANES:
            jobs = jobs_of(lane)
            rows = [ManifestRow(job.lane, job.key, job.fingerprint, job.type, job.deadline) for job in jobs]
            await ledger.manifest(lane, rows)
            async for _ in publisher.publish_many(jobs):
                pass


@asynccontextmanager
async def _daemon(directory: Path, url: str, dsn: str) -> AsyncIterator[None]:
    config = directory / "acklast.toml"
    config.write_text(_CONFIG.format(directory=directory, url=url, dsn=dsn))
    command = [sys.executable, "-m", "acklast", "run", "--config", str(config)]
    child = Child(command, _environment(), _ROOT, directory / "daemon.log")
    try:
        yield
        if child.ended:
            raise BenchError(f"the daemon has ended by itself\n{child.last_lines()}")
    finally:
        if not child.ended:
            await asyncio.to_thread(child.stop)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
    return {**kept, "PYTHONPATH": str(_ROOT)}


async def _follow(ledger: PostgresLedger, directory: Path) -> list[Look]:
    """Look at each run when so much of it is done, and wait for the ends."""
    config = load(directory / "acklast.toml", {})
    asked = {lane: list(_PARTS) for lane in _LANES}
    looks: list[Look] = []
    ends: dict[str, float] = {}
    async with asyncio.timeout(_LONGEST_S):
        while len(ends) < len(_LANES):
            await asyncio.sleep(_POLL_S)
            for lane in _LANES:
                done, whole = await _done(ledger, lane)
                if done == whole:
                    ends.setdefault(lane, monotonic())
                elif asked[lane] and done >= asked[lane][0] * whole:
                    looks.append(await _look(lane, asked[lane].pop(0), config))
    return [Look(one.lane, one.part, one.told, one.at, ends[one.lane] - one.at) for one in looks]


async def _done(ledger: PostgresLedger, lane: str) -> tuple[int, int]:
    view = await ledger.run(lane)
    if view is None:
        raise BenchError(f"the ledger has no run {lane}")
    return view.counts.get(State.DONE, 0), view.total


async def _look(lane: str, part: float, config: Config) -> Look:
    """As the command does it, but for the start of a process, which takes seconds on a busy machine."""
    at = monotonic()
    found = await look_ahead(config, Wanted(run=lane))
    [told] = document(found.outlook, found.blind)["runs"]
    return Look(lane, part, told, at)


def table_of(looks: Sequence[Look]) -> Table:
    """What was told, and what came of it."""
    table = Table("lane", "done", "forecast", "band", "actual", "held", "bound by", title="real drains")
    for one in sorted(looks, key=lambda look: (look.lane, look.part)):
        told = one.told
        band = f"{_s(told['earliest_s'])} to {_s(told['latest_s'])}"
        held = "yes" if one.held else "no"
        row = (one.lane, f"{one.part:.0%}", _s(told["finish_s"]), band, _s(one.left_s), held)
        table.add_row(*row, told["constraint"])
    return table


def _s(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.0f} s"


def run(out: Console, progress: Progress) -> None:
    """Both drains, on servers of their own."""
    progress.say("starting broker and database")
    with stack({}) as shared:
        out.print(table_of(asyncio.run(drains(Servers.of(shared)))))


if __name__ == "__main__":
    sys.exit(carry_out(run))
