"""What expressions for Prometheus name: metrics, with the labels that are asked of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from acklast.telemetry.catalogue import CATALOGUE
from acklast.telemetry.metric import Kind, Metric

TARGET_LABELS: Final = {"job", "instance"}
"""What Prometheus adds to every series."""
_SELECTOR: Final = re.compile(r"\b((?:[a-z]+:)?acklast_[a-z0-9_]+)(?::[a-z0-9]+)?(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*(?:,|$)')
_GROUPED: Final = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_SERIES: Final = ("_bucket", "_sum", "_count")


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric, or a series of a histogram, and what its labels are asked for."""

    name: str
    """Of a figure that is recorded the metric that it is made of; without the suffix of a counter."""
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""


def selectors(expression: str) -> Iterator[Selector]:
    """Every metric of ours in an expression."""
    for name, inner in _SELECTOR.findall(expression):
        matchers = _MATCHER.findall(inner)
        assert len(matchers) == inner.count('"') / 2, f"cannot read {{{inner}}}"
        yield Selector(name.rpartition(":")[2], tuple(matchers))


def grouped(expression: str) -> set[str]:
    """Every label that something is summed up or joined by."""
    lists = _GROUPED.findall(expression)
    return {label.strip() for one in lists for label in one.split(",") if label.strip()}


def series() -> dict[str, Metric]:
    """Every series that there can be, by its name in Prometheus."""
    return {
        f"{metric.prometheus}{suffix}": metric
        for metric in CATALOGUE
        for suffix in (_SERIES if metric.kind is Kind.HISTOGRAM else ("",))
    }


def wrong(expression: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """What an expression asks for that no metric has. ``variables`` are a dashboard's, with their label."""
    known, found = series(), list[str]()
    labels = set(TARGET_LABELS)
    for selector in selectors(expression):
        if (metric := known.get(selector.name, known.get(f"{selector.name}_total"))) is None:
            found.append(f"no metric is called {selector.name}")
            continue
        labels |= {*metric.labels, *(["le"] if selector.name.endswith("_bucket") else [])}
        found += [
            problem for matcher in selector.matchers if (problem := _misfit(metric, matcher, variables))
        ]
    return found + [f"nothing in it has a label {label}" for label in grouped(expression) - labels]


def _misfit(metric: Metric, matcher: tuple[str, str, str], variables: Mapping[str, str] | None) -> str:
    label, operator, value = matcher
    if label in TARGET_LABELS:
        return ""
    if label not in metric.labels:
        return f"{metric.prometheus} has no label {label}"
    if value.startswith("$"):
        return "" if (variables or {}).get(value[1:]) == label else f"{value} is no variable of label {label}"
    values = value.split("|") if "~" in operator else [value]
    allowed = metric.values.get(label)
    odd = [one for one in values if allowed is not None and one not in allowed]
    return f"{label} of {metric.prometheus} is never {odd}" if odd else ""
