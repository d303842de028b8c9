"""Raises faults under load, one after the other, and says what became of every job.

Daemons work on 200 jobs a second, each published until the broker has confirmed it. A third of the way one
fault is raised; the rest of the time shows whether anything was lost, done twice or stuck, and how soon the
daemons did jobs again. Each handler notes its effects outside of its daemon.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import machine
from bench.command import carry_out
from bench.drill import Terms, drill
from bench.drill_account import Account
from bench.fault_kinds import KINDS, Fault
from bench.fault_kinds.base import chosen
from bench.progress import Progress
from bench.queues import BenchError
from bench.report import Report, show, write_json
from bench.servers import Servers
from dev.stack import stack
from dev.workspace import StackError

_HEADINGS = (
    *("fault", "lasted s", "jobs", "lost", "second effects", "in the window"),
    *("again after s", "log lines", "a second", "open"),
)


def run(options: argparse.Namespace, out: Console, progress: Progress) -> None:
    """Every fault that was asked for.

    Raises:
        BenchError: a name is unknown, or a drill missed its aim.
        Missing, StackError: there are no servers.
    """
    kinds = chosen(options.fault)
    terms = Terms(options.seconds, options.per_s, options.drain, options.keep)
    progress.say("starting broker and database")
    with stack({}) as shared:  # never servers of somebody else: they are broken here
        told = asyncio.run(machine.describe(Servers.of(shared)))
        found: dict[str, Account] = {}
        missed: list[str] = []
        progress.begin("faults", len(kinds))
        for number, kind in enumerate(kinds):
            try:
                found[kind.name] = drill(kind, number, terms, shared, progress)
            except (BenchError, StackError, OSError, TimeoutError) as problem:
                missed.append(f"{kind.name}: {problem}")  # the others are still to be seen
                progress.step(f"{kind.name} could not be carried out: {problem}")
                continue
            progress.step(kind.name)
            if said := missed_by(kind, found[kind.name]):
                missed.append(f"{kind.name}: {said}")
            if options.json:  # after each: a run that is cut short has lost nothing
                write_json(options.json, told, vars(options), [_report(found, terms)])
    show(out, _report(found, terms))
    out.print()
    for name, value in told.items():
        out.print(f"[bold]{name:>12}[/bold]  {value}", highlight=False, soft_wrap=True)
    if missed:
        raise BenchError("; ".join(missed))


def missed_by(kind: type[Fault], account: Account) -> str:
    """What a drill shows that may not be; nothing where all is well."""
    misses = (
        (f"{account.lost} lost", account.lost),
        (f"{account.outside} second effects outside the window", account.outside),
        (f"again only after {account.again_s:.1f} s", account.again_s > kind.within_s),
        (f"{account.extra.get('open')} jobs open", account.extra.get("open")),
        (f"{account.extra.get('left')} left in queues", account.extra.get("left")),
        (f"{account.lines_per_s:.1f} log lines a second", account.lines_per_s >= 1 and account.lines > 20),
    )
    return ", ".join(said for said, missed in misses if missed)


def _report(found: dict[str, Account], terms: Terms) -> Report:
    return Report(
        "faults",
        f"Faults under {terms.per_s} jobs a second",
        _HEADINGS,
        [_row(name, account) for name, account in found.items()],
        {name: _figures(account) for name, account in found.items()},
        (f"{terms.seconds:g} s of load each, or as long as the fault lasts and 10 s more",),
    )


def _figures(account: Account) -> dict[str, Any]:
    figures = asdict(account)
    return figures | {"again_s": account.again_s if isfinite(account.again_s) else None}


def _row(name: str, account: Account) -> tuple[str, ...]:
    return (
        name,
        f"{account.extra.get('lasted_s', 0):.1f}",
        f"{account.published:,}",
        f"{account.lost:,}",
        f"{account.second:,}",
        f"{account.in_window:,}",
        f"{account.again_s:.1f}" if isfinite(account.again_s) else "never",
        f"{account.lines}",
        f"{account.lines_per_s:.2f}",
        f"{account.extra.get('open', 0)}",
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    listed = "faults:\n" + "\n".join(
        f"  {name:<22} {(kind.__doc__ or '').splitlines()[0]}" for name, kind in KINDS.items()
    )
    parser = argparse.ArgumentParser(prog="make drill ARGS=...", description=__doc__, epilog=listed)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--fault", action="append", default=[], metavar="NAME", help="one of these (default all)")
    add("--seconds", type=float, default=60, help="of load for each fault, at least (default 60)")
    add("--per-s", type=int, default=200, help="jobs published a second (default 200)")
    add("--drain", type=float, default=90, help="seconds for what is left after the load (default 90)")
    add("--keep", type=Path, metavar="DIRECTORY", help="leave logs and effects there, by fault")
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    # Of the load's own connections, which die with the daemons'.
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)
    return carry_out(lambda out, progress: run(options, out, progress))


if __name__ == "__main__":
    sys.exit(main())
