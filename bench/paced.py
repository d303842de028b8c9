"""One paced drain: processes that call a provider with a quota, one of them killed on the way."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench import ledgers
from bench.caller import METER, PORT
from bench.children import Child
from bench.metered import Metered, provider
from bench.queues import BenchError
from bench.servers import Servers
from bench.site import Site

ROOT: Final = Path(__file__).parents[1]
BOUND_S: Final = 0.25
"""The budget's arrival_bound_s, as it is by default."""
_JITTER: Final = 0.2
_POLL_S: Final = 0.1
_STUCK_S: Final = 60.0
_CONFIG: Final = """
app = "{module}:app"
state_dir = "{directory}/state"
[ledger]
lease_s = {lease_s}
[budgets.provider]
quota = "{count} per {period_s:g} s"
arrival_bound_s = {bound_s}
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
    """What follows ``python -m``. {config} is acklast.toml, {number} tells the processes apart."""
    processes: int = 1
    kill: bool = False
    """One process dies by SIGKILL after a third of the jobs and is started again at once."""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Load:
    """The provider's quota, how long its calls take, and for how many periods there are jobs."""

    count: int
    period_s: float
    takes_s: float
    periods: int
    lease_s: float = 15.0

    @property
    def jobs(self) -> int:
        return self.count * self.periods

    @property
    def concurrency(self) -> int:
        """Of each daemon: half as much again as one needs who does all the calls by himself."""
        return max(30, ceil(1.5 * self.count * self.takes_s / self.period_s))

    @property
    def takes_between_s(self) -> tuple[float, float]:
        return self.takes_s * (1 - _JITTER), self.takes_s * (1 + _JITTER)

    @property
    def possible(self) -> float:
        """The efficiency where a permit cools from the answer, or from BOUND_S after the call."""
        return self.period_s / (self.period_s + min(self.takes_s, BOUND_S))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the meter counted in a drain, and how it went once the start was over."""

    account: Mapping[str, Any]
    generations: int
    """How many times the quota was used from then on."""
    seconds: float
    """The time between the first and the last call of these."""

    @property
    def worst(self) -> int:
        return int(self.account["worst"])

    @property
    def refused(self) -> int:
        return int(self.account["refused"])

    @property
    def arrivals(self) -> int:
        return int(self.account["arrivals"])


@contextmanager
def draining(who: Paced, load: Load, servers: Servers) -> Iterator[Drain]:
    """Fill the queue, start all, and wait until each is ready; then the drain is under way."""
    asyncio.run(ledgers.empty(servers.dsn))
    asyncio.run(ledgers.forget_budgets(servers.dsn))
    with ExitStack() as entered:
        url = entered.enter_context(servers.vhost())
        directory = Path(entered.enter_context(TemporaryDirectory(prefix="bench-")))
        quotas = {METER: (load.count, load.period_s)}
        metered = entered.enter_context(provider(load.takes_between_s, quotas))
        site = Site(url, servers.dsn, min(1000, 2 * load.concurrency), load.concurrency)
        env = _environment(who, load, site, metered.port)
        _fill(who, load.jobs, env)
        drain = Drain(who, load, env, directory, metered)
        with drain.running():
            drain.wait_until_ready()
            yield drain


def drain(who: Paced, load: Load, servers: Servers) -> Outcome:
    """Drain a queue until every job was served; the meter's account.

    Raises:
        BenchError: it got stuck.
    """
    with draining(who, load, servers) as under_way:
        # A cold start lets a whole quota through at once, which is no rate that could be kept.
        time.sleep(load.period_s)
        return under_way.wait()


def _environment(who: Paced, load: Load, site: Site, port: int) -> dict[str, str]:
    return {
        **os.environ,
        **site.environment(),
        **who.env,
        PORT: str(port),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
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


class Drain:
    """The processes of one drain, and their provider."""

    def __init__(
        self, who: Paced, load: Load, env: dict[str, str], directory: Path, metered: Metered
    ) -> None:
        self.metered = metered
        self._who = who
        self._load = load
        self._env = env
        self._directory = directory
        self._children: list[Child] = []
        self._starts = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        config = _CONFIG.format(
            module=self._who.module,
            directory=self._directory,
            lease_s=self._load.lease_s,
            count=self._load.count,
            period_s=self._load.period_s,
            bound_s=BOUND_S,
            concurrency=self._load.concurrency,
        )
        (self._directory / "acklast.toml").write_text(config)
        with ExitStack() as ending:
            ending.callback(self._stop)
            for number in range(self._who.processes):
                self._children.append(self._start(number))
            yield

    def _start(self, number: int) -> Child:
        words = {
            "config": str(self._directory / "acklast.toml"),
            "number": str(number),
            "concurrency": str(self._load.concurrency),
        }
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

    def wait(self) -> Outcome:
        """Until every job was served once; what is counted for the rate begins now."""
        before = self.metered.account(METER)
        killed, served, moved_at = not self._who.kill, -1, time.monotonic()
        while True:
            found = self.metered.account(METER)
            now_served = found["arrivals"] - found["refused"]
            if now_served > served:
                served, moved_at = now_served, time.monotonic()
            if served >= self._load.jobs:
                return self._outcome(found, before["arrivals"] - before["refused"])
            if not killed and served > self._load.jobs / 3:
                killed = True
                self._kill_one()
            self._look_after(moved_at, served)
            time.sleep(_POLL_S)

    def _outcome(self, account: Mapping[str, Any], before: int) -> Outcome:
        times, count = self.metered.served(METER), self._load.count
        # By whole quotas: of calls that come in bursts, the first and the last few say nothing of the rate.
        generations = (len(times) - 1 - before) // count
        return Outcome(account, generations, times[before + generations * count] - times[before])

    def _kill_one(self) -> None:
        os.killpg(self._children[0].pid, signal.SIGKILL)
        self._children.append(self._start(0))

    def _look_after(self, moved_at: float, served: int) -> None:
        if time.monotonic() - moved_at > _STUCK_S + 2 * self._load.period_s:
            said = "\n".join(child.last_lines() for child in self._children[-2:])
            raise BenchError(f"{self._who.name} stands still after {served} jobs\n{said}")


def efficiency(load: Load, outcome: Outcome) -> float:
    """The ideal drain time over the actual one, once the start is over."""
    return outcome.generations * load.period_s / outcome.seconds if outcome.generations else 0.0


def worst_of(outcomes: Sequence[Outcome]) -> int:
    return max(outcome.worst for outcome in outcomes)
