"""Sends encoded spans and log records by the exporters of OpenTelemetry's SDK.

They bring what is hard to get right: TLS and its variables, credentials, repetitions with their pauses, one
time limit over all of them. Their encoding alone is replaced (``wire``). Imported only where something is
exported.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY as SUPPRESS

from acklast.telemetry import wire
from acklast.telemetry.batches import Batches, NotExported
from acklast.telemetry.exports import Exports
from acklast.telemetry.resource import SCOPE
from acklast.telemetry.span import Attributes
from acklast.telemetry.variables import Batching, Route, Signal

MUTED: Final = ("opentelemetry.exporter.otlp", "opentelemetry.sdk")
"""What these would say with each batch is said once for each outage."""
_MOVED: Final = 300


class Sender:
    """Gives requests to a collector, one at a time, from one thread."""

    def __init__(self, route: Route) -> None:
        mute()
        self._exporter, self._export = (_grpc if route.protocol == "grpc" else _http)(route)
        self._quiet: object | None = None

    def send(self, request: bytes) -> None:
        """Send it, with repetitions within the route's time limit.

        Raises:
            NotExported: it did not arrive.
        """
        if self._quiet is None:
            # Of this thread: an instrumented client would make spans of sending spans.
            self._quiet = context.attach(context.set_value(SUPPRESS, True))
        self._export(request)

    def stop(self) -> None:
        """Give up what is under way."""
        self._exporter.shutdown()


def batches_to(
    route: Route, exports: Exports, batching: Batching, resource: Attributes, version: str
) -> Batches[bytes]:
    """What gathers the items of a signal, encoded as ``wire`` does, and sends them."""
    sender, whose, scope = Sender(route), wire.resource(resource), wire.scope(SCOPE, version)

    def send(batch: Sequence[bytes]) -> None:
        sender.send(wire.request(whose, scope, batch))

    return Batches(route.signal, send, exports, batching, sender.stop, len)


def mute() -> None:
    """Have the SDK and gRPC say nothing of an export that fails: ``Exports`` does."""
    # gRPC's core writes to standard error by itself, between the log's lines of JSON, at each try.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for name in MUTED:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


# --- gRPC ------------------------------------------------------------------------------------------------


class Watched:
    """Stands where an exporter keeps its own figures, and learns from there why an export failed."""

    error: Exception | None = None
    error_attrs: Any = None

    @contextmanager
    def export_operation(self, count: int) -> Iterator[Watched]:
        self.error = self.error_attrs = None
        yield self

    def why(self) -> str:
        code = getattr(self.error, "code", None)
        if callable(code):
            return str(code().name).lower()
        status = next(iter((self.error_attrs or {}).values()), None)
        return f"http_{status}" if isinstance(status, int) else _name(self.error)


class _Client:
    """The collector's service, for requests that are bytes already."""

    def __init__(self, channel: Any, method: str) -> None:
        self.Export = channel.unary_unary(method)


def _grpc(route: Route) -> tuple[Any, Callable[[bytes], None]]:
    from grpc import Compression  # type: ignore[import-untyped]  # it comes without types

    base, method = _grpc_type(route.signal)

    class Encoded(base):  # type: ignore[valid-type, misc]  # one of two classes
        """The exporter, for requests that are encoded already."""

        def _initialize_channel_and_stub(self) -> None:
            super()._initialize_channel_and_stub()
            self._client = _Client(self._channel, method)

        def _translate_data(self, data: bytes) -> bytes:
            return data

        def _count_data(self, data: bytes) -> int:
            return 1

    exporter = Encoded(
        endpoint=route.endpoint,
        headers=dict(route.headers) or None,
        timeout=route.timeout_s,
        compression=Compression.Gzip if route.compression == "gzip" else Compression.NoCompression,
    )
    watched = exporter._metrics = Watched()

    def export(request: bytes) -> None:
        if exporter.export(request).name != "SUCCESS":
            raise NotExported(watched.why())

    return exporter, export


def _grpc_type(signal: Signal) -> tuple[type, str]:
    """The exporter, and the method that it calls."""
    if signal is Signal.LOGS:
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter

        return OTLPLogExporter, "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter, "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


# --- HTTP ------------------------------------------------------------------------------------------------


def _http(route: Route) -> tuple[Any, Callable[[bytes], None]]:
    from opentelemetry.exporter.otlp.proto.http import Compression

    exporter = _http_type(route.signal)(
        endpoint=route.endpoint,
        headers=dict(route.headers) or None,
        timeout=route.timeout_s,
        compression=Compression.Gzip if route.compression == "gzip" else Compression.NoCompression,
    )
    client = no_redirects(exporter)

    def export(request: bytes) -> None:
        result = client.export(request)
        if not result.success:
            raise NotExported(f"http_{result.status_code}" if result.status_code else _name(result.error))

    return exporter, export


def no_redirects(exporter: Any) -> Any:
    """The client of an exporter by HTTP, for which nothing has arrived that was sent elsewhere: it follows no
    redirect, and takes one for success."""
    client = exporter._client
    export = client.export

    def strictly(request: bytes) -> Any:
        result = export(request)
        return replace(result, success=result.success and result.status_code < _MOVED)

    client.export = strictly
    return client


def _http_type(signal: Signal) -> Any:
    if signal is Signal.LOGS:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        return OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter


def _name(error: Exception | None) -> str:
    """Never its text, which has the URL in it."""
    return "timeout" if error is None else type(error).__name__
