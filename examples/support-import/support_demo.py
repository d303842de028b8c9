"""Imports 5,000 support tickets in a batch, kills the enqueue half-way, repeats it, accounts for every row.

    python examples/support-import/support_demo.py      (or: make demo-import)

Broker and ledger are private ones, unless ACKLAST_BROKER_URL and ACKLAST_LEDGER_DSN name some: in those the
demo keeps to a namespace and a run of its own, and leaves its queues.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # for dev/, which is not installed

import aio_pika
import asyncpg
from rich.console import Console
from support_account import INVARIANTS, Evidence, summary
from support_rows import JOBS, Row, write

from acklast_topology.names import Names
from dev.demo import run, tell, tell_counts, tell_invariants
from dev.stack import Stack
from dev.stage import Commands, Process, Stuck, report_of, stand_in, wait_for

HERE: Final = Path(__file__).parent
LANE: Final = "imports"
KEY: Final = "{run}:{ticket}"
_OPEN: Final = (
    "select count(*) from acklast.jobs where run = $1 and state in ('queued', 'claimed', 'waiting')"
)
_LOOK_S: Final = 0.005
_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Show:
    """What the steps of the demo share."""

    say: Callable[[str], None]
    commands: Commands
    servers: Stack
    names: Names
    directory: Path
    run: str
    rows: Sequence[Row]

    @property
    def enqueue(self) -> list[str]:
        file = str(self.directory / "tickets.csv")
        return ["enqueue", LANE, file, "--run", self.run, "--key", KEY, "--type", "support.ticket.v1"]

    def account(self) -> dict[str, Any]:
        """``acklast runs show``; a run that does not balance is for the invariants to tell."""
        return self.commands.run("runs", "show", self.run, accept=(0, 4))[0]

    def fetch(self, sql: str) -> list[asyncpg.Record]:
        """Ask the ledger about the run, $1; a command each time would take most of the machine."""

        async def ask() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.servers.ledger.dsn)
            try:
                return await connection.fetch(sql, self.run)
            finally:
                await connection.close()

        return asyncio.run(ask())

    def open_jobs(self) -> int:
        """Jobs of the run that have something left to do."""
        return int(self.fetch(_OPEN)[0]["count"])


# --- the steps, in order --------------------------------------------------------------------------------


def perform(show: Show) -> Evidence:
    """The whole story; what the sources say of it at the end."""
    show.commands.run("ledger", "migrate")
    show.commands.run("topology", "apply")
    dry = show.commands.run(*show.enqueue, "--dry-run", accept=(2,))[-1]
    show.say(f"a dry run of {len(show.rows):,} rows: finished by {dry['forecast']['finish']}")
    killed, published = asyncio.run(until_killed(show, sum(row.kind in JOBS for row in show.rows)))
    show.say(f"SIGKILL to the enqueue with {published:,} jobs published; a daemon begins, and it is repeated")
    with Process(show.commands, show.directory / "daemon.log", "run", "--instance", "demo") as daemon:
        report = show.directory / "refused.jsonl"
        again = ("--on-error", "report", "--report", str(report))
        enqueued = show.commands.run(*show.enqueue, *again, accept=(2,))[-1]
        show.say(f"repeated: {', '.join(f'{count:,} {fate}' for fate, count in some(enqueued['counts']))}")
        daemon.says("daemon.ready")
        wait_for("every ticket is imported or refused", lambda: not show.open_jobs())
        show.say("the run is over: SIGTERM")
        code = daemon.stop()
    proof = show.directory / "proof.csv"
    holds = show.commands.run("runs", "proof", show.run, "--out", str(proof), accept=(0, 4))[0]["holds"]
    return Evidence(
        run=show.run,
        rows=show.rows,
        dry=dry,
        killed=killed,
        published=published,
        enqueued=enqueued,
        refused=[json.loads(line) for line in report.read_text().splitlines()],
        account=show.account(),
        items=items_of(show, proof),
        holds=holds,
        desk=report_of(show.commands.env["HELP_DESK_URL"]),
        exit=code,
    )


def some(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(fate, count) for fate, count in counts.items() if count]


async def until_killed(show: Show, jobs: int) -> tuple[int, int]:
    """Enqueue, and kill that with some of the jobs in the queue; how it ended, and how many there were."""
    async with await aio_pika.connect(show.servers.broker.url) as connection, connection.channel() as channel:

        async def ready() -> int:
            queue = await channel.declare_queue(show.names.work(LANE), passive=True)
            return queue.declaration_result.message_count or 0

        process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own program; the broker is asked meanwhile
            show.commands.line(*show.enqueue),
            env=show.commands.env,
            cwd=HERE,
            stdout=subprocess.DEVNULL,
        )
        until = time.monotonic() + _LIMIT_S
        while await ready() < jobs // 3 and process.poll() is None:
            if time.monotonic() > until:
                process.kill()
                raise Stuck(f"a third of the jobs was not published within {_LIMIT_S:g} s")
            await asyncio.sleep(_LOOK_S)
        process.kill()
        code = process.wait()
        return code, await ready()


def items_of(show: Show, proof: Path) -> list[dict[str, str]]:
    """The rows of the run's proof, each with its job's reason."""
    rows = show.fetch("select key, reason from acklast.jobs where run = $1")
    reasons = {row["key"]: row["reason"] or "" for row in rows}
    with proof.open(newline="", encoding="utf-8") as file:
        return [row | {"reason": reasons[row["key"]]} for row in csv.DictReader(file)]


# --- around it ------------------------------------------------------------------------------------------


def demonstrate(console: Console, servers: Stack) -> bool:
    """The demo on these servers; whether every invariant holds."""
    name = f"demo-{token_hex(3)}"
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="acklast-demo-") as directory,
        stand_in(HERE / "help_desk.py", "--port", "0") as desk,
    ):
        env = {
            **os.environ,
            **servers.environment(),
            "ACKLAST__NAMESPACE": name,
            "ACKLAST__STATE_DIR": directory,
            "HELP_DESK_URL": desk,
        }
        rows = write(Path(directory) / "tickets.csv")
        commands = Commands(HERE, env)
        say = lambda text: tell(console, text)  # noqa: E731 - two words
        found = perform(Show(say, commands, servers, Names(name), Path(directory), name, rows))
    broken = {one.__doc__ or one.__name__: list(one(found)) for one in INVARIANTS}
    conclude(console, found, broken)
    tell(console, f"{time.monotonic() - began:.0f} s, servers aside")
    return not any(broken.values())


def conclude(console: Console, found: Evidence, broken: Mapping[str, list[str]]) -> None:
    tell_counts(console, summary(found))
    tell(console, f"proof: {found.account['proof']}")
    tell_invariants(console, broken)


if __name__ == "__main__":
    sys.exit(run(demonstrate))
