"""Drains under load: SIGTERM at random moments of a daemon with four lanes, and the account of every job.

Publishers keep four lanes busy: a fast one, a slow one, one on a quota and one that fails and tries again. A
daemon gets SIGTERM; in turn it is started again once it has ended, as by a restart, or another one begins
beside it in that moment, as in a rolling upgrade. At the end every job is looked up in the ledger, and in
what the handlers noted themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aio_pika
import asyncpg
from rich.console import Console

from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from bench import ledgers, machine
from bench.command import carry_out
from bench.contenders.drain_lanes import EFFECT, LANES, NOTES, job
from bench.drain_account import Drain, Lane, Row, lane_of, notes_of, summary, wrong_with
from bench.drill_load import Load
from bench.progress import Progress
from bench.queues import BenchError
from bench.report import Report, show, write_json
from bench.servers import Servers
from dev.forker import Forked, Forker
from dev.stack import stack

_ROOT: Final = Path(__file__).parents[1]
_PATH: Final = (str(_ROOT), os.environ.get("PYTHONPATH"))
_BUCKETS_S: Final = (1, 5, 30)
_STARTS_S: Final = 60.0
_POLL_S: Final = 0.05
_STUCK_S: Final = 60.0
"""After so long without another effect what is left is lost."""
_BACKLOG: Final = 500
"""The load pauses while more than so many jobs wait: a busy machine must not end with hours of work left."""
_LOOK_S: Final = 0.5
_RUN: Final = "drains"
_ALONE: Final = "started again once it has ended"
_BESIDE: Final = "another one begins meanwhile"
_AGAIN: Final = '"disposition":"decided"'
_CONFIG: Final = """
app = "bench.contenders.drain_lanes:app"
state_dir = "{directory}/state"
wait_buckets_s = {buckets}
[log]
format = "json"
[drain]
deadline_s = {deadline_s}
[budgets.downstream]
quota = "100 per 1 s"
[lanes.fast]
concurrency = 20
[lanes.slow]
concurrency = 30
[lanes.paced]
concurrency = 10
budget = "downstream"
max_rate_limited = 1000
[lanes.flaky]
concurrency = 10
backoff_base_s = 0.05
backoff_cap_s = 0.05
max_attempts = 50
"""


@dataclass(frozen=True, slots=True)
class Running:
    """One daemon."""

    process: Forked
    log: Path

    def text(self) -> str:
        """All that it has said."""
        return self.log.read_text(errors="replace")

    def last_lines(self) -> str:
        return "\n".join(self.text().splitlines()[-15:])


@dataclass(slots=True)
class Scene:
    """Where the daemons run."""

    directory: Path
    url: str
    dsn: str
    options: argparse.Namespace
    chance: random.Random
    forker: Forker
    starts: int = 0
    drains: list[Drain] = field(default_factory=list)

    @property
    def notes(self) -> Path:
        """What the handlers write to."""
        return self.directory / "notes.txt"

    def had(self) -> set[str]:
        """The jobs that have had their effect."""
        lines = self.notes.read_text().rpartition("\n")[0].splitlines()  # the last one may be on its way
        return {line.split()[1] for line in lines if line.startswith(f"{EFFECT} ")}

    def launch(self, instance: str) -> Running:
        """Start a daemon; it is not up yet."""
        self.starts += 1
        config = self.directory / "acklast.toml"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
        servers = {"ACKLAST_BROKER_URL": self.url, "ACKLAST_LEDGER_DSN": self.dsn}
        env = {**kept, NOTES: str(self.notes), **servers}
        path = self.directory / f"daemon-{self.starts}.log"
        with path.open("wb") as log:
            command = ["run", "--config", str(config), "--instance", instance]
            return Running(self.forker.start(command, env, self.directory, log.fileno()), path)


def run(options: argparse.Namespace, out: Console, say: Progress) -> list[str]:
    """The drains, and the account after them; what is not as it must be.

    Raises:
        BenchError: a daemon did not start, or ended by itself.
        Missing, StackError: there are no servers.
    """
    say.begin("drains", options.drains)
    say.say("starting broker and database")
    with TemporaryDirectory(prefix="bench-drains-") as made, stack() as both:
        directory = options.keep or Path(made)
        directory.mkdir(parents=True, exist_ok=True)
        servers = Servers.of(both)
        told = asyncio.run(machine.describe(servers))
        with servers.vhost() as url:
            dsn = asyncio.run(ledgers.create(servers.dsn, f"drains-{os.getpid()}"))
            chance = random.Random(options.seed)  # noqa: S311 - when a signal comes
            with closing(Forker(os.pathsep.join(filter(None, _PATH)))) as forker:
                scene = Scene(directory, url, dsn, options, chance, forker)
                lanes = asyncio.run(_carry_out(scene, say))
            again = sum(log.read_text().count(_AGAIN) for log in directory.glob("daemon-*.log"))
    reports = [_drains_report(scene.drains, lanes, again), _lanes_report(lanes)]
    for report in reports:
        show(out, report)
    out.print()
    for name, value in told.items():
        out.print(f"[bold]{name:>12}[/bold]  {value}", highlight=False, soft_wrap=True)
    if options.json:
        write_json(options.json, told, vars(options), reports)
    wrong = wrong_with(lanes, scene.drains)
    for what in wrong:
        out.print(what, style="red", markup=False, highlight=False)
    return wrong


async def _carry_out(scene: Scene, say: Progress) -> dict[str, Lane]:
    config = _CONFIG.format(
        directory=scene.directory, buckets=list(_BUCKETS_S), deadline_s=scene.options.deadline
    )
    (scene.directory / "acklast.toml").write_text(config)
    scene.notes.touch()
    async with await aio_pika.connect(scene.url) as connection:
        findings = await apply(connection, plan_for(Names(), LANES, _BUCKETS_S))
    if bad := [finding for finding in findings if not finding.fit]:
        raise BenchError(f"the topology does not fit: {bad}")
    publishing = asyncio.Event()
    load = Load([scene.url], partial(job, _RUN), scene.options.per_s, publishing)
    daemon = scene.launch("one")
    try:
        await _up(daemon)
        async with _publishing(scene, load, publishing):
            for number in range(scene.options.drains):
                daemon = await _one_drain(scene, daemon, number, say)
        await _until_done(scene, load, say)
    finally:
        daemon.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(daemon.process.wait)
    return await _account(scene, load)


@asynccontextmanager
async def _publishing(scene: Scene, load: Load, on: asyncio.Event) -> AsyncIterator[None]:
    ended = asyncio.Event()
    tasks = [asyncio.create_task(load.publish(ended)), asyncio.create_task(_hold_back(scene, load, on))]
    try:
        yield
    finally:
        tasks[1].cancel()
        ended.set()
        on.set()
        await tasks[0]


async def _hold_back(scene: Scene, load: Load, on: asyncio.Event) -> None:
    """Have the load pause while too many jobs wait."""
    while True:
        await asyncio.sleep(_LOOK_S)
        (on.clear if load.begun - len(scene.had()) > _BACKLOG else on.set)()


# --- one drain ----------------------------------------------------------------------------------------


async def _one_drain(scene: Scene, daemon: Running, number: int, say: Progress) -> Running:
    """SIGTERM at some moment, and the next daemon; that one, once it is up."""
    await asyncio.sleep(scene.chance.uniform(0.1, 2 * scene.options.every - 0.1))
    if daemon.process.poll() is not None:
        raise BenchError(f"a daemon has ended by itself\n{daemon.last_lines()}")
    beside = number % 2 == 1
    stopping = asyncio.create_task(_stop(daemon, _BESIDE if beside else _ALONE, scene.options.deadline))
    if beside:
        # Before the signal or after it: the start takes about as long as the drain.
        following = scene.launch("two" if (number // 2) % 2 == 0 else "one")
        drain = await stopping
    else:
        drain = await stopping
        following = scene.launch("one" if (number // 2) % 2 == 0 else "two")
    scene.drains.append(drain)
    await _up(following)
    given_back = drain.receipt.get("given_back", 0)
    say.step(f"{drain.took_s:.2f} s, {given_back:.0f} given back{': ' * bool(drain.wrong)}{drain.wrong}")
    return following


async def _stop(daemon: Running, kind: str, deadline_s: float) -> Drain:
    began = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(daemon.process.wait)
    took_s = time.monotonic() - began
    last = _last_line(daemon.text())
    receipt = {name: value for name, value in last.items() if isinstance(value, int | float)}
    return Drain(kind, code, took_s, deadline_s, str(last.get("event")), receipt)


def _last_line(text: str) -> Mapping[str, Any]:
    try:
        line: Mapping[str, Any] = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return line


async def _up(daemon: Running) -> None:
    async with asyncio.timeout(_STARTS_S):
        while "daemon.ready" not in daemon.text():
            if daemon.process.poll() is not None:
                raise BenchError(f"a daemon did not start\n{daemon.last_lines()}")
            await asyncio.sleep(_POLL_S)


# --- after all of them --------------------------------------------------------------------------------


async def _until_done(scene: Scene, load: Load, say: Progress) -> None:
    """Wait until all that was published has had its effect; what has not by then is lost."""
    say.say("waiting for what is left")
    seen, since = 0, time.monotonic()
    while not load.confirmed.keys() <= (had := scene.had()) and time.monotonic() - since < _STUCK_S:
        if len(had) > seen:
            seen, since = len(had), time.monotonic()
        await asyncio.sleep(_LOOK_S)


async def _account(scene: Scene, load: Load) -> dict[str, Lane]:
    connection = await asyncpg.connect(scene.dsn)
    try:
        found = await connection.fetch("select lane, key, state::text, attempts from acklast.jobs")
    finally:
        await connection.close()
    rows = [Row(**row) for row in found]
    notes = notes_of(scene.notes.read_text())
    return {
        name: lane_of(
            [key for key in load.confirmed if key.startswith(f"{name}-")],
            [note for note in notes if note.key.startswith(f"{name}-")],
            [row for row in rows if row.lane == name],
        )
        for name in LANES
    }


# --- tables -------------------------------------------------------------------------------------------


def _drains_report(drains: Sequence[Drain], lanes: Mapping[str, Lane], again: int) -> Report:
    kinds = {kind: [one for one in drains if one.kind == kind] for kind in (_ALONE, _BESIDE)}
    rows = [(kind, *summary(of_kind)) for kind, of_kind in kinds.items() if of_kind]
    totals = {
        name: sum(getattr(lane, name) for lane in lanes.values()) for name in ("lost", "second", "spent")
    }
    return Report(
        "drains",
        f"{len(drains)} drains under load",
        (
            *("next daemon", "drains", "inside the deadline", "p50 s", "p95 s", "max s"),
            *("completed", "given back", "exit codes"),
        ),
        [*rows, ("all", *summary(drains))],
        {f"drain {number}": asdict(drain) for number, drain in enumerate(drains, 1)},
        (
            f"{totals['lost']} jobs lost, {totals['second']} second effects,"
            f" {totals['spent']} attempts spent on interruption",
            f"{again} deliveries came again after their verdict, and found it",
            f"seconds from the signal to the end of the process; deadline {drains[0].deadline_s:g} s",
        ),
    )


def _lanes_report(lanes: Mapping[str, Lane]) -> Report:
    return Report(
        "lanes",
        "The jobs, by the ledger and by the handlers' own notes",
        (
            *("lane", "jobs", "lost", "second effects", "failures of handlers"),
            *("attempts spent on interruption", "calls cut"),
        ),
        [
            (
                name,
                *(
                    f"{getattr(lane, one):,}"
                    for one in ("jobs", "lost", "second", "failures", "spent", "unfinished")
                ),
            )
            for name, lane in lanes.items()
        ],
        {name: asdict(lane) for name, lane in lanes.items()},
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-drains ARGS=...", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--drains", type=int, default=100, help="how many (default 100)")
    add("--per-s", type=int, default=40, help=f"jobs published a second, in {len(LANES)} lanes (default 40)")
    add("--every", type=float, default=1, help="seconds from a start to the signal (on average; default 1)")
    add("--deadline", type=float, default=15, help="of the drain, in seconds (default 15)")
    add("--seed", type=int, help="of the moments (default: others each time)")
    add("--keep", type=Path, metavar="DIRECTORY", help="leave logs and notes there")
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    # Of the load's own connections.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    wrong: list[str] = []
    code = carry_out(lambda out, progress: wrong.extend(run(options, out, progress)))
    return code or (1 if wrong else 0)


if __name__ == "__main__":
    sys.exit(main())
