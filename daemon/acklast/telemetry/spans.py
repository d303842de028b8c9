"""The spans of a delivery, made of its event when all is over. Pure.

By OpenTelemetry's conventions for messaging and RabbitMQ: ``receive`` (taken in until the claim is answered),
``process`` (the handler), under it the calls of an HTTP lane, what was published for the job, and ``settle``
(from the handler's return, with the record, to the ack). All are in the publisher's trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from acklast.telemetry.events import Settled
from acklast.telemetry.span import Attributes, Kind, Span, new_span_id
from acklast.telemetry.trace import Call, Posted, Send, Trace, text_of
from acklast.telemetry.traceparent import TRACESTATE, Parent

_SYSTEM: Final = ("messaging.system", "rabbitmq")
_DEFAULT_EXCHANGE: Final = "amq.default"
_FAILED: Final = frozenset({"rate_limited", "transient", "permanent", "unknown"})
"""Outcomes that are a failure of the operation; what a drain ended is none."""
_LOST: Final = "channel_lost"
_OPERATIONS: Final = {"give_back": "nack"}
"""By which the broker was told; else by an ack."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Tells moments of the monotonic clock as nanoseconds since the epoch."""

    monotonic: float
    """One moment on both clocks."""
    epoch_ns: int

    def ns(self, moment: float) -> int:
        return self.epoch_ns + int((moment - self.monotonic) * 1e9)


@dataclass(frozen=True, slots=True)
class Names:
    """What is the same in all spans of a process."""

    work: str
    """The lane's work queue: ``{lane}`` stands for the lane."""
    server: Attributes = ()
    """``server.address`` and ``server.port`` of the broker, where they are known."""


def spans_of(event: Settled, trace: Trace, names: Names, clock: Clock) -> list[Span]:
    """All spans of one delivery. ``clock`` is of the moment in which it was settled."""
    made = _Made(event, trace, names, clock)
    spans = [made.receive()]
    if trace.began is not None and trace.ended is not None:
        spans.append(made.process(trace.began, trace.ended))
    spans += (made.call(one) for one in trace.calls)
    spans += (made.send(one) for one in trace.sends)
    spans.append(made.settle())
    return spans


class _Made:
    """Makes the spans of one delivery."""

    __slots__ = ("_at", "_event", "_job", "_names", "_ns", "_queue", "_state", "_trace", "_under")

    def __init__(self, event: Settled, trace: Trace, names: Names, clock: Clock) -> None:
        self._event = event
        self._trace = trace
        self._names = names
        self._at = clock.monotonic
        self._ns = clock.ns
        self._under = trace.span_id if trace.began is not None else None
        """Where there was a handler, what follows from it is under its span."""
        self._job = _of_message(event, trace)
        self._queue = names.work.format(lane=event.lane)
        self._state = text_of(trace.raw.headers, TRACESTATE)

    def receive(self) -> Span:
        event = self._event
        began = self._at - (event.total_s or 0.0)
        ended = began + (event.pace_s or 0.0) + (event.claim_s or 0.0)
        if self._trace.began is not None and ended > self._trace.began:
            # The clock was read when its line was written, a little after it was settled.
            began, ended = began - (ended - self._trace.began), self._trace.began
        return self._span("receive", Kind.CLIENT, began, ended, self._job, link=self._trace.parent)

    def process(self, began: float, ended: float) -> Span:
        event = self._event
        failed = event.outcome in _FAILED
        error = (event.reason or event.outcome) if failed else None
        said = self._job + _said(event)
        parent = self._trace.parent
        return self._span("process", Kind.CONSUMER, began, ended, said, error, link=parent, own=True)

    def settle(self) -> Span:
        event, ended = self._event, self._at
        began = self._trace.ended
        if began is None:
            began = ended - (event.total_s or 0.0) + (event.pace_s or 0.0) + (event.claim_s or 0.0)
        said = (*self._job, ("acklast.disposition", event.disposition))
        error = None if event.acked else _LOST
        return self._span("settle", Kind.CLIENT, began, ended, said, error, under=self._under)

    def send(self, one: Send) -> Span:
        trace = self._trace
        parent = self._under or (trace.parent.span_id if trace.parent else None)
        return _send(
            one,
            trace.trace_id,
            parent,
            self._names,
            self._ns,
            self._event.lane,
            remote=self._under is None,
            link=trace.parent,
            tracestate=self._state,
            key=self._event.key,
        )

    def call(self, one: Call) -> Span:
        """The request of an HTTP lane, by the conventions for HTTP clients."""
        said: list[tuple[str, str | int]] = [
            ("http.request.method", one.method),
            ("server.address", one.host),
        ]
        if one.port is not None:
            said.append(("server.port", one.port))
        if one.status is not None:
            said.append(("http.response.status_code", one.status))
        return Span(
            one.method,
            Kind.CLIENT,
            self._trace.trace_id,
            one.span_id,
            self._trace.span_id,
            False,
            self._ns(one.started),
            self._ns(one.ended),
            (),
            tuple(said),
            one.error,
            tracestate=self._state,
        )

    def _span(
        self,
        operation: str,
        kind: Kind,
        began: float,
        ended: float,
        attributes: Attributes,
        error: str | None = None,
        *,
        link: Parent | None = None,
        own: bool = False,
        under: str | None = None,
    ) -> Span:
        trace, event = self._trace, self._event
        parent = under or (trace.parent.span_id if trace.parent else None)
        told = _OPERATIONS.get(event.disposition, "ack") if operation == "settle" else operation
        queue, raw = self._queue, trace.raw
        return Span(
            f"{told} {queue}",
            kind,
            trace.trace_id,
            trace.span_id if own else new_span_id(),
            parent,
            under is None,
            self._ns(began),
            self._ns(max(began, ended)),
            fixed_of(operation, told, event.lane, raw.exchange, raw.routing_key, queue, self._names.server),
            attributes,
            error,
            link,
            self._state,
        )


def posted_span(one: Posted, names: Names, clock: Clock) -> Span:
    """A message that went out of the outbox, or out of a dead letter."""
    return _send(
        one.send,
        one.parent.trace_id,
        one.parent.span_id,
        names,
        clock.ns,
        one.lane,
        remote=True,
        link=one.parent,
        tracestate=one.tracestate,
        key=one.key,
    )


def _send(
    one: Send,
    trace_id: str,
    parent: str | None,
    names: Names,
    ns: Callable[[float], int],
    lane: str,
    *,
    remote: bool,
    link: Parent | None,
    tracestate: str,
    key: str | None,
) -> Span:
    """A message that the daemon has published, in the trace of its job."""
    said: list[tuple[str, str | int]] = [("messaging.message.body.size", one.size)]
    if one.message_id:
        said.append(("messaging.message.id", one.message_id))
    if key is not None:
        said.append(("acklast.key", key))
    return Span(
        f"send {one.exchange or _DEFAULT_EXCHANGE}",
        Kind.CLIENT,
        trace_id,
        new_span_id(),
        parent,
        remote,
        ns(one.started),
        ns(one.ended),
        fixed_of("send", "send", lane, one.exchange, one.routing_key, "", names.server),
        tuple(said),
        None if one.status == "confirmed" else one.status,
        link,
        tracestate,
    )


@lru_cache(1024)
def fixed_of(
    type_: str, name: str, lane: str, exchange: str, routing_key: str, queue: str, server: Attributes
) -> Attributes:
    """What the spans of one operation at one destination have in common."""
    said: list[tuple[str, str | int | float | bool]] = [
        _SYSTEM,
        ("messaging.operation.type", type_),
        ("messaging.operation.name", name),
        ("messaging.destination.name", destination(exchange, routing_key, queue)),
    ]
    if queue:
        said.append(("messaging.destination.template", queue))
    if routing_key:
        said.append(("messaging.rabbitmq.destination.routing_key", routing_key))
    if lane:
        said.append(("acklast.lane", lane))
    return (*said, *server)


def destination(exchange: str, routing_key: str, queue: str = "") -> str:
    """Exchange, routing key and queue, as far as there are any: so the conventions for RabbitMQ have it."""
    place = exchange or ("" if queue else _DEFAULT_EXCHANGE)
    parts = (place, routing_key, "" if queue == routing_key else queue)
    return ":".join(part for part in parts if part)


def _of_message(event: Settled, trace: Trace) -> Attributes:
    said: list[tuple[str, str | int]] = [("messaging.message.body.size", len(trace.raw.body))]
    if isinstance(trace.raw.message_id, str):
        said.append(("messaging.message.id", trace.raw.message_id))
    if event.key is not None:
        said.append(("acklast.key", event.key))
    if event.attempt is not None:
        said.append(("acklast.attempt", event.attempt))
    return tuple(said)


def _said(event: Settled) -> Attributes:
    pairs = (
        ("acklast.type", event.type),
        ("acklast.run", event.run),
        ("acklast.outcome", event.outcome),
        ("acklast.reason", event.reason),
        ("acklast.fence", event.fence),
        ("acklast.ambiguous", event.ambiguous or None),
    )
    return tuple((name, value) for name, value in pairs if value is not None)
