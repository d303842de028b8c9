"""A daemon under load that is watched, or not: how fast it goes, what is lost, how long it takes to end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench import ledgers, meter
from bench.children import Child
from bench.contenders.watched_lanes import FAST, LEAVES, SLOTS, SLOW
from bench.feed import Feed
from bench.queues import BenchError
from bench.servers import Servers
from dev.workspace import free_port

_ROOT: Final = Path(__file__).parents[1]
_STARTS_S: Final = 60.0
_FLOWS: Final = 5000
"""Jobs of the fast lane after which all is at its pace."""
_ENDS_S: Final = 60.0
_SCRAPE_S: Final = 60.0
_POLL_S: Final = 0.02
_LEAVES: Final = "leaves"
_MOST: Final = 4_000_000
_LOST: Final = "acklast_telemetry_dropped_total{"
LISTEN: Final = "ACKLAST__HEALTH__LISTEN"
_BACKLOG: Final = {FAST: 30_000, SLOW: 2 * SLOTS}
_CONFIG: Final = """
app = "bench.contenders.watched_lanes:app"
state_dir = "{directory}/state"
[broker]
url = "{url}"
[ledger]
dsn = "{dsn}"
[log]
format = "json"
[lanes.{fast}]
concurrency = 500
prefetch = 1000
[lanes.{slow}]
concurrency = {slots}
"""


def exporting(receiver: Mapping[str, str], part: float) -> dict[str, str]:
    """All metrics, pulled and pushed, and traces of this ``part`` of the jobs."""
    return {
        **receiver,
        LISTEN: f"127.0.0.1:{free_port()}",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": f"{part:g}",
        # The default is a minute: a measurement would end before it.
        "OTEL_METRIC_EXPORT_INTERVAL": "5000",
    }


def nowhere() -> dict[str, str]:
    """Where a receiver would be, and nobody is."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}


OFF: Final = {"OTEL_SDK_DISABLED": "true"}


@dataclass(frozen=True, slots=True)
class Ended:
    """An end: from SIGTERM to the drain's receipt, and until the process was gone."""

    drain_s: float
    exit_s: float


class Watched:
    """A daemon, and what can be seen of it."""

    def __init__(self, child: Child, meters: Path, leaves: Path, listen: str, feed: Feed) -> None:
        self._child = child
        self._leaves = leaves
        self._readings = meter.Readings(meters)
        self._listen = listen
        self._feed = feed

    def done(self) -> int:
        """Jobs of the fast lane so far."""
        if self._child.ended:
            raise BenchError(f"the daemon has ended by itself\n{self._child.last_lines()}")
        return self._readings.count()

    async def rate(self, seconds: float) -> float:
        """Jobs a second, over so long from now on.

        Raises:
            BenchError: there was not always more to do, so this is no measure of the daemon.
        """
        self._feed.lowest[FAST] = _BACKLOG[FAST]
        before, began = self.done(), time.monotonic()
        await asyncio.sleep(seconds)
        rate = (self.done() - before) / (time.monotonic() - began)
        if not self._feed.lowest[FAST]:
            raise BenchError("the lane ran dry: jobs are published more slowly than they are done")
        return rate

    async def lost(self) -> float:
        """Items that were not exported, by the daemon's own count."""
        return await asyncio.to_thread(_lost, self._listen)

    async def end(self) -> Ended:
        """SIGTERM, and wait for its end.

        Raises:
            BenchError: it did not end, or without a receipt.
        """
        began, at = time.monotonic(), datetime.now(UTC)
        self._leaves.touch()
        os.kill(self._child.pid, signal.SIGTERM)
        while not self._child.ended:
            if time.monotonic() - began > _ENDS_S:
                raise BenchError(f"the daemon does not end\n{self._child.last_lines()}")
            await asyncio.sleep(_POLL_S)
        exit_s = time.monotonic() - began
        for line in reversed(self._child.last_lines(50).splitlines()):
            if '"drain.receipt"' in line:
                ended_at = datetime.fromisoformat(json.loads(line)["timestamp"])
                return Ended((ended_at - at).total_seconds(), exit_s)
        raise BenchError(f"the daemon said nothing of its drain\n{self._child.last_lines()}")


def _lost(listen: str) -> float:
    with urllib.request.urlopen(f"http://{listen}/metrics", timeout=_SCRAPE_S) as answer:
        lines: list[str] = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(_LOST))


@asynccontextmanager
async def watched(name: str, env: Mapping[str, str], servers: Servers) -> AsyncIterator[Watched]:
    """A daemon that is at its pace, on a virtual host and a database of its own; there is always more to do.

    Raises:
        BenchError: it did not get there.
    """
    dsn = await ledgers.create(servers.dsn, name)
    with servers.vhost() as url, TemporaryDirectory(prefix="watched-") as place:
        directory = Path(place)
        async with Feed(url, _BACKLOG) as feed:
            child, meters = _started(directory, url, dsn, env)
            try:
                found = Watched(child, meters, directory / _LEAVES, env.get(LISTEN, ""), feed)
                await _flows(found, child)
                yield found
            finally:
                if not child.ended:
                    await asyncio.to_thread(child.stop)


def _started(directory: Path, url: str, dsn: str, env: Mapping[str, str]) -> tuple[Child, Path]:
    told = {"directory": directory, "url": url, "dsn": dsn, "fast": FAST, "slow": SLOW, "slots": SLOTS}
    config, meters = directory / "acklast.toml", directory / "meters"
    config.write_text(_CONFIG.format(**told))
    meters.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ACKLAST", "OTEL"))}
    own = {"PYTHONPATH": str(_ROOT), meter.DIRECTORY: str(meters), meter.CAPACITY: str(_MOST)}
    own[LEAVES] = str(directory / _LEAVES)
    command = [sys.executable, "-m", "acklast", "run", "--config", str(config)]
    return Child(command, {**kept, **own, **env}, _ROOT, directory / "daemon.log"), meters


async def _flows(found: Watched, child: Child) -> None:
    until = time.monotonic() + _STARTS_S
    while found.done() < _FLOWS:
        if time.monotonic() > until:
            raise BenchError(f"the daemon did not get to its pace\n{child.last_lines()}")
        await asyncio.sleep(_POLL_S)
