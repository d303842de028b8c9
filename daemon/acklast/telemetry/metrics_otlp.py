"""Metrics by the SDK's own exporters. Imported only where they are exported, and in their thread."""

from __future__ import annotations

from typing import Any, Final

from acklast.telemetry.metrics_data import Translation
from acklast.telemetry.otlp import Watched, mute, no_redirects
from acklast.telemetry.snapshot import Snapshot
from acklast.telemetry.span import Attributes
from acklast.telemetry.variables import Exporter, Route

_AT_ONCE: Final = 10_000
"""Data points of one request: a collector takes four megabytes unless it is told to take more."""


class SdkExporter:
    """Hands snapshots on, each as MetricsData."""

    def __init__(self, route: Route, translation: Translation) -> None:
        mute()
        self._translate = translation
        self._exporter = _exporter(route)
        self._watched = self._exporter._metrics = Watched()

    def export(self, snapshot: Snapshot) -> str:
        result = self._exporter.export(self._translate(snapshot))
        return "" if result.name == "SUCCESS" else self._watched.why()

    def stop(self) -> None:
        self._exporter.shutdown()


def _exporter(route: Route) -> Any:
    headers = dict(route.headers) or None
    if route.exporter is Exporter.CONSOLE:
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        return ConsoleMetricExporter()
    if route.protocol == "grpc":
        from grpc import Compression  # type: ignore[import-untyped]  # it comes without types
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter(
            endpoint=route.endpoint,
            headers=headers,
            timeout=route.timeout_s,
            compression=Compression.Gzip if route.compression == "gzip" else Compression.NoCompression,
            max_export_batch_size=_AT_ONCE,
        )
    from opentelemetry.exporter.otlp.proto.http import Compression as HttpCompression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as ByHttp

    by_http = ByHttp(
        endpoint=route.endpoint,
        headers=headers,
        timeout=route.timeout_s,
        compression=HttpCompression.Gzip if route.compression == "gzip" else HttpCompression.NoCompression,
        max_export_batch_size=_AT_ONCE,
    )
    no_redirects(by_http)
    return by_http


def otlp_exporter(
    route: Route, resource: Attributes, scope: str, version: str, *, delta: bool
) -> SdkExporter:
    """An exporter along ``route``."""
    return SdkExporter(route, Translation(resource, scope, version, delta=delta))
