"""Whose trace a delivery is in, and whether its spans are made."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    DEFAULT_ON,
    Decision,
    ParentBasedTraceIdRatio,
    TraceIdRatioBased,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from acklast.handlers.context import Context
from acklast.telemetry.current import current, extract, inject
from acklast.telemetry.events import Settled
from acklast.telemetry.spans import Clock, Names, spans_of
from acklast.telemetry.trace import Trace
from acklast.telemetry.traceparent import Parent, parent_of
from acklast.telemetry.tracer import Sampler, SpanTracer, Tracer
from acklast.telemetry.tracing import server_of
from acklast.telemetry.variables import Sampling
from acklast_topology.contract import Envelope, RawMessage, parse
from acklast_topology.job import Job

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
IDS = [f"{number * 0x9E3779B97F4A7C15 % 2**64:032x}" for number in range(1, 200)]


def message(key: str = "k-1", body: bytes = b"{}", **headers: Any) -> Envelope:
    read = parse(RawMessage(body, message_id=key, headers=headers))
    assert isinstance(read, Envelope)
    return read


def tracer(name: str = "parentbased_always_on", ratio: float = 1.0, salt: str = "here") -> SpanTracer:
    return SpanTracer(Sampler(Sampling(name, ratio)), salt)


@pytest.mark.parametrize("flags", [None, 0, 1])
@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("always_on", ALWAYS_ON),
        ("always_off", ALWAYS_OFF),
        ("traceidratio", TraceIdRatioBased(0.3)),
        ("parentbased_always_on", DEFAULT_ON),
        ("parentbased_always_off", DEFAULT_OFF),
        ("parentbased_traceidratio", ParentBasedTraceIdRatio(0.3)),
    ],
)
def test_it_is_sampled_as_the_sdk_would(name: str, theirs: Any, flags: int | None) -> None:
    ours = Sampler(Sampling(name, 0.3))
    for trace_id in IDS:
        parent, context = None, None
        if flags is not None:
            parent = Parent(trace_id, SPAN, flags)
            remote = SpanContext(int(trace_id, 16), int(SPAN, 16), True, TraceFlags(flags))
            context = trace.set_span_in_context(NonRecordingSpan(remote))
        wanted = theirs.should_sample(context, int(trace_id, 16), "x").decision
        assert ours.samples(trace_id, parent) is (wanted is Decision.RECORD_AND_SAMPLE)


def test_every_delivery_of_a_job_without_a_parent_is_in_the_same_trace() -> None:
    first, again = (tracer().begin(message("k-1", b"1")) for _ in range(2))
    assert first is not None
    assert again is not None
    assert (first.trace_id, first.parent) == (again.trace_id, None)
    assert first.span_id != again.span_id
    others = [
        tracer().begin(message("k-2", b"1")),
        tracer().begin(message("k-1", b"2")),
        tracer(salt="elsewhere").begin(message("k-1", b"1")),
    ]
    assert len({first.trace_id, *(other.trace_id for other in others if other)}) == 4


def test_where_no_spans_are_made_the_publishers_span_is_handed_on() -> None:
    made = Tracer().begin(message(traceparent=SAMPLED, tracestate="a=b", baggage="x=1"))
    assert made is not None
    assert not made.exported
    assert made.carried() == {"traceparent": SAMPLED, "tracestate": "a=b", "baggage": "x=1"}
    assert Tracer().begin(message()) is None


def test_what_http_could_not_carry_is_not_handed_on() -> None:
    made = tracer().begin(message(traceparent=SAMPLED, tracestate="a=b\r\nX: 1", baggage="ü=1"))
    assert made is not None
    assert made.carried().keys() == {"traceparent"}


def test_a_follow_up_goes_on_in_the_trace_unless_it_names_its_own() -> None:
    made = tracer().begin(message(traceparent=SAMPLED, baggage="x=1"))
    assert made is not None
    context = Context("k-1", "rent", trace=made)
    context.enqueue(Job.json("rent", "k-2", {}))
    context.enqueue(Job.json("rent", "k-3", {}, headers={"traceparent": "their own"}))
    ours, own = context.follow_ups
    assert ours.headers == {"traceparent": made.traceparent, "baggage": "x=1"}
    assert made.traceparent == f"00-{TRACE}-{made.span_id}-01"
    assert own.headers == {"traceparent": "their own"}
    assert Context("k-1", "rent").traceparent is None


def test_an_instrumented_client_finds_the_jobs_span_and_baggage() -> None:
    made = tracer().begin(message(traceparent=SAMPLED, tracestate="a=b", baggage="tenant=7"))
    assert made is not None
    with current(made):
        found = trace.get_current_span().get_span_context()
        assert baggage.get_baggage("tenant") == "7"
    assert (f"{found.trace_id:032x}", f"{found.span_id:016x}") == (TRACE, made.span_id)
    assert (found.trace_flags.sampled, found.trace_state.get("a")) == (True, "b")
    assert not trace.get_current_span().get_span_context().is_valid


def test_the_current_span_can_be_shown() -> None:
    made = tracer().begin(message(traceparent=SAMPLED))
    assert made is not None
    with current(made):
        assert made.span_id in repr(trace.get_current_span())


def test_a_propagator_that_fails_costs_a_message_its_trace_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message would come again, and again."""

    def fail(*_: Any) -> None:
        int("what a publisher wrote")

    monkeypatch.setattr(propagate, "extract", fail)
    monkeypatch.setattr(propagate, "inject", fail)
    assert extract({"uber-trace-id": "zz:zz:0:1"}) is None
    made = tracer().begin(message())
    assert made is not None
    assert inject(made, "") == {}


def test_the_configured_propagators_read_and_write_the_same() -> None:
    headers: dict[str, Any] = {"traceparent": SAMPLED, "tracestate": "a=b", "baggage": "tenant=7", "n": 5}
    assert extract(headers) == Parent(TRACE, SPAN, 1)
    assert extract({}) is None
    made = tracer().begin(message(**headers))
    assert made is not None
    assert inject(made, "") == made.carried()
    assert inject(made, SPAN)["traceparent"] == SAMPLED


def test_a_broker_is_named_only_where_it_can_be_but_one() -> None:
    assert server_of(["amqps://u:hidden@broker/v"]) == (("server.address", "broker"), ("server.port", 5671))
    assert server_of(["amqp://a:1", "amqp://b:2"]) == ()


def test_a_trace_keeps_the_whole_time_of_a_handler_and_its_reconcile() -> None:
    made = Trace(RawMessage(b""), TRACE, None, sampled=True, exported=True)
    made.ran(1.0, 2.0)
    made.ran(3.0, 4.0)
    assert (made.began, made.ended) == (1.0, 4.0)


def test_what_is_longer_than_anybody_hands_on_is_left_out() -> None:
    """A downstream refuses such a request, and the job would die of what has nothing to do with it."""
    made = tracer().begin(
        message(traceparent=SAMPLED, baggage="k=" + "v" * 8191, tracestate="k=" + "v" * 8190)
    )
    assert made is not None
    assert made.carried().keys() == {"traceparent", "tracestate"}
    assert parent_of({"traceparent": "01" + SAMPLED[2:] + "-" + "x" * 1000}) is None


def test_a_job_is_taken_in_before_its_handler_begins_however_late_its_spans_are_made() -> None:
    made = Trace(RawMessage(b""), TRACE, None, sampled=True, exported=True)
    made.ran(10.0, 11.0)
    event = Settled("complete", "rent", "key", outcome="done", pace_s=1.0, claim_s=1.0, total_s=3.0)
    receive, process, *_ = spans_of(event, made, Names("{lane}"), Clock(11.5, 0))
    assert receive.end_ns == process.start_ns
    assert receive.end_ns - receive.start_ns == 2_000_000_000
