"""``make bench``: runs the contenders interleaved on one private broker and one private database."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from rich.console import Console

from bench import ledgers, machine, tables
from bench.drain import Drained, drain
from bench.queues import BenchError
from bench.roster import BASE, Contender, chosen
from bench.servers import Servers
from dev.need import Missing
from dev.stack import stack
from dev.workspace import StackError

out = Console()
progress = Console(stderr=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.run", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each contender is measured")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of a drain; the slow get a share")
    parser.add_argument("--only", default="", help="contenders, separated by commas")
    return parser.parse_args(argv)


def throughput(contenders: list[Contender], options: argparse.Namespace, servers: Servers) -> None:
    """The first table."""
    results: dict[str, list[Drained]] = {contender.name: [] for contender in contenders}
    for number in range(options.rounds):
        # Each round starts with another one, so that nobody always follows the same neighbour.
        start = number % len(contenders)
        for contender in contenders[start:] + contenders[:start]:
            drained = drain(contender, max(100, int(options.jobs * contender.share)), servers)
            results[contender.name].append(drained)
            progress.print(
                f"round {number + 1} of {options.rounds}: {contender.name} {drained.rate:,.0f} jobs/s"
            )
    out.print(tables.throughput(contenders, results, BASE))


def run(options: argparse.Namespace) -> None:
    contenders = chosen(options.only)
    progress.print("starting broker and database")
    with stack() as both:
        servers = Servers.of(both)
        asyncio.run(ledgers.make(servers.dsn))
        for name, value in asyncio.run(machine.describe(servers)).items():
            out.print(f"[bold]{name:>12}[/bold]  {value}", highlight=False)
        throughput(contenders, options, servers)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    # Ended by a signal, the servers and the consumers are ended as well.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended_by)
    try:
        run(options)
    except (BenchError, Missing, StackError) as problem:
        progress.print(f"bench: {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 69
    return 0


def _ended_by(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
