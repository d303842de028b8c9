"""The spans of a delivery, made of its event when all is over. Pure.

By OpenTelemetry's conventions for messaging and RabbitMQ: ``receive`` (taken in until the claim is answered),
``process`` (the handler), under it the calls of an HTTP lane, what was published for the job, and ``settle``
(from the handler's return, with the record, to the ack). All are in the publisher's trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from acklast.telemetry.events import Settled
from acklast.telemetry.span import Attributes, Kind, Operation, Place, Span, new_span_id
from acklast.telemetry.trace import Call, Posted, Send, Trace, text_of
from acklast.telemetry.traceparent import TRACESTATE
from acklast_topology.message import RawMessage
from acklast_topology.value import value

_SYSTEM: Final = ("messaging.system", "rabbitmq")
_DEFAULT_EXCHANGE: Final = "amq.default"
_FAILED: Final = frozenset({"rate_limited", "transient", "permanent", "unknown"})
"""Outcomes that are a failure of the operation; what a drain ended is none."""
_LOST: Final = "channel_lost"


@value
class Clock:
    """Tells moments of the monotonic clock as nanoseconds since the epoch."""

    monotonic: float
    """One moment on both clocks."""
    epoch_ns: int

    def ns(self, moment: float) -> int:
        return self.epoch_ns + int((moment - self.monotonic) * 1e9)


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """What is the same in all spans of a process."""

    work: str
    """The lane's work queue: ``{lane}`` stands for the lane."""
    server: Attributes = ()
    """``server.address`` and ``server.port`` of the broker, where they are known."""


def spans_of(event: Settled, trace: Trace, names: Names, clock: Clock) -> list[Span]:
    """All spans of one delivery. ``clock`` is of the moment in which it was settled."""
    raw, parent, ns = trace.raw, trace.parent, clock.ns
    parent_id = parent.span_id if parent else None
    place = Place(trace.trace_id, _of_message(event, raw), parent, text_of(raw.headers, TRACESTATE))
    way = event.lane, raw.exchange, raw.routing_key, names
    does = _operations(*way, event.type, event.outcome, event.disposition)
    linked, settling, own = parent is not None, parent_id, ""
    began, ended = _received(event, trace, clock.monotonic)
    times = ns(began), ns(ended)
    spans = [Span(does.receive, place, new_span_id(), parent_id, True, *times, linked=linked)]
    if trace.began is not None and trace.ended is not None:
        settling = own = trace.span_id
        failed = (event.reason or event.outcome) if event.outcome in _FAILED else None
        began, ended = trace.began, trace.ended
        times = ns(began), ns(max(began, ended))
        spans.append(Span(does.process, place, own, parent_id, True, *times, _said(event), failed, linked))
    if trace.calls or trace.sends:
        spans += _beside(event, trace, place, names, ns, own or parent_id, remote=not own)
    lost = None if event.acked else _LOST
    times = ns(min(ended, clock.monotonic)), clock.epoch_ns
    spans.append(Span(does.settle, place, new_span_id(), settling, not own, *times, error=lost))
    return spans


def _received(event: Settled, trace: Trace, settled: float) -> tuple[float, float]:
    """From when it was taken in until the ledger had answered."""
    began = settled - (event.total_s or 0.0)
    ended = began + (event.pace_s or 0.0) + (event.claim_s or 0.0)
    if trace.began is not None and ended > trace.began:
        # The clock was read when its line was written, a little after it was settled.
        return began - (ended - trace.began), trace.began
    return began, ended


def _beside(
    event: Settled,
    trace: Trace,
    place: Place,
    names: Names,
    ns: Callable[[float], int],
    parent_id: str | None,
    *,
    remote: bool,
) -> Iterator[Span]:
    """The calls of its handler, and what was published for it: in its place, and of other messages."""
    place = replace(place, attributes=())
    for call in trace.calls:
        yield _call(call, place, trace.span_id, ns)
    for send in trace.sends:
        yield _send(send, place, parent_id, names, ns, event.lane, remote=remote, key=event.key)


def _call(one: Call, place: Place, parent_id: str, ns: Callable[[float], int]) -> Span:
    """The request of an HTTP lane, by the conventions for HTTP clients."""
    operation = _request(one.method, one.host, one.port)
    said = () if one.status is None else (("http.response.status_code", one.status),)
    times = ns(one.started), ns(one.ended)
    return Span(operation, place, one.span_id, parent_id, False, *times, said, one.error)


@lru_cache(256)
def _request(method: str, host: str, port: int | None) -> Operation:
    said: Attributes = (("http.request.method", method), ("server.address", host))
    return Operation(method, Kind.CLIENT, said if port is None else (*said, ("server.port", port)))


def posted_span(one: Posted, names: Names, clock: Clock) -> Span:
    """A message that went out of the outbox, or out of a dead letter."""
    place = Place(one.parent.trace_id, (), one.parent, one.tracestate)
    return _send(one.send, place, one.parent.span_id, names, clock.ns, one.lane, remote=True, key=one.key)


def _send(
    one: Send,
    place: Place,
    parent_id: str | None,
    names: Names,
    ns: Callable[[float], int],
    lane: str,
    *,
    remote: bool,
    key: str | None,
) -> Span:
    """A message that the daemon has published, in the trace of its job."""
    said: list[tuple[str, str | int]] = [("messaging.message.body.size", one.size)]
    if one.message_id:
        said.append(("messaging.message.id", one.message_id))
    if key is not None:
        said.append(("acklast.key", key))
    error = None if one.status == "confirmed" else one.status
    operation = sending(Kind.CLIENT, lane, one.exchange, one.routing_key, names)
    times = ns(one.started), ns(one.ended)
    linked = place.link is not None
    return Span(operation, place, new_span_id(), parent_id, remote, *times, tuple(said), error, linked)


# --- what many have in common ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Operations:
    """What is done with deliveries that come by one way and end alike."""

    receive: Operation
    process: Operation
    settle: Operation


@lru_cache(1024)
def _operations(
    lane: str,
    exchange: str,
    routing_key: str,
    names: Names,
    type_: str | None,
    outcome: str | None,
    disposition: str,
) -> _Operations:
    """The last so many, as routing keys and types are a publisher's."""
    queue = names.work.format(lane=lane)

    def operation(of: str, name: str, kind: Kind, **said: str | None) -> Operation:
        fixed = _fixed(of, name, lane, exchange, routing_key, queue, names.server)
        more = ((f"acklast.{key}", value) for key, value in said.items() if value is not None)
        return Operation(f"{name} {queue}", kind, (*fixed, *more))

    told = "nack" if disposition == "give_back" else "ack"
    return _Operations(
        operation("receive", "receive", Kind.CLIENT),
        operation("process", "process", Kind.CONSUMER, type=type_, outcome=outcome),
        operation("settle", told, Kind.CLIENT, disposition=disposition),
    )


@lru_cache(1024)
def sending(kind: Kind, lane: str, exchange: str, routing_key: str, names: Names) -> Operation:
    """A message is given to the broker."""
    said = _fixed("send", "send", lane, exchange, routing_key, "", names.server)
    return Operation(f"send {exchange or _DEFAULT_EXCHANGE}", kind, said)


def _fixed(
    type_: str, name: str, lane: str, exchange: str, routing_key: str, queue: str, server: Attributes
) -> Attributes:
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


# --- what is a job's own -----------------------------------------------------------------------------


def _of_message(event: Settled, raw: RawMessage) -> Attributes:
    said: list[tuple[str, str | int]] = [("messaging.message.body.size", len(raw.body))]
    if isinstance(raw.message_id, str):
        said.append(("messaging.message.id", raw.message_id))
    if event.key is not None:
        said.append(("acklast.key", event.key))
    if event.attempt is not None:
        said.append(("acklast.attempt", event.attempt))
    return tuple(said)


def _said(event: Settled) -> Attributes:
    """What the handler's span says besides."""
    said: list[tuple[str, str | int]] = []
    if event.run is not None:
        said.append(("acklast.run", event.run))
    if event.reason is not None:
        said.append(("acklast.reason", event.reason))
    if event.fence is not None:
        said.append(("acklast.fence", event.fence))
    if event.ambiguous:
        said.append(("acklast.ambiguous", True))
    return tuple(said)
