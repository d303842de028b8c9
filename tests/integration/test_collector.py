"""The collector that other tests export to takes what comes by both protocols, and writes it down."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as ByGrpc
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as ByHttp
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from dev.otelcol import GRPC, Collector
from harness import eventually
from harness.collector import grpc_else_soak, values_of


@grpc_else_soak
async def test_a_metric_arrives(otelcol: Collector, protocol: str) -> None:
    if protocol == GRPC:
        exporter: ByGrpc | ByHttp = ByGrpc(endpoint=otelcol.endpoint(protocol), insecure=True)
    else:
        exporter = ByHttp(endpoint=f"{otelcol.endpoint(protocol)}/v1/metrics")
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)])
    provider.get_meter("test").create_counter("some.count").add(3)
    assert provider.force_flush()
    provider.shutdown()
    await eventually(lambda: set(values_of(otelcol.text(), "some.count")) == {3.0}, 30, "it is written down")


def test_one_that_is_killed_comes_back(otelcol: Collector) -> None:
    otelcol.kill()
    otelcol.start()
    assert otelcol.text().count("Everything is ready") == 2


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_its_environment_names_the_protocol(otelcol: Collector, protocol: str) -> None:
    assert otelcol.env(protocol)["OTEL_EXPORTER_OTLP_PROTOCOL"] == protocol
