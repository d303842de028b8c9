"""The first table: how fast each contender drains a backlog, and what a job costs whom.

And the same for 1, 2 and 4 daemons on one queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.drain import Drained, drain
from bench.progress import Progress
from bench.report import Report, spread
from bench.roster import BASE, Contender, chosen
from bench.servers import Servers
from bench.stats import Spread, ratios

TREES = ("consumer", "broker", "postgres")
_LEAST = 200


def jobs_of(contender: Contender, jobs: int) -> int:
    return max(_LEAST, int(jobs * contender.share))


def interleaved(
    contenders: Sequence[Contender], rounds: int, jobs: int, servers: Servers, progress: Progress
) -> dict[str, list[Drained]]:
    """Each contender's drains, one a round. Each round begins with another one."""
    found: dict[str, list[Drained]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        start = number % len(contenders)
        for contender in [*contenders[start:], *contenders[:start]]:
            drained = drain(contender, jobs_of(contender, jobs), servers)
            found[contender.name].append(drained)
            progress.step(f"{contender.name}: {drained.rate:,.0f} jobs/s")
    return found


def throughput(
    contenders: Sequence[Contender], rounds: int, jobs: int, servers: Servers, progress: Progress
) -> Report:
    """What ``make bench`` is known for."""
    progress.begin("throughput", rounds * len(contenders))
    found = interleaved(contenders, rounds, jobs, servers, progress)
    return report(
        "throughput",
        "Draining a backlog: jobs of 200 bytes, a handler that does nothing",
        contenders,
        found,
        BASE,
    )


def daemons(rounds: int, jobs: int, servers: Servers, progress: Progress) -> Report:
    """One queue, several daemons."""
    [one] = chosen("d")
    several = [
        replace(one, name=f"{number} daemon{'s' * (number > 1)}", title="acklast", daemons=number)
        for number in (1, 2, 4)
    ]
    progress.begin("daemons", rounds * len(several))
    found = interleaved(several, rounds, jobs, servers, progress)
    return report("daemons", "Several daemons on one queue", several, found, several[0].name)


def report(
    name: str, title: str, contenders: Sequence[Contender], found: dict[str, list[Drained]], base: str
) -> Report:
    """Drains as a table, compared with ``base`` where it took part."""
    rows, figures = [], {}
    for contender in contenders:
        drains = found[contender.name]
        values = figures[contender.name] = _figures(contender, drains)
        rows.append(
            [
                contender.name,
                contender.title,
                contender.ledger.value,
                f"{drains[0].jobs:,}",
                spread(Spread.of(values["jobs_per_s"])),
                _ratio(values, found.get(base)),
                *(spread(Spread.of(values[f"{tree}_cpu_us"])) for tree in TREES),
                spread(Spread.of(values["peak_memory_mb"])),
            ]
        )
    headings = [
        "",
        "consumer",
        "ledger",
        "jobs",
        "jobs/s",
        f"/ {base}",
        *(f"{tree}\nCPU us" for tree in TREES),
    ]
    return Report(name, title, [*headings, "peak\nMB"], rows, figures, _NOTES)


_NOTES = (
    "Medians of the rounds, and their range. Ratios are taken within a round.",
    "CPU is that of one job: of the consumer, the broker and Postgres, each with all its processes.",
    "Peak memory adds up a consumer's processes; what they share counts for each.",
)


def _figures(contender: Contender, drains: Sequence[Drained]) -> dict[str, Any]:
    return {
        "title": contender.title,
        "ledger": contender.ledger.value,
        "jobs": drains[0].jobs,
        "jobs_per_s": [drained.rate for drained in drains],
        **{f"{tree}_cpu_us": [drained.cpu_s_per_job[tree] * 1e6 for drained in drains] for tree in TREES},
        "peak_memory_mb": [drained.memory_bytes / 1e6 for drained in drains],
    }


def _ratio(values: dict[str, Any], base: Sequence[Drained] | None) -> str:
    if base is None:
        return ""
    values["ratio"] = [rate / of.rate for rate, of in zip(values["jobs_per_s"], base, strict=True)]
    return spread(ratios(values["jobs_per_s"], [of.rate for of in base]), 2)
