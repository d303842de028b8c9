"""Orders 2,000 cleanups, kills the daemon half-way, and accounts for every row.

    python examples/property-cleanup/demo.py      (or: make demo)

Broker and ledger are private ones, unless ACKLAST_BROKER_URL and ACKLAST_LEDGER_DSN name some: in those the
demo keeps to a namespace and a run of its own, and takes its queues away again.
"""

from __future__ import annotations

import asyncio
import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # for dev/, which is not installed

import aio_pika
import report
import summary
from report import Evidence
from rich.console import Console
from stage import (
    HERE,
    Commands,
    Daemon,
    PropertyApi,
    Stuck,
    ended_at_exit,
    environment,
    property_api,
    wait_for,
)

from acklast.cli.output import plain
from acklast.errors import AcklastError
from acklast.ledger.postgres import PostgresLedger
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from dev.need import Missing
from dev.stack import Stack, stack
from dev.workspace import StackError

ROWS: Final = HERE / "properties.csv"
LANE: Final = "cleanup"
QUOTA: Final = 450
PERIOD_S: Final = 5
"""What the property API allows: 90 a second, less than acklast.toml believes, so that it refuses some."""
LIMIT_S: Final = 120
_QUIET_S: Final = 3
"""So long without a new order: the run is over, or it hangs, and the ledger knows which."""


@dataclass(slots=True)
class Clock:
    """How long each phase took, in seconds."""

    phases: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.phases[name] = time.monotonic() - began


@dataclass(slots=True)
class Show:
    """What the steps of the demo share."""

    console: Console
    clock: Clock
    servers: Stack
    commands: Commands
    api: PropertyApi
    run: str
    rows: list[dict[str, str]]
    directory: Path
    daemons: list[Daemon] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    def effects(self) -> int:
        """Orders of this run that the API has taken so far."""
        keys = self.api.report()["keys"]
        return sum(seen["effects"] for key, seen in keys.items() if key.startswith(f"{self.run}:"))

    def start_daemon(self) -> Daemon:
        daemon = Daemon(self.commands, self.directory / f"daemon-{len(self.daemons)}.log")
        self.daemons.append(daemon)
        daemon.await_ready()
        return daemon


# --- the steps, in order --------------------------------------------------------------------------------


def perform(show: Show) -> Evidence:
    """The whole story; what the sources say of it at the end."""
    show.commands.run("ledger", "migrate")
    show.commands.run("topology", "apply")
    enqueued = enqueue(show)
    total = sum(report.end_of(row) == "done" for row in keyed(show).values())
    killed, before = until_killed(show, total)
    code, receipt = until_over(show, total)
    return Evidence(
        run=show.run,
        rows=show.rows,
        enqueued=enqueued,
        account=account_of(show),
        jobs=asyncio.run(jobs_of(show)),
        api=show.api.report(),
        killed=killed,
        effects_before=before,
        exit=code,
        receipt=receipt,
    )


def keyed(show: Show) -> dict[str, dict[str, str]]:
    return {f"{show.run}:{row['property_id']}": row for row in reversed(show.rows)}


def enqueue(show: Show) -> dict[str, int]:
    """All rows, repeats and bad ones included; the fates of the rows, counted."""
    show.say(f"enqueueing the {len(show.rows):,} rows of {ROWS.name} as run {show.run}")
    with show.clock.phase("enqueue"):
        key = "{run}:{property_id}"
        said = show.commands.run("enqueue", LANE, "--run", show.run, "--key", key, str(ROWS), accept=(0, 2))
    counts: dict[str, int] = said[-1]["counts"]
    return counts


def until_killed(show: Show, total: int) -> tuple[int, int]:
    """The first daemon, until about half of the orders are placed; how it ended, and how many were placed."""
    show.say("starting the daemon")
    with show.clock.phase("first daemon, until SIGKILL"):
        daemon = show.start_daemon()
        follow(show, daemon, total, goal=total // 2)
        killed = daemon.kill()
    before = show.effects()
    show.say(f"SIGKILL after {before:,} orders; starting it again")
    return killed, before


def until_over(show: Show, total: int) -> tuple[int, dict[str, Any]]:
    """The second daemon, until the run is over; its exit code and its drain receipt."""
    with show.clock.phase("second daemon, until the run is over"):
        daemon = show.start_daemon()
        follow(show, daemon, total, goal=total)
        wait_for("the run is over", lambda: not account_of(show)["open"], LIMIT_S)
    show.say("the run is over: SIGTERM")
    with show.clock.phase("drain"):
        return daemon.drain()


def follow(show: Show, daemon: Daemon, total: int, *, goal: int) -> None:
    """Watch the API until ``goal`` orders are placed, or no more come."""
    placed, since = -1, time.monotonic()
    with summary.bar(show.console, "orders placed", total) as at:

        def there() -> bool:
            nonlocal placed, since
            daemon.require_alive()
            now = show.effects()
            placed, since = (now, time.monotonic()) if now > placed else (placed, since)
            at(placed)
            return placed >= goal or (time.monotonic() - since > _QUIET_S and not account_of(show)["open"])

        wait_for(f"{goal} orders are placed", there, LIMIT_S)


def account_of(show: Show) -> dict[str, Any]:
    """``acklast runs show``; a run that does not balance is for the invariants to tell."""
    return show.commands.run("runs", "show", show.run, accept=(0, 4))[0]


async def jobs_of(show: Show) -> dict[str, report.Job]:
    """Every job of the file as ``acklast jobs show KEY --json`` gives it, without 1,900 processes."""
    ledger = await PostgresLedger.connect(show.servers.ledger.dsn)
    try:
        found = await asyncio.gather(*(ledger.jobs(key, LANE) for key in keyed(show)))
    finally:
        await ledger.close()
    return {view.key: plain(view) for views in found for view in views}


# --- around it ------------------------------------------------------------------------------------------


async def take_away(url: str, namespace: str) -> None:
    """Delete what the demo declared on a broker that is not its own."""
    plan = plan_for(Names(namespace), [LANE])
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        for queue in plan.queues:
            await channel.queue_delete(queue.name)
        for exchange in plan.exchanges:
            await channel.exchange_delete(exchange.name)


def where(servers: Stack, namespace: str) -> str:
    """What the demo runs on, passwords left out."""
    broker = "a private RabbitMQ" if servers.broker.node else "the broker of ACKLAST_BROKER_URL"
    ledger = "a private Postgres" if servers.ledger.cluster else "the Postgres of ACKLAST_LEDGER_DSN"
    ends = "" if servers.ledger.cluster else "; the run's rows stay in schema acklast there"
    return f"on {broker}, namespace {namespace}, and {ledger}{ends}"


def demonstrate(console: Console, clock: Clock, servers: Stack) -> bool:
    """The demo on these servers; whether every invariant holds."""
    name = f"demo-{token_hex(3)}"
    console.print(where(servers, name), markup=False, soft_wrap=True)
    with (
        tempfile.TemporaryDirectory(prefix="acklast-demo-") as directory,
        property_api(QUOTA, PERIOD_S) as api,
    ):
        env = environment(name, Path(directory), servers.environment(), api)
        with ROWS.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        show = Show(console, clock, servers, Commands(env), api, name, rows, Path(directory))
        try:
            with ended_at_exit(show.daemons):
                found = perform(show)
        finally:
            if servers.broker.node is None:
                asyncio.run(take_away(servers.broker.url, name))
        doubtful = next((key for key in found.jobs if found.crashed(key)), None)
        timeline = show.commands.text("jobs", "show", doubtful) if doubtful else ""
    summary.tell(console, found, clock.phases, timeline)
    return not report.breaches(found)


def main() -> int:
    console, clock = Console(highlight=False), Clock()
    console.print("bringing up broker and ledger")
    began = time.monotonic()
    try:
        with stack() as servers:
            clock.phases["broker and ledger (set-up)"] = time.monotonic() - began
            return 0 if demonstrate(console, clock, servers) else 1
    except (Missing, StackError, Stuck, AcklastError) as problem:
        console.print(f"demo: {problem}", style="red", markup=False)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
