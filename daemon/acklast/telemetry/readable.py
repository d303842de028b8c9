"""Spans and log records as OpenTelemetry's SDK has them: what its console exporters print."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from acklast.telemetry.record import Record
from acklast.telemetry.span import Attributes, Span
from acklast.telemetry.traceparent import Parent


def readable(one: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    """The same span."""
    attributes, state = dict(one.all_attributes), one.place.tracestate
    if one.error is not None:
        attributes["error.type"] = one.error
    trace_id = one.place.trace_id
    return ReadableSpan(
        one.operation.name,
        context=_context(trace_id, one.span_id, tracestate=state),
        parent=_context(trace_id, one.parent_id, remote=one.remote) if one.parent_id else None,
        resource=resource,
        attributes=attributes,
        links=[Link(_of(one.link))] if one.link else [],
        kind=SpanKind(one.operation.kind - 1),
        status=Status(StatusCode.UNSET if one.error is None else StatusCode.ERROR),
        start_time=one.start_ns,
        end_time=one.end_ns,
        instrumentation_scope=scope,
    )


def _of(parent: Parent) -> SpanContext:
    return SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), True, TraceFlags(parent.flags))


def _context(trace_id: str, span_id: str, *, remote: bool = False, tracestate: str = "") -> SpanContext:
    state = TraceState.from_header([tracestate])
    return SpanContext(int(trace_id, 16), int(span_id, 16), remote, TraceFlags(1), state)


def console_spans(resource: Attributes, name: str, version: str) -> Callable[[Sequence[Span]], None]:
    """Prints spans to standard output."""
    exporter, whose = ConsoleSpanExporter(), Resource(dict(resource))
    scope = InstrumentationScope(name, version)

    def send(batch: Sequence[Span]) -> None:
        exporter.export([readable(one, whose, scope) for one in batch])

    return send


def console_records(file: TextIO = sys.stdout) -> Callable[[Sequence[Record]], None]:
    """Prints log records to standard output, a line of JSON each."""

    def send(batch: Sequence[Record]) -> None:
        for one in batch:
            said = {"body": one.body, "severity": one.level, "time_unix_nano": one.at_ns}
            ids = {"trace_id": one.trace_id, "span_id": one.span_id}
            line = said | {key: value for key, value in ids.items() if value}
            print(json.dumps(line | {"attributes": dict(one.attributes)}), file=file, flush=True)

    return send
