"""OTLP's bytes, held against the protocol's own messages and the SDK's encoder."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from acklast.telemetry import wire
from acklast.telemetry.readable import readable
from acklast.telemetry.record import Record
from acklast.telemetry.span import Kind, Operation, Place, Span
from acklast.telemetry.traceparent import Parent
from acklast_topology.contract import Reason

RESOURCE = (("service.instance.id", "one"), ("service.name", "acklast"))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=700)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
values = st.one_of(texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
attributes = st.dictionaries(names, values, max_size=5).map(lambda made: tuple(made.items()))
trace_ids = st.integers(1, 2**128 - 1).map(lambda n: f"{n:032x}")
span_ids = st.integers(1, 2**64 - 1).map(lambda n: f"{n:016x}")
parents = st.builds(Parent, trace_ids, span_ids, st.sampled_from([0, 1]))


operations = st.builds(
    Operation, names, st.sampled_from(Kind), st.sampled_from([(), (("fixed", "one"), ("number", 5))])
)
places = st.builds(
    Place,
    trace_ids,
    st.sampled_from([(), (("place", "here"), ("size", 300))]),
    st.none() | parents,
    st.sampled_from(["", "vendor=1"]),
)
_COMMON = {"fixed", "number", "place", "size", "error.type"}


@st.composite
def spans_of_places(draw: st.DrawFn) -> list[Span]:
    """Spans of a few places, in any order."""
    at = st.sampled_from(draw(st.lists(places, min_size=1, max_size=3)))
    return draw(st.lists(at.flatmap(spans), min_size=1, max_size=4))


@st.composite
def spans(draw: st.DrawFn, place: Place) -> Span:
    parent = draw(st.none() | span_ids)
    return Span(
        draw(operations),
        place,
        draw(span_ids),
        parent,
        draw(st.booleans()) and parent is not None,
        draw(st.integers(1, 2**63)),
        draw(st.integers(1, 2**63)),
        draw(attributes.filter(lambda made: not _COMMON & dict(made).keys())),
        draw(st.none() | names),
        draw(st.booleans()) and place.link is not None,
    )


def plain(span: Any) -> Any:
    """A span without the order of its attributes, which means nothing, and without W3C's own flags, which the
    protocol has a place for and the SDK leaves out."""
    span.attributes.sort(key=lambda one: one.key)
    span.flags &= ~0xFF
    if span.status.code == 0:
        span.ClearField("status")  # there or not, it says the same
    for link in span.links:
        link.flags &= ~0xFF
    return span


@given(spans_of_places())
def test_a_span_is_what_the_sdk_would_have_sent(made: list[Span]) -> None:
    scope = InstrumentationScope("acklast", "1")
    theirs = encode_spans([readable(one, Resource(dict(RESOURCE)), scope) for one in made])
    data = wire.request(wire.resource(RESOURCE), wire.scope("acklast", "1"), wire.spans(made))
    ours = ExportTraceServiceRequest.FromString(data)
    assert len(ours.resource_spans) == 1
    assert ours.resource_spans[0].resource == theirs.resource_spans[0].resource
    assert ours.resource_spans[0].scope_spans[0].scope == theirs.resource_spans[0].scope_spans[0].scope
    found = [plain(one) for one in ours.resource_spans[0].scope_spans[0].spans]
    wanted = [plain(one) for one in theirs.resource_spans[0].scope_spans[0].spans]
    assert found == wanted


@given(st.builds(Record, st.integers(1, 2**63), st.sampled_from(["info", "error"]), texts, attributes))
def test_a_record_can_be_read_again(made: Record) -> None:
    whole = Record(made.at_ns, made.level, made.body, made.attributes, "ab" * 16, "cd" * 8)
    data = wire.request(wire.resource(RESOURCE), wire.scope("acklast", "1"), map(wire.record, (made, whole)))
    scoped = ExportLogsServiceRequest.FromString(data).resource_logs[0].scope_logs[0]
    bare, traced = scoped.log_records
    assert (bare.body.string_value, bare.severity_text) == (made.body, made.level)
    assert bare.time_unix_nano == bare.observed_time_unix_nano == made.at_ns
    assert {one.key for one in bare.attributes} == dict(made.attributes).keys()
    assert (bare.trace_id, bare.span_id, bare.flags) == (b"", b"", 0)
    assert (traced.trace_id.hex(), traced.span_id.hex(), traced.flags) == ("ab" * 16, "cd" * 8, 1)


def test_text_that_is_no_text_does_not_stop_a_batch() -> None:
    made = Record(1, "info", "half a pair: \ud800", (("key", "\udcff"),))
    data = wire.request(b"", b"", [wire.record(made)])
    assert ExportLogsServiceRequest.FromString(data).resource_logs


def test_a_member_of_an_enumeration_is_its_text() -> None:
    """A reason is one where the daemon says it, and a request that fails takes hundreds of spans along."""
    told = [("acklast.reason", Reason.INVALID_PAYLOAD), ("acklast.reason", "invalid_payload")]
    operation, place = Operation("process", Kind.CONSUMER), Place("1" * 32)
    made = [Span(operation, place, "2" * 16, None, False, 1, 2, (one,), one[1]) for one in told]
    assert len(set(wire.spans(made))) == 1
