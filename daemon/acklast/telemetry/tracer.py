"""Begins the trace of each delivery: in its publisher's where the message names one, and sampled as that is.

A message without a ``traceparent`` begins a trace of its own. Its id is made of the job, so that it is the
same for every delivery of it: retries and redrives need nothing on the message to be in one trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Any, Final

from acklast.telemetry.trace import Trace
from acklast.telemetry.traceparent import Parent, parent_of
from acklast.telemetry.variables import Sampling
from acklast_topology.message import Envelope, Malformed

_NOTHING: Final = nullcontext()
_LOW_BITS: Final = (1 << 64) - 1

Current = Callable[[Trace], AbstractContextManager[Any]]
"""Makes a trace the current one, as OpenTelemetry's API has it, while the manager is open."""
Extract = Callable[[Mapping[Any, Any]], Parent | None]
Inject = Callable[[Trace, str], dict[str, str]]


def _carried(trace: Trace, span_id: str) -> dict[str, str]:
    return trace.carried(span_id)


class Tracer:
    """Where no spans are made: what a message says of its trace is handed on as it came."""

    def __init__(
        self,
        current: Current | None = None,
        extract: Extract = parent_of,
        inject: Inject = _carried,
    ) -> None:
        """``current``: for handlers with instrumented clients. ``extract`` and ``inject``: of the configured
        propagators, where they are others than W3C's."""
        self._current = current
        self._extract = extract
        self.inject: Final = inject
        """The headers for a request of a trace's; the second is the request's span id, or empty."""

    def begin(self, message: Envelope | Malformed) -> Trace | None:
        """The trace of a delivery; None where there is nothing to hand on."""
        parent = self._extract(message.raw.headers)
        if parent is None:
            return None
        return Trace(
            message.raw,
            parent.trace_id,
            parent,
            sampled=parent.sampled,
            exported=False,
            span_id=parent.span_id,
        )

    def current(self, trace: Trace | None) -> AbstractContextManager[Any]:
        """While a handler runs, what it calls finds its trace."""
        return _NOTHING if trace is None or self._current is None else self._current(trace)


class Sampler:
    """What ``OTEL_TRACES_SAMPLER`` asks for, decided as the SDK's samplers do, without their objects."""

    def __init__(self, sampling: Sampling) -> None:
        self._of_parent = sampling.name.startswith("parentbased_")
        name = sampling.name.removeprefix("parentbased_")
        ratio = {"always_on": 1.0, "always_off": 0.0}.get(name, sampling.ratio)
        self._bound = round(ratio * (_LOW_BITS + 1))

    def samples(self, trace_id: str, parent: Parent | None) -> bool:
        """Whether the spans of a delivery are made."""
        if parent is not None and self._of_parent:
            return parent.sampled
        return int(trace_id[16:], 16) < self._bound


class SpanTracer(Tracer):
    """Where spans are made of what is sampled."""

    def __init__(
        self,
        sampler: Sampler,
        salt: str,
        current: Current | None = None,
        extract: Extract = parent_of,
        inject: Inject = _carried,
    ) -> None:
        """``salt`` tells installations apart: the same job in two of them is in two traces."""
        super().__init__(current, extract, inject)
        self._sampler = sampler
        self._salt = blake2b(salt.encode(), digest_size=32).digest()

    def begin(self, message: Envelope | Malformed) -> Trace | None:
        parent = self._extract(message.raw.headers)
        trace_id = parent.trace_id if parent else self._own(message)
        sampled = self._sampler.samples(trace_id, parent)
        return Trace(message.raw, trace_id, parent, sampled=sampled, exported=sampled)

    def _own(self, message: Envelope | Malformed) -> str:
        """A carrier keeps key and content, whatever else becomes new on its way."""
        content = message.fingerprint if isinstance(message, Envelope) else message.raw.body
        job = content + (message.key or "").encode(errors="replace")
        return blake2b(job, key=self._salt, digest_size=16).hexdigest()
