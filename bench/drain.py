"""One measurement: a contender drains a queue, on a virtual host of its own, that was filled before."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import aio_pika

from bench import ledgers, meter, stats
from bench.children import Answer, Child
from bench.processes import cpu_s, peak_memory_bytes
from bench.queues import BenchError, ready
from bench.roster import Contender
from bench.servers import Servers
from bench.site import Site

ROOT: Final = Path(__file__).parents[1]
_POLL_S: Final = 0.01
_STUCK_S: Final = 30.0
_BEGUN_S: Final = 3.0
"""What runs beside a contender is at work by then."""
_CALM_S: Final = 0.2
_CALM_PART: Final = 0.1
_CALM_WITHIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Drained:
    """What one drain showed. Processor time is that of the jobs between the edges."""

    jobs: int
    moments: list[float]
    cpu_s_per_job: dict[str, float]
    """By process tree: consumer, broker, postgres."""
    memory_bytes: int
    beside: Answer | None = None
    """What ran beside it."""

    @property
    def rate(self) -> float:
        return stats.rate(self.moments)


def drain(
    contender: Contender, count: int, servers: Servers, *, first: int = 0, clean: bool = True
) -> Drained:
    """Fill, start, measure, stop, and see that every job was acked and recorded.

    ``first``: the number of the first job. ``clean``: the ledgers are emptied before.

    Raises:
        BenchError: it was no drain of all the jobs.
    """
    if clean:
        asyncio.run(ledgers.empty(servers.dsn))
    with servers.vhost() as url, TemporaryDirectory(prefix="bench-") as directory:
        site = Site(url, servers.dsn, contender.prefetch, contender.concurrency)
        env = _environment(contender, site, Path(directory), count)
        queue = _fill(contender, first, count, env)
        _calm(servers)
        around = (contender, env, Path(directory))
        with _beside(*around) as answers, _running(*around) as children:
            drained = _measure(children, Path(env[meter.DIRECTORY]), count, servers)
        drained = replace(drained, beside=answers[0] if answers else None)
        asyncio.run(_require_empty(url, queue))
    if clean:
        asyncio.run(ledgers.require_done(servers.dsn, contender.ledger, count))
    return drained


def _environment(contender: Contender, site: Site, directory: Path, count: int) -> dict[str, str]:
    meters = directory / "meters"
    meters.mkdir()
    return {
        **os.environ,
        **site.environment(),
        meter.DIRECTORY: str(meters),
        meter.CAPACITY: str(count),
        "PYTHONPATH": str(ROOT),
        # The daemon's own; the file has the rest.
        "ACKLAST_BROKER_URL": site.broker_url,
        "ACKLAST_LEDGER_DSN": site.ledger_dsn,
        **contender.env,
    }


def _fill(contender: Contender, first: int, count: int, env: dict[str, str]) -> str:
    command = [sys.executable, "-m", "bench.fill", contender.module, str(first), str(count)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"the queue of {contender.name} was not filled\n{done.stderr}")
    return done.stdout.strip()


def _calm(servers: Servers) -> None:
    """Wait until the servers have done what the filling left them to do, or do not get calm at all."""
    until = time.monotonic() + _CALM_WITHIN_S
    before = sum(cpu_s(servers.trees()).values())
    while time.monotonic() < until:
        time.sleep(_CALM_S)
        now = sum(cpu_s(servers.trees()).values())
        if now - before < _CALM_S * _CALM_PART:
            return
        before = now


@contextmanager
def _beside(contender: Contender, env: dict[str, str], directory: Path) -> Iterator[list[Answer]]:
    """Run what a contender wants beside it; its answer comes at the end."""
    answers: list[Answer] = []
    if not contender.beside:
        yield answers
        return
    command = [part.format(config=_config(contender, directory)) for part in contender.beside]
    child = Child([sys.executable, "-m", *command], env, directory, directory / "beside")
    try:
        time.sleep(_BEGUN_S)
        yield answers
    finally:
        early = child.ended
        answers.append(child.interrupt())
    if early:
        raise BenchError(f"what runs beside {contender.name} had nothing more to do\n{child.last_lines()}")


@contextmanager
def _running(contender: Contender, env: dict[str, str], directory: Path) -> Iterator[list[Child]]:
    config = _config(contender, directory)
    children: list[Child] = []
    try:
        for number in range(contender.daemons):
            told = {"config": config, "number": number, "concurrency": contender.concurrency}
            command = [part.format(**told) for part in contender.command or (contender.module,)]
            log = directory / f"log-{number}"
            children.append(Child([sys.executable, "-m", *command], env, directory, log))
        yield children
    finally:
        for child in children:
            child.stop()


def _config(contender: Contender, directory: Path) -> Path:
    path = directory / "acklast.toml"
    # All else as it is by default: the log at info, the lease, the drain.
    path.write_text(f"""\
app = "bench.contenders.lane:app"
state_dir = "{directory / "state"}"
[lanes.bench]
concurrency = {contender.concurrency}
prefetch = {contender.prefetch}
""")
    return path


def _measure(children: list[Child], meters: Path, count: int, servers: Servers) -> Drained:
    readings = meter.Readings(meters)
    roots = {"consumer": [child.pid for child in children], **servers.trees()}
    first, last = stats.window(count)
    begun = _await(readings, first, children)
    before = cpu_s(roots)
    ended = _await(readings, last, children)
    after = cpu_s(roots)
    _await(readings, count, children)
    spent = {name: (after[name] - before[name]) / max(1, ended - begun) for name in roots}
    memory = peak_memory_bytes(roots["consumer"])
    return Drained(count, readings.moments(), spent, memory)


def _await(readings: meter.Readings, count: int, children: list[Child]) -> int:
    """Wait until so many jobs were handled; how many it were by then."""
    seen, since = 0, time.monotonic()
    while (now := readings.count()) < count:
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > _STUCK_S:
            raise BenchError(f"stuck at {now} of {count} jobs\n{_logs(children)}")
        if any(child.ended for child in children):
            raise BenchError(f"ended by itself after {now} of {count} jobs\n{_logs(children)}")
        time.sleep(_POLL_S)
    return now


def _logs(children: list[Child]) -> str:
    return "\n".join(child.last_lines() for child in children)


async def _require_empty(url: str, queue: str) -> None:
    """A message that was not acked is back in the queue once its consumer is gone."""
    async with await aio_pika.connect(url) as connection:
        with suppress(aio_pika.exceptions.ChannelNotFoundEntity):
            if left := await ready(connection, queue):
                raise BenchError(f"{left} jobs were not acknowledged")
