"""How well a quota is kept, and how much of it is used: daemons drain a queue of calls to a metered provider.

The meter is a process of its own with a clock of its own, and counts what arrives. Rate efficiency is the
ideal drain time over the actual one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench import ledgers, machine
from bench.command import carry_out
from bench.paced import Load, Outcome, Paced, drain, efficiency, worst_of
from bench.progress import Progress
from bench.report import Report, show, write_json
from bench.servers import Servers
from bench.stats import Spread
from dev.stack import stack

_ACKLAST: Final = Paced(
    "acklast",
    "acklast",
    "bench.contenders.paced_lane",
    ("acklast", "run", "--config", "{config}", "--instance", "bench-{number}"),
    1,
)
_LIMITER: Final = Paced(
    "aiolimiter",
    "aiolimiter alone, a part each",
    "bench.contenders.aio_limiter",
    ("bench.contenders.aio_limiter",),
    1,
)


def rows_of(daemons: Sequence[int], *, kill: bool, alone: bool) -> list[Paced]:
    """Who is measured: acklast in each number of daemons, the same with one killed, and aiolimiter alone."""
    found = []
    for number in daemons:
        found.append(replace(_ACKLAST, name=f"acklast-{number}", processes=number))
        if kill:
            found.append(replace(_ACKLAST, name=f"acklast-{number}-kill", processes=number, kill=True))
    if alone:
        found += [replace(_LIMITER, name=f"aiolimiter-{number}", processes=number) for number in daemons]
    return found


def pacing(
    rows: Sequence[Paced], loads: Sequence[Load], rounds: int, servers: Servers, say: Progress
) -> Report:
    """The table: each row under each load."""
    say.begin("pacing", len(rows) * len(loads) * rounds)
    found: dict[tuple[Paced, Load], list[Outcome]] = {(row, load): [] for load in loads for row in rows}
    for _ in range(rounds):
        for row, load in found:
            outcome = drain(row, load, servers)
            found[row, load].append(outcome)
            share = efficiency(load, outcome)
            say.step(f"{row.name}: worst {outcome.worst}, 429 {outcome.refused}, used {share:.3f}")
    headings = ("who", "processes", "killed", "quota", "a call", "calls", "worst window", "429", "efficiency")
    return Report(
        "pacing",
        "A provider's quota: arrivals in its worst window, calls that it refused, and how much was used",
        headings,
        [_row(row, load, outcomes) for (row, load), outcomes in found.items()],
        {
            f"{row.name} at {load.count} per {load.period_s:g} s": _figures(load, o)
            for (row, load), o in found.items()
        },
        ("efficiency: ideal drain time over actual, once all are ready; what is killed is started again",),
    )


def _row(who: Paced, load: Load, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    used = Spread.of([efficiency(load, outcome) for outcome in outcomes])
    return (
        who.title,
        str(who.processes),
        "yes" if who.kill else "no",
        f"{load.count} per {load.period_s:g} s",
        f"{load.takes_s * 1000:g} ms",
        f"{sum(outcome.arrivals for outcome in outcomes):,}",
        f"{worst_of(outcomes)} of {load.count}",
        f"{sum(outcome.refused for outcome in outcomes):,}",
        f"{used.median:.3f}",
    )


def _figures(load: Load, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "arrivals": [outcome.arrivals for outcome in outcomes],
        "worst": [outcome.worst for outcome in outcomes],
        "refused": [outcome.refused for outcome in outcomes],
        "by_period": [outcome.by_period for outcome in outcomes],
        "efficiency": [efficiency(load, outcome) for outcome in outcomes],
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-pacing ARGS=...", description=__doc__)
    add = parser.add_argument
    add("--daemons", default="1,3,8", help="how many at a time (default 1,3,8)")
    add("--quota", type=int, default=200, help="calls in a period (default 200)")
    add("--periods", default="1", help="in seconds, separated by commas (default 1)")
    add("--calls-ms", default="20", help="how long a call takes, separated by commas (default 20)")
    add("--length", type=int, default=30, help="of a drain, in periods (default 30)")
    add("--concurrency", type=int, default=30, help="of each daemon (default 30)")
    add("--rounds", type=int, default=1, help="how often each is measured (default 1)")
    add("--no-kill", action="store_true", help="leave out the drains with a SIGKILL")
    add("--no-alone", action="store_true", help="leave out aiolimiter")
    add("--json", type=Path, metavar="FILE", help="write every round's figures there")
    return parser.parse_args(argv)


def loads_of(options: argparse.Namespace) -> list[Load]:
    return [
        Load(options.quota, float(period), float(call) / 1000, options.length, options.concurrency)
        for period in options.periods.split(",")
        for call in options.calls_ms.split(",")
    ]


def run(options: argparse.Namespace, out: Console, progress: Progress) -> None:
    """The table that was asked for.

    Raises:
        BenchError: a drain got stuck.
        Missing, StackError: there are no servers.
    """
    daemons = [int(number) for number in options.daemons.split(",")]
    rows = rows_of(daemons, kill=not options.no_kill, alone=not options.no_alone)
    with stack() as both:
        servers = Servers.of(both)
        asyncio.run(ledgers.make(servers.dsn))
        told = asyncio.run(machine.describe(servers))
        report = pacing(rows, loads_of(options), options.rounds, servers, progress)
        show(out, report)
        if options.json:
            write_json(options.json, told, vars(options), [report])
        for name, value in told.items():
            out.print(f"[bold]{name:>12}[/bold]  {value}", highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    return carry_out(lambda out, progress: run(options, out, progress))


if __name__ == "__main__":
    sys.exit(main())
