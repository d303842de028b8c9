"""The fifth table: what a prune of expired rows costs the lanes that run beside it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bench import ledgers
from bench.drain import Drained, drain
from bench.loading import Keys, load
from bench.progress import Progress
from bench.report import Report, spread
from bench.roster import Contender, chosen
from bench.servers import Servers
from bench.stats import Spread, ratios

_AGE: Final = timedelta(days=60)
"""Twice what a lane keeps by default."""
_OFF: Final = {"ACKLAST__LEDGER__PRUNE_EVERY_S": "off"}
_PRUNE: Final = ("acklast", "ledger", "prune", "--config", "{config}", "--json")


def pruning(expired: int, rounds: int, jobs: int, servers: Servers, progress: Progress) -> Report:
    """The daemon on a ledger with expired rows, in turns left alone and beside ``acklast ledger prune``."""
    [usual] = chosen("d")
    alone = replace(usual, name="alone", title="the lane alone", env={**usual.env, **_OFF})
    beside = replace(alone, name="beside", title="the lane beside a prune", beside=_PRUNE)
    place = _place(expired, servers, progress)
    progress.begin("prune", rounds * 2)
    found: dict[str, list[Drained]] = {alone.name: [], beside.name: []}
    for number in range(rounds):
        order = (alone, beside) if number % 2 == 0 else (beside, alone)
        for turn, contender in enumerate(order):
            asyncio.run(ledgers.checkpoint(place.dsn))
            first = (2 * number + turn) * jobs
            drained = drain(contender, jobs, place, first=first, clean=False)
            found[contender.name].append(drained)
            progress.step(
                f"{contender.name}: {drained.rate:,.0f} jobs/s, {_removed_per_s(drained):,.0f} rows/s removed"
            )
    return _report((alone, beside), found, expired)


def _place(expired: int, servers: Servers, progress: Progress) -> Servers:
    progress.say(f"loading {expired:,} expired rows")
    dsn = asyncio.run(ledgers.create(servers.dsn, "bench_prune"))
    asyncio.run(load(dsn, expired, Keys.RUN, datetime.now(UTC) - _AGE))
    return replace(servers, dsn=dsn)


def _removed_per_s(drained: Drained) -> float:
    """Rows that the prune removed, over the time that it ran, its start included; none where none ran."""
    if drained.beside is None:
        return 0.0
    pruned: dict[str, int] = drained.beside.answer["pruned"]
    return sum(pruned.values()) / drained.beside.ran_s


def _report(contenders: tuple[Contender, Contender], found: dict[str, list[Drained]], expired: int) -> Report:
    rows, figures = [], {}
    base = [drained.rate for drained in found[contenders[0].name]]
    for contender in contenders:
        drains = found[contender.name]
        values: dict[str, Any] = {
            "title": contender.title,
            "jobs_per_s": [drained.rate for drained in drains],
            "ratio": [drained.rate / of for drained, of in zip(drains, base, strict=True)],
            "removed_per_s": [_removed_per_s(drained) for drained in drains],
            "postgres_cpu_us": [drained.cpu_s_per_job["postgres"] * 1e6 for drained in drains],
        }
        figures[contender.name] = values
        cells = [
            spread(Spread.of(values[name])) for name in ("jobs_per_s", "removed_per_s", "postgres_cpu_us")
        ]
        cells.insert(1, spread(ratios(values["jobs_per_s"], base), 2))
        rows.append([contender.title, *cells])
    headings = ["", "jobs/s", "/ alone", "rows/s\nremoved", "postgres\nCPU us"]
    notes = (
        f"{expired:,} expired rows at the start; the prune keeps its own pace, and runs longer than a drain.",
    )
    return Report(
        "prune",
        "Removing expired rows while a lane runs",
        rows=rows,
        headings=headings,
        figures=figures,
        notes=notes,
    )
