"""The reference of the metrics is made of their catalogue, and its queries ask for what there is."""

from __future__ import annotations

import re

import pytest

from acklast.telemetry.catalogue import CATALOGUE
from dev.metrics_page import FILE, text
from harness.promql import wrong


def test_the_page_is_made_of_the_catalogue() -> None:
    assert FILE.read_text() == text(), "write it anew: python -m dev.metrics_page"


def test_every_metric_has_its_row() -> None:
    rows = re.findall(r"^\| `(acklast\.[a-z_.]+)` \|", FILE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(one.name for one in CATALOGUE)


@pytest.mark.parametrize("query", sorted({one.example for one in CATALOGUE if one.example}))
def test_a_query_asks_for_what_there_is(query: str) -> None:
    assert wrong(query) == []
