"""Redrives dead letters beside live work, and says what of its rate the live work keeps.

Two cases, each with a daemon, a virtual host and a database of its own. In *saturated* the lane's quota is
used up by live work, of which there is always more; in *room* live work needs a tenth of it. A redrive is
resumed and paused in turns, so that both are measured in one run: how many jobs a second are done of the live
work, and of the redrive.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any, Final

import aio_pika
from rich.console import Console

from acklast.ledger.connect import Address
from acklast.ledger.dead import Wanted, total
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.redrive_changes import Start, pause, resume, start
from acklast.ledger.redrive_plan import Meant, plan
from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from acklast_topology.publish import Job, Publisher
from bench import ledgers, machine
from bench.children import Child
from bench.command import carry_out
from bench.contenders.redrive_lane import DIRECTORY, EFFECTS, LANE, LIVE, MENDED, TYPE
from bench.progress import Progress
from bench.queues import BenchError
from bench.report import Report, show, spread, write_json
from bench.servers import Servers
from bench.stats import Spread
from dev.stack import stack

_ROOT: Final = Path(__file__).parents[1]
_STARTS_S: Final = 60.0
_DIES_S: Final = 120.0
_POLL_S: Final = 0.1
_SETTLES_S: Final = 3.0
"""After each turn so much is not counted: what had been released is done, the pace is found."""
_WAITS_S: Final = 2.0
"""Of live work so much waits in a lane that is saturated."""
_WHO: Final = Operator("bench", "bench")
_CONFIG: Final = """
app = "bench.contenders.redrive_lane:app"
state_dir = "{directory}/state"
[broker]
url = "{url}"
[ledger]
dsn = "{dsn}"
[budgets.downstream]
quota = "{quota} per 1 s"
[lanes.{lane}]
budget = "downstream"
concurrency = 50
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A lane's quota, the live work for it, and what a redrive is asked for: each a second.

    ``live_per_s`` None: as much as there is room for, and more.
    """

    name: str
    quota: int
    live_per_s: int | None
    asked_per_s: float


CASES: Final = (Case("saturated", 40, None, 40.0), Case("room", 100, 10, 20.0))


@dataclass(frozen=True, slots=True)
class Effect:
    live: bool
    at: float


@dataclass(frozen=True, slots=True)
class Turn:
    """A stretch of time with a redrive or without one, on the wall clock."""

    redriving: bool
    began: float
    ended: float

    def per_s(self, effects: Sequence[Effect], *, live: bool) -> float:
        """Jobs done a second. Pure."""
        count = sum(one.live is live and self.began <= one.at < self.ended for one in effects)
        return count / (self.ended - self.began)


@dataclass(frozen=True, slots=True)
class Found:
    """What a case came to, turn by turn."""

    case: Case
    alone: Spread
    beside: Spread
    """Live jobs a second without a redrive, and with one."""
    redriven: Spread

    @property
    def kept(self) -> float:
        """The part of its rate that live work keeps."""
        return self.beside.median / self.alone.median


def found_of(case: Case, turns: Sequence[Turn], effects: Sequence[Effect]) -> Found:
    """Pure."""
    off, on = ([turn for turn in turns if turn.redriving is redriving] for redriving in (False, True))
    return Found(
        case,
        Spread.of([turn.per_s(effects, live=True) for turn in off]),
        Spread.of([turn.per_s(effects, live=True) for turn in on]),
        Spread.of([turn.per_s(effects, live=False) for turn in on]),
    )


def effects_of(text: str) -> list[Effect]:
    """What the daemon has noted."""
    return [Effect(kind == LIVE, float(at)) for kind, at in map(str.split, text.splitlines())]


# --- one case -----------------------------------------------------------------------------------------


async def _carry_out(case: Case, options: argparse.Namespace, servers: Servers, say: Progress) -> Found:
    dsn = await ledgers.create(servers.dsn, f"redriving-{case.name}")
    with servers.vhost() as url, TemporaryDirectory(prefix="redriving-") as name:
        directory = Path(name)
        await _declare(url)
        async with _daemon(case, directory, url, dsn), Publisher.connect(url, in_flight=512) as publisher:
            operations = await Operations.connect(Address.of(dsn), patient=True)
            try:
                redrive = await _dead(case, options, publisher, operations)
                (directory / MENDED).touch()
                (directory / EFFECTS).touch()
                say.say(f"{case.name}: the letters are there")
                turns = await _turns(case, options, directory, publisher, operations, redrive, say)
            finally:
                operations.close()
        return found_of(case, turns, effects_of((directory / EFFECTS).read_text()))


async def _declare(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        findings = await apply(connection, plan_for(Names(), [LANE]))
    if bad := [finding for finding in findings if not finding.fit]:
        raise BenchError(f"the topology does not fit: {bad}")


@asynccontextmanager
async def _daemon(case: Case, directory: Path, url: str, dsn: str) -> AsyncIterator[None]:
    config = directory / "acklast.toml"
    told = {"directory": directory, "url": url, "dsn": dsn, "quota": case.quota, "lane": LANE}
    config.write_text(_CONFIG.format(**told))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
    env = {**kept, "PYTHONPATH": str(_ROOT), DIRECTORY: str(directory)}
    command = [sys.executable, "-m", "acklast", "run", "--config", str(config)]
    child = Child(command, env, _ROOT, directory / "daemon.log")

    async def ready() -> bool:
        return "daemon.ready" in child.text()

    try:
        await _until(ready, _STARTS_S)
        yield
        if child.ended:
            raise BenchError(f"the daemon has ended by itself\n{child.last_lines()}")
    finally:
        if not child.ended:
            await asyncio.to_thread(child.stop)


async def _until(there: Callable[[], Awaitable[bool]], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while True:
            if await there():
                return
            await asyncio.sleep(_POLL_S)


async def _publish(publisher: Publisher, live: bool, first: int, count: int) -> None:
    kind = LIVE if live else "dead"
    jobs = [Job.json(LANE, f"{kind}-{n}", {"live": live}, type=TYPE) for n in range(first, first + count)]
    async for _ in publisher.publish_many(jobs):
        pass


async def _dead(case: Case, options: argparse.Namespace, publisher: Publisher, operations: Operations) -> int:
    """Letters enough for all the turns, and a redrive of them that is paused; its number."""
    count: int = round(case.asked_per_s * (options.seconds + _SETTLES_S) * options.turns) + 100
    await _publish(publisher, False, 0, count)

    async def dead() -> bool:
        return await total(operations, Wanted(lane=LANE)) >= count

    await _until(dead, _DIES_S + count / case.quota)
    made = await plan(operations, Meant(Wanted(lane=LANE)), 3, _WHO)
    await start(operations, made.id, Start([made.letters], case.asked_per_s, 0.0, None), "measured", _WHO)
    await pause(operations, made.id, "measured", _WHO)
    return made.id


async def _turns(
    case: Case,
    options: argparse.Namespace,
    directory: Path,
    publisher: Publisher,
    operations: Operations,
    redrive: int,
    say: Progress,
) -> list[Turn]:
    """Without and with, in turns, under live work."""
    live = asyncio.create_task(_live(case, directory, publisher))
    turns = []
    try:
        for number in range(2 * options.turns):
            redriving = number % 2 == 1
            if number:
                await (resume if redriving else pause)(operations, redrive, "measured", _WHO)
            await asyncio.sleep(_SETTLES_S)
            began = time()
            await asyncio.sleep(options.seconds)
            turns.append(Turn(redriving, began, time()))
            say.step(f"{case.name}: {'redriving' if redriving else 'alone'}")
            if live.done():
                live.result()
    finally:
        live.cancel()
        await asyncio.wait({live})
    return turns


async def _live(case: Case, directory: Path, publisher: Publisher) -> None:
    """Live work for as long as this is not cancelled: some of it waits always, or so much a second."""
    number = 0
    while True:
        if case.live_per_s is None:
            done = sum(one.live for one in effects_of((directory / EFFECTS).read_text()))
            more = round(_WAITS_S * case.quota) - (number - done)
        else:
            more = 1
        await _publish(publisher, True, number, max(0, more))
        number += max(0, more)
        await asyncio.sleep(_POLL_S if case.live_per_s is None else 1 / case.live_per_s)


# --- all of them --------------------------------------------------------------------------------------


def run(options: argparse.Namespace, out: Console, progress: Progress) -> None:
    """Every case.

    Raises:
        BenchError: live work lost more than a twentieth of its rate, or a daemon ended.
        Missing, StackError: there are no servers.
    """
    cases = [case for case in CASES if options.case in (None, case.name)]
    progress.say("starting broker and database")
    with stack({}) as shared:
        servers = Servers.of(shared)
        told = asyncio.run(machine.describe(servers))
        progress.begin("redriving", 2 * options.turns * len(cases))
        found = [asyncio.run(_carry_out(case, options, servers, progress)) for case in cases]
    report = _report(found, options)
    show(out, report)
    if options.json:
        write_json(options.json, told, vars(options), [report])
    for one in found:
        if one.kept < options.keeps:
            raise BenchError(f"{one.case.name}: live work keeps {one.kept:.1%} of its rate")


def _report(found: Sequence[Found], options: argparse.Namespace) -> Report:
    headings = ("lane", "quota", "live alone /s", "beside a redrive /s", "kept", "asked /s", "redriven /s")
    return Report(
        "redriving",
        "Live work beside a redrive",
        headings,
        [_row(one) for one in found],
        {one.case.name: _figures(one) for one in found},
        (f"medians of {options.turns} turns of {options.seconds:g} s each, with and without in turns",),
    )


def _row(one: Found) -> tuple[str, ...]:
    return (
        one.case.name,
        f"{one.case.quota} per 1 s",
        spread(one.alone, 1),
        spread(one.beside, 1),
        f"{one.kept:.1%}",
        f"{one.case.asked_per_s:g}",
        spread(one.redriven, 1),
    )


def _figures(one: Found) -> dict[str, Any]:
    return {"alone": asdict(one.alone), "beside": asdict(one.beside), "redriven": asdict(one.redriven)}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-redrive ARGS=...", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--case", choices=[case.name for case in CASES], help="this one alone (default both)")
    add("--turns", type=int, default=3, help="of each kind, in each case (default 3)")
    add("--seconds", type=float, default=10, help="of each turn that count (default 10)")
    add("--keeps", type=float, default=0.95, help="of its rate live work must keep (default 0.95)")
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    return carry_out(lambda out, progress: run(options, out, progress))


if __name__ == "__main__":
    sys.exit(main())
