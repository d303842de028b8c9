"""Metrics by OTLP: to a real collector by both protocols, and read back by a receiver of the test's own."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import pytest
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from acklast.telemetry import catalogue as of
from acklast.telemetry.catalogue import OF_DAEMONS
from acklast.telemetry.events import Emitter, Event, Notice, Settled
from acklast.telemetry.metric import Origin
from acklast.telemetry.variables import Signal
from acklast.telemetry.wiring import open_telemetry
from dev.otelcol import Collector
from dev.workspace import free_port
from harness import eventually
from harness.collector import both_protocols, grpc_else_soak, values_of
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
ONCE = pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
QUICK = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRIC_EXPORT_INTERVAL": "500"}


@ONCE
@both_protocols
async def test_a_daemon_tells_a_collector_all_that_it_counts(
    new_site: NewSite, otelcol: Collector, protocol: str
) -> None:
    env = {
        **otelcol.env(protocol),
        **QUICK,
        "OTEL_RESOURCE_ATTRIBUTES": "team=rent",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    async with new_site(quota="1000 per 1 s") as place:
        with place.daemon(env=env) as daemon:
            await daemon.ready()
            await place.publish(*(scripted(f"job-{number}", "done") for number in range(3)))
            await eventually(lambda: 3.0 in values_of(otelcol.text(), of.JOBS_DONE.name), 60, "3 are told")
            await place.publish(scripted("long", {"do": "wait", "gate": "go"}))
            await eventually(
                lambda: 1.0 in values_of(otelcol.text(), of.IN_FLIGHT.name), 60, "one is at work"
            )
            daemon.process.send_signal(signal.SIGTERM)
            await eventually(lambda: 1.0 in values_of(otelcol.text(), of.DRAINING.name), 60, "it drains")
            place.open_gate("go")
            assert await asyncio.to_thread(daemon.process.wait) == 0
            assert not daemon.said("telemetry.not_exported")
    text = otelcol.text()
    names = set(re.findall(r"-> Name: (acklast\..+)$", text, re.MULTILINE))
    assert {one.name for one in OF_DAEMONS if one.origin is Origin.PROCESS} <= names
    assert "service.name: Str(acklast)" in text
    assert "team: Str(rent)" in text


@pytest.mark.parametrize("preference", ["cumulative", "delta"])
async def test_what_arrives_is_what_was_counted(preference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first export has to wait for its imports, for seconds on a busy machine.
    monkeypatch.setattr("acklast.telemetry.metrics_export.CLOSE_S", 60)
    port = free_port()
    env = {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{port}/v1/metrics",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": preference,
        "OTEL_METRIC_EXPORT_INTERVAL": "3600000",
    }
    telemetry = open_telemetry(env, version="7", instance="one", lanes={"rent": "crm"})
    emitter = Emitter(*telemetry.sinks)
    async with OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=port)) as tap:
        telemetry.start(emitter)
        for _ in range(2):
            emitter.emit(Settled("complete", "rent", "key", outcome="done", handler_s=0.3))
        waiting = asyncio.create_task(tap.await_metric(lambda one: one.name == of.HANDLER_DURATION.name, 90))
        await telemetry.close()
        told = await waiting
    [point] = told.histogram.data_points
    assert (point.count, point.sum) == (2, pytest.approx(0.6))
    assert tuple(point.explicit_bounds) == of.HANDLER_DURATION.bounds
    assert not point.HasField("min")
    assert told.histogram.aggregation_temporality == {"delta": 1, "cumulative": 2}[preference]
    labels = {one.key: one.value.string_value for one in point.attributes}
    assert labels == {"lane": "rent", "outcome": "done"}


@grpc_else_soak
async def test_an_outage_is_told_once_and_ends_with_what_it_cost(otelcol: Collector, protocol: str) -> None:
    said: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, Notice):
            said.append(event.name)

    env = {**otelcol.env(protocol), **QUICK, "OTEL_EXPORTER_OTLP_TIMEOUT": "300"}
    telemetry = open_telemetry(env, version="7", instance="one", lanes={"rent": "crm"})
    telemetry.start(Emitter(note, *telemetry.sinks))
    counts = telemetry.exports.exports

    def reached(result: str, count: int) -> bool | None:
        return counts[Signal.METRICS, result] >= count or None

    await eventually(lambda: reached("ok", 1), 60, "one has arrived")
    otelcol.kill()
    await eventually(lambda: reached("failed", 2), 60, "two have not")
    otelcol.start()
    await eventually(lambda: "telemetry.exporting" in said or None, 60, "they arrive again")
    assert said == ["telemetry.not_exported", "telemetry.exporting"]
    assert telemetry.exports.dropped[Signal.METRICS, "export_failed"] > 0
    await telemetry.close()


def test_nothing_is_counted_where_nobody_asks() -> None:
    assert open_telemetry({}, version="7", instance="one").registry is None
