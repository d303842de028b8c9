"""How results look: one table for people, the same as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from bench.drain import Drained
from bench.roster import Contender
from bench.stats import Spread, ratios

Results = Mapping[str, Sequence[Drained]]
"""Each contender's drains, one a round."""

_TREES = ("consumer", "broker", "postgres")


def spread(value: Spread, digits: int = 0) -> str:
    """A median with its range."""
    if value.low == value.high:
        return f"{value.median:,.{digits}f}"
    return f"{value.median:,.{digits}f} [dim]({value.low:,.{digits}f} to {value.high:,.{digits}f})[/dim]"


def throughput(contenders: Sequence[Contender], results: Results, base: str) -> Table:
    """The first table: jobs per second, and what a job costs whom."""
    table = Table(title="Draining a backlog: 200-byte jobs, a handler that does nothing")
    for heading in ("", "consumer", "ledger", "jobs"):
        table.add_column(heading)
    for heading in ("jobs/s", f"over ({base})", *(f"CPU us/job: {tree}" for tree in _TREES), "peak MB"):
        table.add_column(heading, justify="right")
    for contender in contenders:
        found = summary(results[contender.name], results.get(base))
        table.add_row(
            contender.name,
            contender.title,
            contender.ledger.value,
            f"{results[contender.name][0].jobs:,}",
            spread(found["rate"]),
            spread(found["ratio"], 2) if "ratio" in found else "",
            *(spread(found[f"cpu_us_{tree}"]) for tree in _TREES),
            spread(found["memory_mb"]),
        )
    return table


def summary(drains: Sequence[Drained], base: Sequence[Drained] | None) -> dict[str, Spread]:
    """One contender's figures over all rounds; no ratio where the base did not run."""
    rates = [drained.rate for drained in drains]
    found = {
        "rate": Spread.of(rates),
        "memory_mb": Spread.of([drained.memory_bytes / 1e6 for drained in drains]),
        **{
            f"cpu_us_{tree}": Spread.of([drained.cpu_s_per_job[tree] * 1e6 for drained in drains])
            for tree in _TREES
        },
    }
    if base is not None and len(base) == len(drains):
        found["ratio"] = ratios(rates, [drained.rate for drained in base])
    return found
