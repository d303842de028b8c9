"""The place of one delivery in its trace: where it comes from, and what happens under it.

While the job runs this is all there is of its spans; they are made when the delivery is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acklast.telemetry.span import new_span_id
from acklast.telemetry.traceparent import BAGGAGE, TRACEPARENT, TRACESTATE, Parent, parent_of
from acklast_topology.message import RawMessage
from acklast_topology.value import value

_LONGEST: Final = 8192
"""Bytes of a header: what W3C has everybody hand on of baggage, and what servers take of one header."""


@value
class Call:
    """A request to the downstream. Times are of the monotonic clock, in seconds, here and below."""

    span_id: str
    method: str
    host: str
    port: int | None
    started: float
    ended: float
    status: int | None = None
    error: str | None = None
    """A short code: the status, or why there was none."""


@value
class Send:
    """A message that was given to the broker, and its answer: ``confirmed``, or what went wrong."""

    exchange: str
    routing_key: str
    message_id: str
    size: int
    started: float
    ended: float
    status: str


@value
class Posted:
    """A message that was published for a job which is not at work: out of the outbox, or of a dead letter."""

    parent: Parent
    tracestate: str
    lane: str
    key: str
    send: Send


def posted_of(headers: Mapping[Any, Any], lane: str, key: str, send: Send) -> tuple[Posted, ...]:
    """The one message, where its headers say which trace it is in; else nothing."""
    parent = parent_of(headers)
    return (Posted(parent, text_of(headers, TRACESTATE), lane, key, send),) if parent else ()


class Trace:
    """One delivery's. What it hands on is its own span, or the publisher's where no spans are made here."""

    __slots__ = (
        "_span_id",
        "began",
        "calls",
        "ended",
        "exported",
        "parent",
        "raw",
        "sampled",
        "sends",
        "trace_id",
    )

    def __init__(
        self,
        raw: RawMessage,
        trace_id: str,
        parent: Parent | None,
        *,
        sampled: bool,
        exported: bool,
        span_id: str = "",
    ) -> None:
        """``exported``: its spans are made. ``span_id``: what stands for it, instead of a span of its own."""
        self.raw: Final = raw
        self.trace_id: Final = trace_id
        self.parent: Final = parent
        self.sampled: Final = sampled
        self.exported: Final = exported
        self._span_id = span_id
        self.began: float | None = None
        """When the handler was started, or asked whether the effect had happened."""
        self.ended: float | None = None
        self.calls: tuple[Call, ...] = ()
        self.sends: tuple[Send, ...] = ()

    @property
    def span_id(self) -> str:
        """Made when it is first asked for: most jobs of a small sample never need one."""
        if not self._span_id:
            self._span_id = new_span_id()
        return self._span_id

    @property
    def traceparent(self) -> str:
        """What says where a job of this one's making, or a call of it, comes from."""
        return traceparent(self.trace_id, self.span_id, sampled=self.sampled)

    def carried(self, span_id: str = "") -> dict[str, str]:
        """The headers by which the trace goes on; ``span_id``: from this child of it."""
        said = {TRACEPARENT: traceparent(self.trace_id, span_id or self.span_id, sampled=self.sampled)}
        for name in (TRACESTATE, BAGGAGE):
            if text := text_of(self.raw.headers, name):
                said[name] = text
        return said

    def ran(self, started: float, ended: float) -> None:
        """The handler, or its reconcile, was at work from then to then."""
        if self.began is None:
            self.began = started
        self.ended = ended


def traceparent(trace_id: str, span_id: str, *, sampled: bool) -> str:
    return f"00-{trace_id}-{span_id}-{'01' if sampled else '00'}"


def text_of(headers: Mapping[Any, Any], name: str) -> str:
    """A header as text; empty where it is not there, or none that HTTP could carry: servers take no longer
    ones, and would refuse the job for what its publisher has packed up besides.
    """
    text = headers.get(name)
    if text is None:
        return ""
    if isinstance(text, bytes | bytearray):
        text = text.decode("latin-1")
    if not isinstance(text, str) or len(text) > _LONGEST:
        return ""
    return text if text.isascii() and text.isprintable() else ""
