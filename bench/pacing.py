"""How well a quota is kept, and how much of it is used: daemons drain a queue of calls to a metered provider.

The meter is a process of its own with a clock of its own, and counts what arrives. Rate efficiency is the
ideal drain time over the actual one. Tables:

  kept    1, 3 and 8 daemons, and the same with one killed on the way
  peers   Celery, Dramatiq and aiolimiter, each with its own rate limit
  spans   periods of 1, 10 and 60 s with calls of 20, 200 and 2,000 ms (about 20 minutes)
  quiet   what daemons make of a Retry-After
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench import ledgers, machine
from bench.command import carry_out
from bench.fairness import Runs, fairness
from bench.paced import Load, Outcome, Paced, drain, efficiency, worst_of
from bench.progress import Progress
from bench.queues import BenchError
from bench.quiet import quiet
from bench.redis import URL, redis
from bench.report import Report, show, write_json
from bench.servers import Servers
from bench.stats import Spread
from dev.need import Missing
from dev.stack import stack

ACKLAST: Final = Paced(
    "acklast",
    "acklast",
    "bench.contenders.paced_lane",
    ("acklast", "run", "--config", "{config}", "--instance", "bench-{number}"),
)
_LIMITER: Final = Paced(
    "aiolimiter",
    "aiolimiter alone, a part each",
    "bench.contenders.aio_limiter",
    ("bench.contenders.aio_limiter",),
)
_CELERY: Final = Paced(
    "celery",
    "Celery's rate_limit, a part each",
    "bench.contenders.celery_paced",
    (
        *("celery", "-A", "bench.contenders.celery_paced", "worker", "-n", "bench-{number}@%h"),
        *("-P", "threads", "-c", "{concurrency}", "--without-gossip", "--without-mingle"),
    ),
)
_DRAMATIQ: Final = Paced(
    "dramatiq",
    "Dramatiq's WindowRateLimiter",
    "bench.contenders.dramatiq_paced",
    ("dramatiq", "bench.contenders.dramatiq_paced", "--processes", "1", "--threads", "{concurrency}"),
)
_HEADINGS: Final = (
    *("who", "processes", "killed", "quota", "a call", "calls", "worst window", "429"),
    *("efficiency", "possible"),
)
_SPANS: Final = {1.0: 30, 10.0: 6, 60.0: 4}
"""Periods, and for how many of each there are jobs."""
_LARGE: Final = 10_000
_SMALL: Final = 50
_QUIET_TIMES: Final = 5


class Bench:
    """What every table is made with."""

    def __init__(self, options: argparse.Namespace, servers: Servers, say: Progress) -> None:
        self.options = options
        self.servers = servers
        self.say = say
        self.daemons = [int(number) for number in options.daemons.split(",")]

    def load(self, period_s: float = 1.0, takes_s: float = 0.02, periods: int = 0) -> Load:
        return Load(self.options.quota, period_s, takes_s, periods or self.options.length)


def kept(bench: Bench) -> Report:
    """How a quota is kept by several daemons, with one killed and without."""
    rows = [
        replace(ACKLAST, name=f"acklast-{number}{'-kill' * kill}", processes=number, kill=kill)
        for number in bench.daemons
        for kill in (False, True)
    ]
    return _table(bench, "kept", "A provider's quota, kept", [(row, bench.load()) for row in rows])


def peers(bench: Bench) -> Report:
    """The same for the rate limits of others."""
    found, notes = [_LIMITER, _CELERY], []
    with ExitStack() as running:
        try:
            found.append(replace(_DRAMATIQ, env={URL: running.enter_context(redis())}))
        except Missing as missing:
            notes.append(f"without Dramatiq: {missing}")
        rows = [
            replace(each, name=f"{each.name}-{number}", processes=number)
            for each in found
            for number in bench.daemons
        ]
        loads = [(row, bench.load()) for row in rows]
        return _table(bench, "peers", "The same with the rate limits of others", loads, notes)


def spans(bench: Bench) -> Report:
    """Other periods, and slower calls."""
    row = replace(ACKLAST, name="acklast-1")
    loads = [
        (row, bench.load(period_s, float(call) / 1000, periods))
        for period_s, periods in _SPANS.items()
        if f"{period_s:g}" in bench.options.periods.split(",")
        for call in bench.options.calls_ms.split(",")
    ]
    return _table(bench, "spans", "Other periods, and slower calls", loads)


def pauses(bench: Bench) -> Report:
    """What three daemons make of a Retry-After."""
    load = bench.load(periods=7 * _QUIET_TIMES + 20)
    return quiet(replace(ACKLAST, processes=3), load, _QUIET_TIMES, bench.servers, bench.say)


def turns(bench: Bench) -> Report:
    """What becomes of a small run behind a large one."""
    return fairness(Runs(_LARGE, _SMALL, bench.options.quota), bench.servers, bench.say)


TABLES: Final[Mapping[str, Callable[[Bench], Report]]] = {
    "kept": kept,
    "peers": peers,
    "spans": spans,
    "quiet": pauses,
    "fairness": turns,
}


def _table(
    bench: Bench, name: str, title: str, loads: Sequence[tuple[Paced, Load]], notes: Sequence[str] = ()
) -> Report:
    """Each who under his load, as often as was asked for."""
    bench.say.begin(name, len(loads) * bench.options.rounds)
    found: dict[tuple[str, Load], list[Outcome]] = {}
    for _ in range(bench.options.rounds):
        for who, load in loads:
            outcome = drain(who, load, bench.servers)
            found.setdefault((who.name, load), []).append(outcome)
            share = efficiency(load, outcome)
            bench.say.step(f"{who.name}: worst {outcome.worst}, 429 {outcome.refused}, used {share:.3f}")
    ours = all(who.module == ACKLAST.module for who, _ in loads)
    kept_columns = len(_HEADINGS) if ours else len(_HEADINGS) - 1
    said = ("efficiency: ideal drain time over actual, once all are ready; what is killed is started again",)
    return Report(
        name,
        title,
        _HEADINGS[:kept_columns],
        [_row(who, load, found[who.name, load])[:kept_columns] for who, load in loads],
        {
            f"{who.name}, {load.count} per {load.period_s:g} s, {1000 * load.takes_s:g} ms": _figures(
                load, found[who.name, load]
            )
            for who, load in loads
        },
        (*said, *notes),
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
        f"{load.possible:.3f}",
    )


def _figures(load: Load, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "accounts": [outcome.account for outcome in outcomes],
        "efficiency": [efficiency(load, outcome) for outcome in outcomes],
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make bench-pacing ARGS=...",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--tables", default=",".join(TABLES), help="which, separated by commas (default all)")
    add("--daemons", default="1,3,8", help="how many at a time (default 1,3,8)")
    add("--quota", type=int, default=200, help="calls in a period (default 200)")
    add("--periods", default="1,10,60", help="of the spans, in seconds (default 1,10,60)")
    add("--calls-ms", default="20,200,2000", help="of the spans (default 20,200,2000)")
    add("--length", type=int, default=30, help="of a drain, in periods of 1 s (default 30)")
    add("--rounds", type=int, default=1, help="how often each is measured (default 1)")
    add("--json", type=Path, metavar="FILE", help="write every round's figures there")
    return parser.parse_args(argv)


def tables_of(names: str) -> list[Callable[[Bench], Report]]:
    """The tables of a comma-separated list.

    Raises:
        BenchError: there is none of that name.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in TABLES]:
        raise BenchError(f"no table is called {', '.join(unknown)}; there are {', '.join(TABLES)}")
    return [TABLES[name] for name in wanted]


def run(options: argparse.Namespace, out: Console, progress: Progress) -> None:
    """The tables that were asked for.

    Raises:
        BenchError: a drain got stuck.
        Missing, StackError: there are no servers.
    """
    tables = tables_of(options.tables)
    with stack() as both:
        servers = Servers.of(both)
        asyncio.run(ledgers.make(servers.dsn))
        told = asyncio.run(machine.describe(servers))
        bench, reports = Bench(options, servers, progress), []
        for table in tables:
            reports.append(table(bench))
            show(out, reports[-1])
            if options.json:
                write_json(options.json, told, vars(options), reports)
        for name, value in told.items():
            out.print(f"[bold]{name:>12}[/bold]  {value}", highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    return carry_out(lambda out, progress: run(options, out, progress))


if __name__ == "__main__":
    sys.exit(main())
