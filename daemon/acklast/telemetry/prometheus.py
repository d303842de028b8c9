"""Prometheus' text, and OpenMetrics for whoever asks for it, of a snapshot: by the reference library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Final

from acklast.telemetry.metric import Kind, Metric
from acklast.telemetry.snapshot import Buckets, Family, Points, Snapshot

_EOF: Final = b"# EOF\n"
_AT_ONCE: Final = 80
"""Lines that are written in one turn of the event loop: half a millisecond or so, and no job waits longer."""


def load() -> None:
    """Import what ``render`` needs, before anybody asks: it would hold up the event loop."""
    import prometheus_client.core
    import prometheus_client.exposition  # noqa: F401 - for later


async def render(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """The text and its content type, as the ``Accept`` header prefers. Every few series the loop goes on."""
    # Here: most processes are never asked.
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    parts: list[bytes] = []
    for family in snapshot.families:
        for part in _parts(family, encode):
            parts.append(part)
            await asyncio.sleep(0)
    if content_type.startswith("application/openmetrics-text"):
        parts.append(_EOF)
    return b"".join(parts), content_type


def _parts(family: Family, encode: Callable[[Any], bytes]) -> Iterator[bytes]:
    """A family's text. What stands above its series comes once."""
    points = list(family.points.items())
    step = max(1, _AT_ONCE // (len(family.metric.bounds) + 3)) if family.metric.bounds else _AT_ONCE
    for start in range(0, len(points), step):
        text = encode(_Collected(_family(family.metric, dict(points[start : start + step]))))
        yield (text if start == 0 else _without_head(text)).removesuffix(_EOF)


def _without_head(text: bytes) -> bytes:
    while text.startswith(b"# ") and text != _EOF:
        text = text[text.index(b"\n") + 1 :]
    return text


class _Collected:
    """What the library takes for a registry."""

    def __init__(self, family: Any) -> None:
        self._family = family

    def collect(self) -> Iterator[Any]:
        yield self._family


def _family(metric: Metric, points: Points) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    make = {
        Kind.COUNTER: CounterMetricFamily,
        Kind.GAUGE: GaugeMetricFamily,
        Kind.HISTOGRAM: HistogramMetricFamily,
    }[metric.kind]
    made: Any = make(metric.prometheus, metric.description, labels=metric.labels, unit=_unit(metric))
    for labels, value in points.items():
        if isinstance(value, Buckets):
            made.add_metric(labels, _cumulative(metric, value), value.sum)
        else:
            made.add_metric(labels, value)
    return made


def _unit(metric: Metric) -> str:
    return "seconds" if metric.unit == "s" else ""


def _cumulative(metric: Metric, value: Buckets) -> list[tuple[str, int]]:
    """Prometheus' buckets hold those below them."""
    return list(zip([*map(str, metric.bounds), "+Inf"], accumulate(value.counts), strict=True))
