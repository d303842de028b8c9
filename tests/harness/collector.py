"""What daemons export to: a real collector, and a receiver in the test's own process that reads OTLP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from dev.need import Missing
from dev.otelcol import GRPC, HTTP, Collector, program
from dev.workspace import Workspace

PROTOCOLS: Final = (GRPC, HTTP)
both_protocols: Final = pytest.mark.parametrize("protocol", PROTOCOLS, ids=("grpc", "http"))
grpc_else_soak: Final = pytest.mark.parametrize(
    "protocol", [GRPC, pytest.param(HTTP, marks=pytest.mark.soak)], ids=("grpc", "http")
)
"""Where what is asked lies behind the protocol."""
http_else_soak: Final = pytest.mark.parametrize(
    "protocol", [HTTP, pytest.param(GRPC, marks=pytest.mark.soak)], ids=("http", "grpc")
)
"""The same, where several processes would import gRPC, which takes each of them seconds on a busy machine."""


@contextmanager
def collector(*, forward: str | None = None, quiet: bool = False) -> Iterator[Collector]:
    """A collector that runs; the test is skipped where there is none."""
    try:
        program()
    except Missing as missing:
        pytest.skip(str(missing))
    with Workspace() as workspace:
        made = Collector(workspace, forward=forward, quiet=quiet)
        made.start()
        yield made


def values_of(text: str, name: str) -> list[float]:
    """The values of a metric's data points, in the order in which the collector wrote them down."""
    found: list[float] = []
    for block in re.split(r"^Metric #\d+$", text, flags=re.MULTILINE)[1:]:
        if re.search(rf"-> Name: {re.escape(name)}$", block, re.MULTILINE):
            found += [float(value) for value in re.findall(r"^(?:Value|Count): (.+)$", block, re.MULTILINE)]
    return found
