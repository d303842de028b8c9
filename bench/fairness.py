"""How a small run fares that was published behind a large one, under one quota: with ``fair_by`` and without.

python -m bench.fairness --large 20000 --small 50 --quota 200
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import aio_pika
from rich.console import Console

from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from acklast_topology.publish import Job, Publisher, Status
from bench import ledgers
from bench.children import Child
from bench.command import carry_out
from bench.contenders.fair_lane import STARTS
from bench.contenders.lane import LANE, TYPE
from bench.progress import Progress
from bench.queues import BenchError
from bench.report import Report, show
from bench.servers import Servers
from bench.site import text
from dev.stack import stack

_ROOT: Final = Path(__file__).parents[1]
_SMALL: Final = "small"
_POLL_S: Final = 0.05
_WAITS_S: Final = 60.0
_CONFIG: Final = """
app = "bench.contenders.fair_lane:app"
state_dir = "{directory}/state"
[budgets.provider]
quota = "{quota} per 1 s"
[lanes.bench]
budget = "provider"
concurrency = 30
{fair}
"""


@dataclass(frozen=True, slots=True)
class Runs:
    """What is published: a large run, and a small one behind it."""

    large: int
    small: int
    quota: int
    daemons: int = 1


@dataclass(frozen=True, slots=True)
class Fared:
    """Counted in starts of whatever run, and in seconds from the first."""

    before: int
    """Starts before the first of the small run."""
    until: int
    """Starts until the last of it, these two and the large run's between them included."""
    seconds: float

    @classmethod
    def of(cls, starts: Sequence[str], seconds: float) -> Fared:
        """From the order in which the runs' jobs started; the last is the small run's last."""
        first = starts.index(_SMALL)
        return cls(first, len(starts) - first, seconds)


def fairness(runs: Runs, servers: Servers, say: Progress) -> Report:
    """The table: the same two runs through a lane without ``fair_by`` and through one with it."""
    say.begin("fairness", 2)
    fared = {}
    for title, fair in (("as they came", ""), ('fair_by = "run"', 'fair_by = "run"')):
        fared[title] = _drain(runs, fair, servers)
        say.step(f"{title}: {fared[title].before} starts before the small run's first")
    return Report(
        "fairness",
        f"{runs.small} jobs behind {runs.large:,} of another run, {runs.quota} per 1 s",
        ("lane", "starts before its first", "starts from there to its last", "done after"),
        [
            (title, f"{one.before:,}", f"{one.until:,}", f"{one.seconds:.1f} s")
            for title, one in fared.items()
        ],
        {title: {"before": one.before, "until": one.until, "s": one.seconds} for title, one in fared.items()},
        (f"{runs.daemons} daemon(s); at an equal share it takes {2 * runs.small} starts",),
    )


def _drain(runs: Runs, fair: str, servers: Servers) -> Fared:
    asyncio.run(ledgers.empty(servers.dsn))
    asyncio.run(ledgers.forget_budgets(servers.dsn))
    with ExitStack() as entered:
        url = entered.enter_context(servers.vhost())
        directory = Path(entered.enter_context(TemporaryDirectory(prefix="bench-")))
        asyncio.run(_fill(runs, url))
        settings = _CONFIG.format(directory=directory, quota=runs.quota, fair=fair)
        (directory / "acklast.toml").write_text(settings)
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
            "ACKLAST_BROKER_URL": url,
            "ACKLAST_LEDGER_DSN": servers.dsn,
            STARTS: str(directory / "starts"),
        }
        for number in range(runs.daemons):
            config = ["--config", str(directory / "acklast.toml"), "--instance", f"bench-{number}"]
            command = [sys.executable, "-m", "acklast", "run", *config]
            entered.callback(Child(command, env, _ROOT, directory / f"{number}.log").stop)
        return _watch(runs, directory / "starts")


async def _fill(runs: Runs, url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        await apply(connection, plan_for(Names(), [LANE]))
    async with Publisher.connect(url) as publisher:
        async for sent in publisher.publish_many(_jobs(runs)):
            if sent.status is not Status.CONFIRMED:
                raise BenchError(f"a job was not published: {sent.status} {sent.detail}")


def _jobs(runs: Runs) -> Iterator[Job]:
    for run, count in (("large", runs.large), (_SMALL, runs.small)):
        for number in range(count):
            payload = {"number": number, "text": text(number)}
            yield Job.json(LANE, f"{run}:{number:08d}", payload, type=TYPE, run=run)


def _watch(runs: Runs, path: Path) -> Fared:
    """Until the small run is done."""
    began, moved_at, seen = 0.0, time.monotonic(), 0
    while True:
        starts = path.read_text().splitlines() if path.exists() else []
        now = time.monotonic()
        if len(starts) > seen:
            began, moved_at, seen = began or now, now, len(starts)
        if starts.count(_SMALL) >= runs.small:
            return Fared.of(starts, now - began)
        if now - moved_at > _WAITS_S:
            raise BenchError(f"nothing starts any more after {seen} jobs")
        time.sleep(_POLL_S)


def parse(argv: Sequence[str] | None) -> Runs:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("large", 20_000), ("small", 50), ("quota", 200), ("daemons", 1)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    return Runs(**vars(parser.parse_args(argv)))


def main(argv: Sequence[str] | None = None) -> int:
    runs = parse(argv)

    def measure(out: Console, progress: Progress) -> None:
        with stack() as both:
            servers = Servers.of(both)
            asyncio.run(ledgers.make(servers.dsn))
            show(out, fairness(runs, servers, progress))

    return carry_out(measure)


if __name__ == "__main__":
    sys.exit(main())
