"""What telemetry costs, and what a daemon notices of a collector that is killed, hangs, or was never there.

One run on one broker and one database: daemons drain the same backlog in turns with telemetry off, with all
metrics and 1 % of the traces, with all traces, and with nobody who listens. Then one daemon under load goes
through outages of its collector, and daemons are ended under load with it and without.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench import ledgers, machine
from bench.command import carry_out
from bench.drain import Drained, drain
from bench.outages import HUNG, KILLED, Ending, Outage, endings, endure
from bench.progress import Progress
from bench.queues import BenchError
from bench.receivers import Receiver, Taken, receiver
from bench.report import Report, markdown, spread, write_json
from bench.roster import Contender, chosen
from bench.servers import Servers
from bench.stats import Spread, ratios
from bench.throughput import jobs_of
from bench.watched import OFF, Ended, exporting, nowhere
from dev.otelcol import GRPC, HTTP
from dev.stack import stack

OFF_NAME: Final = "off"
FEW: Final = "metrics, 1 % of traces"
ALL: Final = "metrics, all traces"
NOBODY: Final = "1 %, nobody listens"
_FEW: Final = 0.01


@dataclass(frozen=True, slots=True)
class Kept:
    """What part of something must be left, compared with what."""

    of: str
    least: float


COSTS: Final = {FEW: Kept(OFF_NAME, 0.90), ALL: Kept(OFF_NAME, 0.65), NOBODY: Kept(FEW, 0.95)}
OUTAGE: Final = Kept("before and after", 0.95)
DRAIN: Final = 1.05
"""A drain without a collector may take so much of the time of one with it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The drains of one contender, and what its collector got of each."""

    drains: Sequence[Drained]
    taken: Sequence[Taken]

    @property
    def rates(self) -> list[float]:
        return [drained.rate for drained in self.drains]


# --- what is measured ---------------------------------------------------------------------------------


def contenders(to: Receiver) -> list[Contender]:
    """The daemon, with each of its settings."""
    [daemon] = chosen("d")
    settings = {
        OFF_NAME: OFF,
        FEW: exporting(to.env(), _FEW),
        ALL: exporting(to.env(), 1.0),
        NOBODY: exporting({**to.env(), **nowhere()}, _FEW),
    }
    return [replace(daemon, name=name, env=env) for name, env in settings.items()]


def costs(
    wanted: Sequence[Contender], options: argparse.Namespace, to: Receiver, servers: Servers, say: Progress
) -> dict[str, Cost]:
    """Each contender's drains, in turns."""
    drains: dict[str, list[Drained]] = {contender.name: [] for contender in wanted}
    taken: dict[str, list[Taken]] = {contender.name: [] for contender in wanted}
    for number in range(options.rounds):
        start = number % len(wanted)
        for contender in [*wanted[start:], *wanted[:start]]:
            before = to.taken()
            drained = drain(contender, jobs_of(contender, options.jobs), servers)
            got = to.taken().since(before)
            require(contender.name, got, drained.jobs)
            drains[contender.name].append(drained)
            taken[contender.name].append(got)
            say.step(f"{contender.name}: {drained.rate:,.0f} jobs/s, {got.spans:,} spans")
    return {name: Cost(drains[name], taken[name]) for name in drains}


def require(name: str, got: Taken, jobs: int) -> None:
    """See that a contender did what its name says. Pure.

    Raises:
        BenchError: it did not: its figure would be that of another.
    """
    if name in (OFF_NAME, NOBODY):
        if got.spans or got.points:
            raise BenchError(f"{name}: and the collector got {got.spans} spans and {got.points} data points")
        return
    part = 1.0 if name == ALL else _FEW
    # Three for each job that is sampled. Few are so many by chance only; of all, the queue may lose some.
    least = jobs * part * 2
    if got.spans < least or not got.points:
        raise BenchError(
            f"{name}: of {jobs} jobs the collector got {got.spans} spans and {got.points} data points"
        )
    if name == FEW and got.spans > jobs:
        raise BenchError(f"{name}: {got.spans} spans of {jobs} jobs are no sample")


def endings_of(to: Receiver) -> list[Ending]:
    """The ways in which a daemon is ended."""
    few = exporting(to.env(), _FEW)
    return [
        Ending(OFF_NAME, OFF),
        Ending(FEW, few),
        Ending(NOBODY, exporting({**to.env(), **nowhere()}, _FEW)),
        *(Ending(f"1 %, collector {kind.name}", few, kind) for kind in (KILLED, HUNG)),
    ]


# --- what is told -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """All of it."""

    costs: Mapping[str, Cost]
    outages: Sequence[Outage]
    ends: Mapping[str, Sequence[Ended]]

    def kept(self, name: str) -> Spread:
        """What a contender keeps of the rate of what it is compared with, round by round."""
        return ratios(self.costs[name].rates, self.costs[COSTS[name].of].rates)

    def slower(self, name: str) -> float:
        """How long a drain takes, of one with a collector that runs."""
        return _drain(self.ends[name]).median / _drain(self.ends[FEW]).median


def _drain(ends: Sequence[Ended]) -> Spread:
    return Spread.of([ended.drain_s for ended in ends])


HEADINGS: Final = (
    "telemetry",
    "jobs/s",
    "compared with",
    "ratio",
    "consumer CPU us",
    "spans",
    "not exported",
    "drain s",
    "/ collector runs",
    "gone after s",
)


def rows(found: Found) -> Iterator[list[str]]:
    """The lines of the table. Pure."""
    for name, cost in found.costs.items():
        yield [
            name,
            spread(Spread.of(cost.rates)),
            COSTS[name].of if name in COSTS else "",
            spread(found.kept(name), 2) if name in COSTS else "1.00",
            spread(Spread.of([drained.cpu_s_per_job["consumer"] * 1e6 for drained in cost.drains])),
            spread(Spread.of([got.spans for got in cost.taken])),
            "",
            *_ending(found, name),
        ]
    for outage in found.outages:
        name = f"1 %, collector {outage.kind}"
        told = [f"{outage.during:,.0f}", OUTAGE.of, f"{outage.ratio:.2f}", "", "0", f"{outage.lost:,.0f}"]
        yield [name, *told, *_ending(found, name)]


def _ending(found: Found, name: str) -> list[str]:
    if name not in found.ends:
        return ["", "", ""]
    ends = found.ends[name]
    gone = Spread.of([ended.exit_s for ended in ends])
    return [spread(_drain(ends), 2), f"{found.slower(name):.2f}", spread(gone, 2)]


def short_of(found: Found) -> list[str]:
    """What is worse than it may be. Pure."""
    said = [
        f"{name}: {kept:.0%} of the rate of {COSTS[name].of}, not {COSTS[name].least:.0%}"
        for name in COSTS
        if name in found.costs and (kept := found.kept(name).median) < COSTS[name].least
    ]
    said += [
        f"collector {outage.kind}: {outage.ratio:.0%} of the rate {OUTAGE.of}, not {OUTAGE.least:.0%}"
        for outage in found.outages
        if outage.ratio < OUTAGE.least
    ]
    return said + [
        f"{name}: a drain takes {slower:.2f} of the time of one with a collector, not {DRAIN:.2f}"
        for name in found.ends
        if name != OFF_NAME and (slower := found.slower(name)) > DRAIN
    ]


# --- the run ------------------------------------------------------------------------------------------


def run(options: argparse.Namespace, out: Console, say: Progress) -> None:
    """Everything.

    Raises:
        BenchError: somebody did not do what it was to do, or a target is missed; the table is printed before.
        Missing, StackError: there are no servers.
    """
    say.say("starting broker, database and collector")
    with stack({}) as shared, receiver(options.protocol) as to:
        servers = Servers.of(shared)
        asyncio.run(ledgers.make(servers.dsn))
        told = asyncio.run(machine.describe(servers)) | {"collector": to.title}
        found = _measure(options, to, servers, say)
    report = _report(found, options)
    out.print("\n".join(markdown(report)), markup=False, highlight=False, soft_wrap=True)
    for line in (*report.notes, *(f"{name}: {value}" for name, value in told.items())):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if options.json:
        write_json(options.json, told, vars(options), [report])
    if (short := short_of(found)) and not options.any:
        raise BenchError("; ".join(short))


def _measure(options: argparse.Namespace, to: Receiver, servers: Servers, say: Progress) -> Found:
    wanted = contenders(to)
    say.begin("cost", options.rounds * len(wanted))
    cost = costs(wanted, options, to, servers, say)
    say.begin("outages", 2)
    outages = asyncio.run(endure(to, _FEW, options.outage, options.turn, servers, say))
    ends = endings_of(to)
    say.begin("drains", options.drains * len(ends))
    return Found(cost, outages, asyncio.run(endings(ends, options.drains, to, servers, say)))


def _report(found: Found, options: argparse.Namespace) -> Report:
    notes = (
        "Broker, Postgres, the daemon, its collector and what publishes share the cores.",
        f"Medians of {options.rounds} drains of a backlog, and of {options.drains} ends under load.",
        f"Each outage takes {options.outage:g} s; it is compared with {options.turn:g} s before and after.",
    )
    return Report("telemetry", "What telemetry costs", HEADINGS, list(rows(found)), _figures(found), notes)


def _figures(found: Found) -> dict[str, dict[str, Any]]:
    figures: dict[str, dict[str, Any]] = {
        name: {
            "jobs_per_s": cost.rates,
            "spans": [got.spans for got in cost.taken],
            "points": [got.points for got in cost.taken],
        }
        for name, cost in found.costs.items()
    }
    for outage in found.outages:
        figures[f"1 %, collector {outage.kind}"] = {
            "before": outage.before,
            "during": outage.during,
            "after": outage.after,
            "lost": outage.lost,
        }
    for name, ends in found.ends.items():
        figures[name] |= {"drain_s": [one.drain_s for one in ends], "exit_s": [one.exit_s for one in ends]}
    return figures


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-telemetry ARGS=...", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="drains of each setting (default 3)")
    add("--jobs", type=int, default=10_000, help="half the jobs of a drain (default 10000)")
    add("--outage", type=float, default=60, metavar="S", help="how long each outage takes (default 60)")
    add("--turn", type=float, default=10, metavar="S", help="measured before and after it (default 10)")
    add("--drains", type=int, default=2, help="ends under load of each setting (default 2)")
    add("--protocol", choices=(GRPC, HTTP), default=GRPC, help=f"of a real collector (default {GRPC})")
    add("--any", action="store_true", help="do not fail where a target is missed")
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    return carry_out(lambda out, progress: run(options, out, progress))


if __name__ == "__main__":
    sys.exit(main())
