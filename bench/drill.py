"""One drill: daemons under load, one fault, and the account of every job after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aio_pika

from acklast.ledger.postgres import PostgresLedger
from acklast_topology.declare import apply
from acklast_topology.plan import plan_for
from bench import ledgers
from bench.children import Child
from bench.contenders.drill_lane import EFFECTS, LANE, job
from bench.drill_account import Account, account, effects_of, felt_at, lines_of
from bench.drill_load import Load
from bench.fault_kinds.base import BROKER, LEDGER, NAMES, Fault, Scene
from bench.progress import Progress
from bench.queues import BenchError
from dev.proxy import Proxy
from dev.stack import Stack

_ROOT: Final = Path(__file__).parents[1]
_STARTS_S: Final = 60.0
_POLL_S: Final = 0.05
_AFTER_S: Final = 10.0
"""The load goes on for so long after a fault, at least."""
_CONFIG: Final = """
app = "bench.contenders.drill_lane:app"
state_dir = "{directory}/state"
[log]
format = "json"
[broker]
{broker}
[ledger]
{ledger}
[lanes.{lane}]
concurrency = {concurrency}
backoff_base_s = 0.05
backoff_cap_s = 0.05
max_attempts = 50
on_unknown = "retry"
{lane_lines}
"""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a drill is to do. Times are in seconds."""

    seconds: float
    per_s: int
    drain_s: float
    """How long the daemons may take to do what is left when the load has ended."""
    keep: Path | None = None
    """Where to leave the logs."""


@contextmanager
def _place(terms: Terms, name: str) -> Iterator[Path]:
    if terms.keep is None:
        with TemporaryDirectory(prefix="drill-") as directory:
            yield Path(directory)
        return
    kept = terms.keep / name
    kept.mkdir(parents=True, exist_ok=True)
    for file in kept.glob("*.*"):
        file.unlink()
    yield kept


def drill(kind: type[Fault], number: int, terms: Terms, shared: Stack, say: Progress) -> Account:
    """Carry one drill out, on a virtual host and a database of its own.

    Raises:
        BenchError: a daemon did not start, or ended by itself.
    """
    name = f"drill-{number}"
    with _place(terms, kind.name) as directory, kind.servers(shared) as stack:
        stack.broker.management.create_vhost(name)
        url = stack.broker.node.url(name) if stack.broker.node else stack.broker.url
        try:
            return asyncio.run(_carry_out(kind, name, terms, stack, url, directory, say))
        finally:
            with contextlib.suppress(OSError):  # it may not answer yet
                stack.broker.management.delete_vhost(name)


async def _carry_out(
    kind: type[Fault], name: str, terms: Terms, stack: Stack, url: str, directory: Path, say: Progress
) -> Account:
    dsn = await ledgers.create(stack.ledger.dsn, name)
    scene = Scene(stack, url, dsn, name, directory)
    async with _ways(scene, kind.ways):
        fault = kind(scene)
        await _declare(url)
        await fault.begin()
        try:
            await _start(scene, fault)
            return await _under_load(scene, fault, terms, say)
        finally:
            await asyncio.gather(*(asyncio.to_thread(_stop, child) for child in scene.daemons))


@asynccontextmanager
async def _ways(scene: Scene, wanted: tuple[str, ...]) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as open_:
        for way, url in ((BROKER, scene.url), (LEDGER, scene.dsn)):
            if way in wanted:
                scene.ways[way] = await open_.enter_async_context(Proxy(url))
        yield


async def _declare(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        findings = await apply(connection, plan_for(NAMES, [LANE]))
    if bad := [finding for finding in findings if not finding.fit]:
        raise BenchError(f"the topology does not fit: {bad}")


# --- daemons ----------------------------------------------------------------------------------------


async def _start(scene: Scene, fault: Fault) -> None:
    config = scene.directory / "acklast.toml"
    config.write_text(
        _CONFIG.format(
            directory=scene.directory,
            broker="\n".join(fault.broker_lines()),
            ledger="\n".join(fault.ledger_lines()),
            lane=LANE,
            concurrency=fault.concurrency,
            lane_lines="\n".join(fault.lane_lines()),
        )
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
    env = {**kept, "PYTHONPATH": str(_ROOT), EFFECTS: str(_effects(scene))}
    for number in range(fault.daemons):
        command = [sys.executable, "-m", "acklast", "run", "--config", str(config)]
        log = scene.directory / f"daemon-{number}.log"
        scene.daemons.append(Child([*command, "--instance", f"drill-{number}"], env, _ROOT, log))
    async with asyncio.timeout(_STARTS_S):
        while not all("daemon.ready" in child.text() for child in scene.daemons):
            _see_that_all_live(scene)
            await asyncio.sleep(_POLL_S)


def _see_that_all_live(scene: Scene) -> None:
    for child in scene.daemons:
        if child.ended:
            raise BenchError(f"a daemon has ended by itself\n{child.last_lines()}")


def _stop(child: Child) -> None:
    if not child.ended:
        child.stop()


def _effects(scene: Scene) -> Path:
    return scene.directory / "effects.txt"


# --- the fault under load -----------------------------------------------------------------------------


async def _under_load(scene: Scene, fault: Fault, terms: Terms, say: Progress) -> Account:
    load = Load(fault.publisher_urls(), partial(job, scene.vhost), terms.per_s, scene.publishing)
    done = _Done(_effects(scene), load)
    scene.is_done, scene.burst = done.all, load.burst
    ended = asyncio.Event()
    publishing = asyncio.create_task(load.publish(ended), name="load")
    try:
        began = time.time()
        await _pause(terms.seconds / 3, publishing, scene)
        raised_at = time.time()
        await fault.raise_()
        say.say(f"{fault.name}: raised")
        await _pause(fault.lasts_s, publishing, scene)
        await fault.end()
        ended_at = time.time()
        say.say(f"{fault.name}: ended")
        await _pause(max(_AFTER_S, began + terms.seconds - ended_at), publishing, scene)
    finally:
        ended.set()
        scene.publishing.set()
    await publishing
    await fault.after()
    drained = await _drained(done, terms.drain_s)
    logs = {child.pid: lines_of(child.text()) for child in scene.daemons}
    if not fault.lasts_s:
        # What raises it may take its time before and after: it came when the first daemon felt it.
        raised_at = ended_at = felt_at(logs, raised_at, ended_at)
    found = account(load.confirmed, effects_of(done.text()), logs, raised_at, ended_at)
    extra = await _asked(scene) | {"lasted_s": ended_at - raised_at, "repeats": load.repeats}
    say.say(f"{fault.name}: {found.published} jobs, {found.lost} lost, again after {found.again_s:.1f} s")
    return replace(found, extra=extra | {"drained": drained})


async def _pause(seconds: float, load: asyncio.Task[None], scene: Scene) -> None:
    """Wait, unless the load fails meanwhile or a daemon ends."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        await asyncio.wait({load}, timeout=min(left, 0.5))
        _see_that_all_live(scene)
        if load.done():
            load.result()


class _Done:
    """Which effects there are, read as they come."""

    def __init__(self, path: Path, load: Load) -> None:
        self._path = path
        self._load = load

    def text(self) -> str:
        return self._path.read_text() if self._path.exists() else ""

    def all(self) -> bool:
        """Whether all that was begun is confirmed, and has had its effect."""
        keys = {line.split()[0] for line in self.text().splitlines() if line}
        return len(self._load.confirmed) == self._load.begun and self._load.confirmed.keys() <= keys


async def _drained(done: _Done, within_s: float) -> bool:
    until = time.monotonic() + within_s
    while not done.all():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(0.5)
    return True


async def _asked(scene: Scene) -> dict[str, Any]:
    """What ledger and broker say at the end: jobs that are not done, dead letters, messages left."""
    ledger = await PostgresLedger.connect(scene.dsn, pool_size=1)
    try:
        until = time.monotonic() + _AFTER_S
        while True:
            view = await ledger.run(scene.vhost)
            left = await _left(scene.url)
            if (view and not view.open and not left) or time.monotonic() > until:
                break
            await asyncio.sleep(0.5)
    finally:
        await ledger.close()
    counts = {state.value: count for state, count in view.counts.items() if count} if view else {}
    return {"ledger": counts, "open": view.open if view else 0, "left": left}


async def _left(url: str) -> dict[str, int]:
    """Messages that are still ready in a queue."""
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        names = [queue.name for queue in plan_for(NAMES, [LANE]).queues]
        declared = [await channel.declare_queue(name, passive=True) for name in names]
    counts = {queue.name: queue.declaration_result.message_count or 0 for queue in declared}
    return {name: count for name, count in counts.items() if count}
