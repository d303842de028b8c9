"""What an answer by HTTP means: taken, or not."""

from __future__ import annotations

import asyncio

import pytest

from acklast.telemetry.batches import NotExported
from acklast.telemetry.metrics_otlp import otlp_exporter
from acklast.telemetry.otlp import Sender
from acklast.telemetry.registry import Registry
from acklast.telemetry.variables import Exporter, Route, Signal
from harness.downstream import downstream, says


@pytest.mark.parametrize("status", [301, 302, 308])
async def test_what_is_sent_elsewhere_has_not_arrived(status: int) -> None:
    """No exporter follows, and all of them take it for success: a proxy that wants https has nothing then."""
    async with downstream(says(status, Location="https://elsewhere.invalid/")) as collector:
        for signal in (Signal.TRACES, Signal.LOGS):
            sender = Sender(Route(signal, Exporter.OTLP, endpoint=f"{collector.url}/v1/{signal}"))
            with pytest.raises(NotExported, match=f"http_{status}"):
                await asyncio.to_thread(sender.send, b"")
            sender.stop()
        route = Route(Signal.METRICS, Exporter.OTLP, endpoint=f"{collector.url}/v1/metrics")
        metrics = otlp_exporter(route, (), "acklast", "1", delta=False)
        told = await asyncio.to_thread(metrics.export, Registry({"rent": ""}).snapshot())
        metrics.stop()
    assert told == f"http_{status}"
    assert len(collector.calls) == 3


async def test_what_is_accepted_has_arrived() -> None:
    async with downstream(says(202)) as collector:
        sender = Sender(Route(Signal.TRACES, Exporter.OTLP, endpoint=f"{collector.url}/v1/traces"))
        await asyncio.to_thread(sender.send, b"")
        sender.stop()
