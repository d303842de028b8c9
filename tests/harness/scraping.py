"""Asking a process for its metrics, as Prometheus does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from acklast.telemetry.metric import Kind, Metric

OPENMETRICS: Final = "application/openmetrics-text;version=1.0.0"


@dataclass(frozen=True, slots=True)
class Scraped:
    """What a process told, by family."""

    families: dict[str, Any]

    def has(self, metric: Metric) -> bool:
        """Whether there is a series of it. Its kind, labels and their words are those that it should have."""
        family = self.families.get(metric.prometheus.removesuffix("_total"))
        if family is None or not family.samples:
            return False
        assert family.type == metric.kind.value, metric.name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels), metric.name
            for label, words in metric.values.items():
                assert sample.labels[label] in words, (metric.name, label, sample.labels)
        return True

    def value(self, metric: Metric, **labels: str) -> float:
        """The sum of the series with these labels; of a histogram, how much was observed."""
        family = self.families[metric.prometheus.removesuffix("_total")]
        name = f"{metric.prometheus}_count" if metric.kind is Kind.HISTOGRAM else metric.prometheus
        found = [
            one.value for one in family.samples if one.name == name and labels.items() <= one.labels.items()
        ]
        assert found, (metric.name, labels)
        return float(sum(found))


async def scrape(socket: Path, accept: str = "") -> Scraped:
    """Ask once.

    Raises:
        aiohttp.ClientError: nobody answers.
    """
    timeout = aiohttp.ClientTimeout(total=30)
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=timeout) as session,
        session.get("http://daemon/metrics", headers={"Accept": accept} if accept else {}) as answer,
    ):
        text = await answer.text()
        assert answer.status == 200, text
        read = read_openmetrics if accept == OPENMETRICS else read_text
        return Scraped({family.name: family for family in read(text)})
