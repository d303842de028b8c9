"""The third table: what millions of rows that are in the ledger already do to the daemon's pace.

Each size and kind of key has a database of its own, filled before, so that the rounds can take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bench import ledgers
from bench.drain import Drained, drain
from bench.loading import Keys, load
from bench.progress import Progress
from bench.report import Report, spread
from bench.roster import Contender, chosen
from bench.servers import Servers
from bench.stats import Spread, ratios


@dataclass(frozen=True, slots=True)
class Case:
    """A ledger with so many jobs done, and the kind of key of those and of the new ones."""

    rows: int
    keys: Keys

    @property
    def name(self) -> str:
        return f"{self.keys.value}-{self.rows}"


@dataclass(frozen=True, slots=True)
class Measured:
    """One drain, and what it wrote to Postgres' log."""

    drained: Drained
    wal_bytes: int


def rows(sizes: Sequence[int], rounds: int, jobs: int, servers: Servers, progress: Progress) -> Report:
    """Throughput on an empty ledger and on full ones, for both kinds of key."""
    [contender] = chosen("d")
    cases = [Case(size, keys) for keys in Keys for size in (0, *sizes)]
    progress.begin("rows", rounds * len(cases))
    places = {case: _place(case, servers, progress) for case in cases}
    found: dict[Case, list[Measured]] = {case: [] for case in cases}
    for number in range(rounds):
        for case in cases:
            measured = _measure(contender, case, places[case], number * jobs, jobs)
            found[case].append(measured)
            progress.step(f"{case.name}: {measured.drained.rate:,.0f} jobs/s")
    return _report(found)


def _place(case: Case, servers: Servers, progress: Progress) -> Servers:
    """A database for one case, filled."""
    dsn = asyncio.run(ledgers.create(servers.dsn, f"bench_{case.keys.value}_{case.rows}"))
    if case.rows:
        progress.say(f"loading {case.rows:,} rows with {case.keys.value} keys")
        asyncio.run(load(dsn, case.rows, case.keys, datetime.now(UTC)))
    return replace(servers, dsn=dsn)


def _measure(contender: Contender, case: Case, servers: Servers, first: int, jobs: int) -> Measured:
    # Rows that were there stay; an empty ledger is emptied again.
    asyncio.run(ledgers.checkpoint(servers.dsn) if case.rows else ledgers.empty(servers.dsn))
    before = asyncio.run(ledgers.wal_bytes(servers.dsn))
    keyed = replace(contender, env={**contender.env, "BENCH_KEYS": case.keys.value})
    drained = drain(keyed, jobs, servers, first=first, clean=False)
    return Measured(drained, asyncio.run(ledgers.wal_bytes(servers.dsn)) - before)


def _report(found: dict[Case, list[Measured]]) -> Report:
    cells, figures = [], {}
    for case, all_measured in found.items():
        base = [measured.drained.rate for measured in found[Case(0, case.keys)]]
        values = figures[case.name] = _figures(case, all_measured, base)
        cells.append(
            [
                case.keys.said,
                f"{case.rows:,}",
                spread(Spread.of(values["jobs_per_s"])),
                spread(ratios(values["jobs_per_s"], base), 2),
                spread(Spread.of(values["postgres_cpu_us"])),
                spread(Spread.of(values["wal_bytes_per_job"])),
            ]
        )
    headings = ["keys", "rows before", "jobs/s", "/ empty", "postgres\nCPU us", "WAL bytes\na job"]
    notes = (
        "A checkpoint comes before each drain: the first touch of a page after it logs the whole page.",
        "WAL is that of the whole server until all jobs are done.",
    )
    return Report("rows", "A ledger that has jobs already", headings, cells, figures, notes)


def _figures(case: Case, measured: Sequence[Measured], base: Sequence[float]) -> dict[str, Any]:
    rates = [each.drained.rate for each in measured]
    return {
        "keys": case.keys.value,
        "rows": case.rows,
        "jobs": measured[0].drained.jobs,
        "jobs_per_s": rates,
        "ratio": [rate / of for rate, of in zip(rates, base, strict=True)],
        "postgres_cpu_us": [each.drained.cpu_s_per_job["postgres"] * 1e6 for each in measured],
        "wal_bytes_per_job": [each.wal_bytes / each.drained.jobs for each in measured],
    }
