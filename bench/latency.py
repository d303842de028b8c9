"""The second table: one job at a time, from its delivery to the next one's.

With a prefetch of one the broker holds the next job back until the last one is acked: so the time between two
handlers' calls is what one job takes from its delivery to its ack, and the way to the broker and back. It is
the same measure for all, seen from outside, and needs no clock but one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from bench.drain import drain
from bench.progress import Progress
from bench.report import Report, spread
from bench.roster import BASE, Contender
from bench.servers import Servers
from bench.stats import Spread, gaps, quantile, ratios

CONTENDERS: Final = "a,b,c,d"
_NAIVE: Final = "c"


def latency(
    contenders: Sequence[Contender], rounds: int, jobs: int, servers: Servers, progress: Progress
) -> Report:
    """p50 and p99 of each contender with one job in flight."""
    alone = [replace(contender, prefetch=1, concurrency=1) for contender in contenders]
    progress.begin("latency", rounds * len(alone))
    figures: dict[str, dict[str, Any]] = {
        contender.name: {
            "title": contender.title,
            "ledger": contender.ledger.value,
            "p50_ms": [],
            "p99_ms": [],
        }
        for contender in alone
    }
    for number in range(rounds):
        start = number % len(alone)
        for contender in [*alone[start:], *alone[:start]]:
            times_ms = [gap_s * 1e3 for gap_s in gaps(drain(contender, jobs, servers).moments)]
            figures[contender.name]["p50_ms"].append(quantile(times_ms, 0.5))
            figures[contender.name]["p99_ms"].append(quantile(times_ms, 0.99))
            progress.step(f"{contender.name}: p50 {figures[contender.name]['p50_ms'][-1]:.2f} ms")
    return _report(figures, jobs)


def _report(figures: dict[str, dict[str, Any]], jobs: int) -> Report:
    rows = []
    for name, values in figures.items():
        cells = [spread(Spread.of(values[part]), 2) for part in ("p50_ms", "p99_ms")]
        compared = [_over(values, figures.get(base)) for base in (BASE, _NAIVE)]
        rows.append([name, values["title"], values["ledger"], *cells, *compared])
    headings = ["", "consumer", "ledger", "p50 ms", "p99 ms", f"p50 / {BASE}", f"p50 / {_NAIVE}"]
    notes = (
        f"{jobs:,} jobs a round, a prefetch of 1: from one handler's call to the next, its ack in between.",
    )
    return Report("latency", "One job at a time", headings, rows, figures, notes)


def _over(values: dict[str, Any], base: dict[str, Any] | None) -> str:
    return spread(ratios(values["p50_ms"], base["p50_ms"]), 2) if base else ""
