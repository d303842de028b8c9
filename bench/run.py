"""Runs the contenders interleaved, on one private broker and database, and prints how they compare."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import ledgers, machine
from bench.command import carry_out
from bench.enqueueing import enqueueing
from bench.latency import CONTENDERS as ALONE
from bench.latency import latency
from bench.progress import Progress
from bench.pruning import pruning
from bench.queues import BenchError
from bench.report import Report, show, write_json
from bench.roster import chosen, listed
from bench.rows import rows
from bench.servers import Servers
from bench.throughput import daemons, throughput
from dev.stack import stack

Table = Callable[[argparse.Namespace, Servers, Progress], Report]
USUAL: Final = "throughput,latency"


def _throughput(options: argparse.Namespace, servers: Servers, progress: Progress) -> Report:
    return throughput(chosen(options.only), options.rounds, options.jobs, servers, progress)


def _latency(options: argparse.Namespace, servers: Servers, progress: Progress) -> Report:
    wanted = chosen(ALONE) if not options.only else chosen(options.only)
    return latency(wanted, options.rounds, options.latency_jobs, servers, progress)


def _daemons(options: argparse.Namespace, servers: Servers, progress: Progress) -> Report:
    return daemons(options.rounds, options.jobs, servers, progress)


def _rows(options: argparse.Namespace, servers: Servers, progress: Progress) -> Report:
    sizes = [int(size) for size in options.rows.split(",")]
    return rows(sizes, options.rounds, options.jobs, servers, progress)


def _prune(options: argparse.Namespace, servers: Servers, progress: Progress) -> Report:
    return pruning(options.expired, options.rounds, options.jobs, servers, progress)


def _enqueue(options: argparse.Namespace, servers: Servers, progress: Progress) -> Report:
    return enqueueing(options.rounds, options.jobs, servers, progress)


TABLES: Final[dict[str, Table]] = {
    "throughput": _throughput,
    "latency": _latency,
    "daemons": _daemons,
    "rows": _rows,
    "prune": _prune,
    "enqueue": _enqueue,
}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__, epilog=listed())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--tables", default=USUAL, help=f"of {', '.join(TABLES)}, or all (default {USUAL})")
    add("--only", default="", help="contenders, separated by commas; see below")
    add("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    add("--jobs", type=int, default=20_000, help="of one drain; slow contenders get a share (default 20000)")
    add("--latency-jobs", type=int, default=1000, help="one at a time (default 1000)")
    add("--rows", default="1000000,10000000", help="in the ledger before (default 1000000,10000000)")
    add("--expired", type=int, default=1_000_000, help="rows to prune (default 1000000)")
    add("--json", type=Path, metavar="FILE", help="write every round's figures there")
    return parser.parse_args(argv)


def run(options: argparse.Namespace, out: Console, progress: Progress) -> None:
    """Everything that was asked for.

    Raises:
        BenchError: a name is unknown, or a measurement would not be one.
        Missing, StackError: there are no servers.
    """
    wanted = list(TABLES) if options.tables == "all" else options.tables.split(",")
    if unknown := [name for name in wanted if name not in TABLES]:
        raise BenchError(f"no table is called {', '.join(unknown)}; there are {', '.join(TABLES)}")
    chosen(options.only)  # a slip in a name is told before the servers start
    progress.say("starting broker and database")
    with stack() as both:
        servers = Servers.of(both)
        asyncio.run(ledgers.make(servers.dsn))
        told = asyncio.run(machine.describe(servers))
        reports = []
        for name in wanted:
            reports.append(TABLES[name](options, servers, progress))
            show(out, reports[-1])
            if options.json:  # after each: a run that is cut short has lost nothing
                write_json(options.json, told, vars(options), reports)
        _tell(out, told)


def _tell(out: Console, told: dict[str, str]) -> None:
    out.print()
    for name, value in told.items():
        out.print(f"[bold]{name:>12}[/bold]  {value}", highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    return carry_out(lambda out, progress: run(options, out, progress))


if __name__ == "__main__":
    sys.exit(main())
