"""Writes the reference of the metrics from their catalogue: ``python -m dev.metrics_page``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from acklast.telemetry.catalogue import CATALOGUE, OF_RELAYS, OF_SCHEDULERS
from acklast.telemetry.metric import MOST, OTHER, Kind, Metric, Origin

FILE: Final = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"


def _listed(metrics: Sequence[Metric]) -> str:
    return ", ".join(f"`{one.name}`" for one in metrics)


_HEAD: Final = f"""\
# Metrics

Made of `daemon/acklast/telemetry/catalogue.py` by `python -m dev.metrics_page`. The same figures come as
Prometheus' text and by OTLP: [how to get them](../how-to/metrics.md).

A counter and a histogram begin at 0 when the process does, and their series are there from then on as far as
their labels are known: an increase from 0 is seen. A reason that only a handler knows is seen first with its
first job; `increase` misses that one.

| label | values |
|---|---|
| `lane`, `budget`, `schedule` | names of the configuration |
| `reason` | short codes, ours and those of handlers. Of a lane {MOST} are told apart, the rest is `{OTHER}` |
| `run` | of the 20 open runs with the nearest deadlines |
| `version`, `release` | of the program, of the application |
| others | the words that stand below the metric |

No label has a key, a job's type or anything else that grows with the work.

A daemon tells all but `acklast.schedule.firings`.
`acklast relay` tells {_listed(OF_RELAYS)}.
`acklast scheduler` tells {_listed(OF_SCHEDULERS)}.
"""

_PARTS: Final = (
    ("What happened", "Counters of one process. Add up over processes: `sum(rate(...[5m]))`."),
    (
        "How long it took",
        "Histograms of one process. A quantile over processes needs their buckets added up.",
    ),
    ("How a process stands", "Gauges, looked up when they are asked for."),
    (
        "How the fleet stands",
        "Gauges of what is in the ledger. Every daemon reads it every 15 seconds, and all tell the same:"
        " take `max`, never `sum`.",
    ),
)


def _part(metric: Metric) -> int:
    if metric.origin is Origin.FLEET:
        return 3
    return {Kind.COUNTER: 0, Kind.HISTOGRAM: 1, Kind.GAUGE: 2}[metric.kind]


def text() -> str:
    """The whole page."""
    parts = [_HEAD]
    for number, (title, about) in enumerate(_PARTS):
        metrics = [one for one in CATALOGUE if _part(one) == number]
        parts.append(f"\n## {title}\n\n{about}\n\n" + "\n".join(_table(metrics)) + "\n")
        parts += _below(metrics)
    return "".join(parts)


def _table(metrics: list[Metric]) -> Iterator[str]:
    yield "| OTLP | Prometheus | unit | labels | what it is |"
    yield "|---|---|---|---|---|"
    for one in metrics:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        unit = f"`{one.unit}`" if one.unit else ""
        yield f"| `{one.name}` | `{one.prometheus}` | {unit} | {labels} | {one.description} |"


def _below(metrics: list[Metric]) -> Iterator[str]:
    """What a table has no room for."""
    words: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in metrics:
        for label, values in one.values.items():
            words.setdefault((label, values), []).append(f"`{one.name}`")
    for (label, values), names in words.items():
        yield f"\n`{label}` of {', '.join(names)}: {', '.join(f'`{value}`' for value in values)}.\n"
    bounds: dict[tuple[float, ...], list[str]] = {}
    for one in metrics:
        if one.bounds:
            bounds.setdefault(one.bounds, []).append(f"`{one.name}`")
    for steps, names in bounds.items():
        yield f"\nBuckets of {', '.join(names)}: {', '.join(f'{step:g}' for step in steps)}.\n"
    if examples := [one.example for one in metrics if one.example]:
        yield "\n```promql\n" + "\n".join(examples) + "\n```\n"


if __name__ == "__main__":
    FILE.write_text(text())
