"""One paced drain: processes that call a provider with a quota, one of them killed on the way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench import ledgers
from bench.caller import PORT
from bench.children import Child
from bench.queues import BenchError
from bench.servers import Servers
from bench.site import Site

ROOT: Final = Path(__file__).parents[1]
_POLL_S: Final = 0.1
_STUCK_S: Final = 60.0
_BUDGET: Final = """
app = "{module}:app"
state_dir = "{directory}/state"
[ledger]
lease_s = {lease_s}
[budgets.provider]
quota = "{count} per {period_s:g} s"
[lanes.bench]
budget = "provider"
concurrency = {concurrency}
max_rate_limited = 1000000
"""


@dataclass(frozen=True, slots=True)
class Paced:
    """Who drains, and how many of them."""

    name: str
    title: str
    module: str
    command: tuple[str, ...]
    processes: int
    kill: bool = False
    """One process dies by SIGKILL after a third of the jobs and is started again at once."""


@dataclass(frozen=True, slots=True)
class Load:
    """The provider's quota, how long its calls take, and for how many periods there are jobs."""

    count: int
    period_s: float
    takes_s: float
    periods: int
    concurrency: int
    lease_s: float = 15.0

    @property
    def jobs(self) -> int:
        return self.count * self.periods


@dataclass(frozen=True, slots=True)
class Outcome:
    arrivals: int
    refused: int
    worst: int
    by_period: list[int]
    calls: int
    """Those that were left two periods after all processes were ready."""
    seconds: float
    """From the last call before that to the last of all."""


def drain(who: Paced, load: Load, servers: Servers) -> Outcome:
    """Fill, start, wait until every job was served, stop; the meter's account.

    Raises:
        BenchError: it got stuck.
    """
    asyncio.run(ledgers.empty(servers.dsn))
    asyncio.run(ledgers.forget_budgets(servers.dsn))
    with servers.vhost() as url, TemporaryDirectory(prefix="bench-") as directory, _provider(load) as port:
        site = Site(url, servers.dsn, min(1000, 2 * load.concurrency), load.concurrency)
        env = _environment(who, load, site, port)
        _fill(who, load.jobs, env)
        runner = _Runner(who, load, env, Path(directory))
        with runner.running():
            runner.wait_until_ready()
            # A cold start lets a whole quota through at once, which is no rate that could be kept.
            time.sleep(2 * load.period_s)
            return runner.wait(port, account(port))


def _environment(who: Paced, load: Load, site: Site, port: int) -> dict[str, str]:
    return {
        **os.environ,
        **site.environment(),
        PORT: str(port),
        "PYTHONPATH": str(ROOT),
        "ACKLAST_BROKER_URL": site.broker_url,
        "ACKLAST_LEDGER_DSN": site.ledger_dsn,
        "BENCH_QUOTA": str(load.count),
        "BENCH_PERIOD_S": str(load.period_s),
        "BENCH_PROCESSES": str(who.processes),
    }


def _fill(who: Paced, jobs: int, env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "bench.fill", who.module, "0", str(jobs)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"the queue of {who.name} was not filled\n{done.stderr}")


@contextmanager
def _provider(load: Load) -> Iterator[int]:
    command = [sys.executable, "-m", "bench.provider", str(load.count), str(load.period_s), str(load.takes_s)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def account(port: int) -> dict[str, Any]:
    """What the meter has counted so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
        found: dict[str, Any] = json.load(answer)
        return found


class _Runner:
    """The processes of one drain."""

    def __init__(self, who: Paced, load: Load, env: dict[str, str], directory: Path) -> None:
        self._who = who
        self._load = load
        self._env = env
        self._directory = directory
        self._children: list[Child] = []
        self._starts = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        config = _BUDGET.format(
            module=self._who.module,
            directory=self._directory,
            lease_s=self._load.lease_s,
            count=self._load.count,
            period_s=self._load.period_s,
            concurrency=self._load.concurrency,
        )
        (self._directory / "acklast.toml").write_text(config)
        with ExitStack() as ending:
            for number in range(self._who.processes):
                self._children.append(self._start(number))
            ending.callback(self._stop)
            yield

    def _start(self, number: int) -> Child:
        words = {"config": str(self._directory / "acklast.toml"), "number": str(number)}
        command = [sys.executable, "-m", *(word.format(**words) for word in self._who.command)]
        self._starts += 1
        log = self._directory / f"{number}-{self._starts}.log"
        return Child(command, self._env, ROOT, log)

    def _stop(self) -> None:
        for child in self._children:
            if not child.ended:
                child.stop()

    def wait_until_ready(self) -> None:
        """Until every process takes jobs in: how long they take to start is no matter of pace."""
        until = time.monotonic() + _STUCK_S
        while not all("ready" in child.last_lines(1_000_000) for child in self._children):
            if time.monotonic() > until:
                raise BenchError(f"{self._who.name} does not get ready\n{self._children[0].last_lines()}")
            time.sleep(_POLL_S)

    def wait(self, port: int, before: dict[str, Any]) -> Outcome:
        """Until every job was served once. ``before``: the account from which it counts."""
        killed, served, moved_at = not self._who.kill, -1, time.monotonic()
        while True:
            found = account(port)
            now_served = found["arrivals"] - found["refused"]
            if now_served > served:
                served, moved_at = now_served, time.monotonic()
            if served >= self._load.jobs:
                calls = self._load.jobs - before["arrivals"] + before["refused"]
                return Outcome(
                    found["arrivals"],
                    found["refused"],
                    found["worst"],
                    found["by_period"],
                    calls,
                    found["last"] - before["now"],
                )
            if not killed and served > self._load.jobs / 3:
                killed = True
                self._kill_one()
            self._look_after(moved_at, served)
            time.sleep(_POLL_S)

    def _kill_one(self) -> None:
        os.killpg(self._children[0].pid, signal.SIGKILL)
        self._children.append(self._start(0))

    def _look_after(self, moved_at: float, served: int) -> None:
        if time.monotonic() - moved_at > _STUCK_S + 2 * self._load.period_s:
            said = "\n".join(child.last_lines() for child in self._children[-2:])
            raise BenchError(f"{self._who.name} stands still after {served} jobs\n{said}")


def efficiency(load: Load, outcome: Outcome) -> float:
    """The ideal drain time over the actual one, once the start is over."""
    return outcome.calls / load.count * load.period_s / outcome.seconds if outcome.seconds > 0 else 0.0


def worst_of(outcomes: Sequence[Outcome]) -> int:
    return max(outcome.worst for outcome in outcomes)
