"""PromQL out of a metric of the catalogue: what its kind and its origin make of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from acklast.telemetry.metric import Kind, Metric, Origin

QUANTILES: Final = (0.5, 0.95, 0.99)
VARIABLES: Final = {"job": "job", "lane": "lane", "budget": "budget"}
"""What a dashboard lets choose, by the label that it is of."""
_RANGE: Final = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and what its lines are called."""

    expression: str
    legend: str


def rate(metric: Metric, *by: str, but: Mapping[str, str] | None = None) -> Query:
    """How often a second, summed up over the daemons; ``but`` leaves values of labels out."""
    asked = _asked(metric, told=[f'{label}!="{value}"' for label, value in (but or {}).items()])
    return Query(f"sum by ({', '.join(by)}) (rate({asked}[{_RANGE}]))", _legend(by))


def of(part: Query, whole: Query) -> Query:
    """How many of one for each of the other."""
    return Query(f"{part.expression} / {whole.expression}", part.legend)


def most(count: int, query: Query) -> Query:
    """Only the greatest."""
    return Query(f"topk({count}, {query.expression})", query.legend)


def quantiles(metric: Metric, *by: str) -> tuple[Query, ...]:
    """What half, all but a twentieth, and all but a hundredth do not exceed."""
    assert metric.kind is Kind.HISTOGRAM
    inner = f"sum by ({', '.join((*by, 'le'))}) (rate({_asked(metric, '_bucket')}[{_RANGE}]))"
    return tuple(
        Query(f"histogram_quantile({part}, {inner})", f"{_legend(by)} p{part * 100:g}".strip())
        for part in QUANTILES
    )


def gauge(metric: Metric, *by: str, how: str = "sum", **matchers: str) -> Query:
    """How it stands, put together by ``how`` over what ``by`` does not name.

    What every daemon tells alike is taken once first: the greatest.
    """
    asked = _asked(metric, told=[f'{label}="{value}"' for label, value in matchers.items()])
    if metric.origin is Origin.FLEET:
        if set(by) >= set(metric.labels):
            how = "max"
        else:
            asked = f"max by ({', '.join(metric.labels)}) ({asked})"
    return Query(f"{how} by ({', '.join(by)}) ({asked})", _legend(by))


def _asked(metric: Metric, suffix: str = "", told: Sequence[str] = ()) -> str:
    chosen = [f'{label}=~"${name}"' for label, name in VARIABLES.items() if label in metric.labels]
    matchers = ['job="$job"', *chosen, *told]
    return f"{metric.prometheus}{suffix}{{{', '.join(matchers)}}}"


def _legend(by: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in by)
