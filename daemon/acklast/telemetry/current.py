"""The bridge to OpenTelemetry's API: what a handler's instrumented clients find as the current span.

Imported only where something is exported, or where the handlers have imported OpenTelemetry themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from opentelemetry import context, propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from acklast.telemetry.trace import Trace, text_of
from acklast.telemetry.traceparent import BAGGAGE, TRACESTATE, Parent

_W3C_BAGGAGE: Final = W3CBaggagePropagator()
[_SPAN] = trace.set_span_in_context(trace.INVALID_SPAN, Context())
"""Under which a context has its span: one is made for every job, and the API copies it each time."""
_QUOTING: Final = ("opentelemetry.baggage", "opentelemetry.trace.span", "opentelemetry.util.re")
for _quoting in _QUOTING:
    # They quote what they cannot read of a message's headers, for each job again.
    logging.getLogger(_quoting).setLevel(logging.CRITICAL + 1)


class _JobSpan(NonRecordingSpan):
    """The span of a job, as far as there is one while it runs. Its context is made when it is asked for."""

    def __init__(self, of: Trace, span_id: str = "") -> None:
        self._of = of
        self._id = span_id
        self._made: SpanContext | None = None

    def get_span_context(self) -> SpanContext:
        if self._made is None:
            of = self._of
            self._made = SpanContext(
                int(of.trace_id, 16),
                int(self._id or of.span_id, 16),
                is_remote=not self._id and not of.exported and of.parent is not None,
                trace_flags=TraceFlags(of.sampled),
                trace_state=TraceState.from_header([text_of(of.raw.headers, TRACESTATE)]),
            )
        return self._made

    def __repr__(self) -> str:
        """The library's shows a context that is there from the beginning."""
        return f"NonRecordingSpan({self.get_span_context()!r})"


class current:  # noqa: N801 - used as a function that is a context manager
    """A trace is the current one while this is open."""

    __slots__ = ("_token", "_trace")

    def __init__(self, of: Trace) -> None:
        self._trace = of

    def __enter__(self) -> None:
        self._token = context.attach(_context(self._trace))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        context.detach(self._token)


def _context(of: Trace, span_id: str = "") -> Context:
    """Nothing of the surroundings, which are the daemon's own."""
    made = Context({_SPAN: _JobSpan(of, span_id)})
    if text := text_of(of.raw.headers, BAGGAGE):
        made = _W3C_BAGGAGE.extract({BAGGAGE: text}, made)
    return made


# --- other propagators than W3C's ------------------------------------------------------------------------


def extract(headers: Mapping[Any, Any]) -> Parent | None:
    """Where a message comes from, by the propagators of ``OTEL_PROPAGATORS``; None where one of them fails of
    it: others wrote them, a publisher wrote the headers, and the same message would come again and again."""
    texts = {name: text for name in headers if isinstance(name, str) and (text := text_of(headers, name))}
    try:
        found = trace.get_current_span(propagate.extract(texts, Context())).get_span_context()
    except Exception:
        return None
    if not found.is_valid:
        return None
    return Parent(f"{found.trace_id:032x}", f"{found.span_id:016x}", int(found.trace_flags))


def inject(of: Trace, span_id: str) -> dict[str, str]:
    """The headers that carry a trace on, by the same: as many as they can say."""
    carrier: dict[str, str] = {}
    with suppress(Exception):
        propagate.inject(carrier, _context(of, span_id))
    return carrier
