"""Traces, put together: which tracer the lanes get, and the part that exports what comes of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from acklast.errors import ConfigError
from acklast.telemetry import wire
from acklast.telemetry.batches import Batches
from acklast.telemetry.events import Event, Published, Settled
from acklast.telemetry.exports import Exports
from acklast.telemetry.resource import SCOPE
from acklast.telemetry.span import Attributes, Span
from acklast.telemetry.spans import Clock, Names, posted_span, spans_of
from acklast.telemetry.trace import Trace
from acklast.telemetry.tracer import Sampler, SpanTracer, Tracer
from acklast.telemetry.variables import Exporter, Exporting, Signal

_W3C: Final = frozenset({"tracecontext", "baggage"})
_PORTS: Final = {"amqp": 5672, "amqps": 5671}


class Traces:
    """Makes spans of events and exports them.

    They are encoded here, in the loop's thread. In the exporter's it would take as much of the interpreter,
    in turns of 5 ms that every job waits for; and what waits is small, and keeps no message in memory.
    """

    def __init__(
        self,
        batches: Batches[Any],
        encode: Callable[[Iterable[Span]], Sequence[Any]],
        names: Names,
        sampler: Sampler,
    ) -> None:
        """``encode``: makes of spans what ``batches`` takes."""
        self._batches = batches
        self._encode = encode
        self._samples = sampler.samples
        self._names = names

    def sink(self, event: Event) -> None:
        if isinstance(event, Settled) and (trace := event.trace) is not None:
            if self._batches.full():
                # Not even made: what is dropped costs next to nothing.
                self._batches.drop(_count(trace))
                return
            self.add(spans_of(event, trace, self._names, now()))
        elif isinstance(event, Published) and event.posted:
            sampled = [one for one in event.posted if self._samples(one.parent.trace_id, one.parent)]
            clock = now()
            self.add([posted_span(one, self._names, clock) for one in sampled])

    def add(self, spans: Sequence[Span]) -> None:
        """Export these as well."""
        self._batches.put(self._encode(spans))

    async def close(self) -> None:
        await self._batches.close()


def now() -> Clock:
    """This moment on both clocks."""
    return Clock(time.monotonic(), time.time_ns())


def _count(trace: Trace) -> int:
    return 2 + (trace.began is not None) + len(trace.calls) + len(trace.sends)


def open_traces(
    exporting: Exporting, exports: Exports, names: Names, resource: Attributes, version: str
) -> Traces | None:
    """The part, where traces are exported."""
    route = exporting.routes.get(Signal.TRACES)
    if route is None:
        return None
    if route.exporter is Exporter.CONSOLE:
        from acklast.telemetry.readable import console_spans

        printed = Batches(Signal.TRACES, console_spans(resource, SCOPE, version), exports, exporting.spans)
        return Traces(printed, list, names, Sampler(exporting.sampling))
    from acklast.telemetry.otlp import batches_to

    sent = batches_to(route, exports, exporting.spans, resource, version)
    return Traces(sent, wire.spans, names, Sampler(exporting.sampling))


def tracer_of(exporting: Exporting, env: Mapping[str, str], resource: Attributes) -> Tracer:
    """What begins the traces of deliveries. OpenTelemetry is imported only where spans are made, the handlers
    have imported it, or other propagators are asked for.

    Raises:
        ConfigError: a propagator of ``OTEL_PROPAGATORS`` is not installed.
    """
    exported = Signal.TRACES in exporting.routes
    bridge = _bridge(env) if exported or "opentelemetry.trace" in sys.modules or _others(env) else {}
    if not exported:
        return Tracer(**bridge)
    return SpanTracer(Sampler(exporting.sampling), repr(resource_salt(resource)), **bridge)


def resource_salt(resource: Attributes) -> Attributes:
    """What daemons of one installation have in common."""
    return tuple(pair for pair in resource if pair[0] not in ("service.instance.id", "service.version"))


def _others(env: Mapping[str, str]) -> bool:
    named = {name.strip() for name in env.get("OTEL_PROPAGATORS", "").split(",") if name.strip()}
    return bool(named) and named != _W3C


def _bridge(env: Mapping[str, str]) -> dict[str, Any]:
    try:
        from acklast.telemetry import current
    except Exception as error:
        raise ConfigError(
            f"OTEL_PROPAGATORS={env.get('OTEL_PROPAGATORS')} cannot be used: {type(error).__name__}",
            "Use tracecontext, baggage or none, or install the package that has it",
        ) from error
    bridge: dict[str, Any] = {"current": current.current}
    if _others(env):
        bridge |= {"extract": current.extract, "inject": current.inject}
    return bridge


def server_of(urls: Sequence[str]) -> Attributes:
    """The broker's address, where there is only one that it can be."""
    if len(urls) != 1:
        return ()
    parts = urlsplit(urls[0])
    port = parts.port or _PORTS.get(parts.scheme)
    address: list[tuple[str, str | int | float | bool]] = [("server.address", parts.hostname or "")]
    return (*address, ("server.port", port)) if port else tuple(address)
