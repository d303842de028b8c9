"""The trace of jobs that a command publishes: each begins where its publish does."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from acklast.telemetry.credentials import check_credentials
from acklast.telemetry.exports import Exports
from acklast.telemetry.resource import resource_of
from acklast.telemetry.span import Kind, Place, Span, new_span_id
from acklast.telemetry.spans import Names, sending
from acklast.telemetry.trace import traceparent
from acklast.telemetry.traceparent import TRACEPARENT, Parent, parent_of
from acklast.telemetry.tracer import Sampler
from acklast.telemetry.tracing import Traces, now, open_traces
from acklast.telemetry.variables import exporting_of
from acklast_topology.items import Enqueued, Entry, Fate, Given, NoJob
from acklast_topology.job import Job

_PARENT: Final = "TRACEPARENT"
"""Where a program that is called finds the span of its caller."""
_SENT: Final = frozenset({Fate.ACCEPTED, Fate.AGAIN, Fate.RETURNED, Fate.REFUSED, Fate.UNKNOWN})


class Publishing:
    """Gives jobs their ``traceparent``, and makes the span of each publish when its fate is known."""

    def __init__(
        self, traces: Traces, sampler: Sampler, names: Names, exchange: str, caller: Parent | None
    ) -> None:
        self._traces = traces
        self._sampler = sampler
        self._names = names
        self._exchange = exchange
        self._caller = caller
        self._begun: dict[str, float] = {}
        """By ``traceparent``: the moments at which the sampled ones were given."""

    def of(self, jobs: Iterable[Given] | AsyncIterable[Given]) -> Iterable[Given] | AsyncIterable[Given]:
        """The same jobs, each with its trace."""
        return self._later(jobs) if isinstance(jobs, AsyncIterable) else self._now(jobs)

    def _now(self, jobs: Iterable[Given]) -> Iterator[Given]:
        for job in jobs:
            yield self._given(job)

    async def _later(self, jobs: AsyncIterable[Given]) -> AsyncIterator[Given]:
        async for job in jobs:
            yield self._given(job)

    def _given(self, item: Given) -> Given:
        match item:
            case NoJob():
                return item
            case Entry():
                return Entry(self._traced(item.job), item.source)
            case Job():
                return self._traced(item)

    def _traced(self, job: Job) -> Job:
        if TRACEPARENT in job.headers:
            return job
        caller = self._caller
        trace_id = caller.trace_id if caller else f"{random.getrandbits(128) or 1:032x}"
        sampled = self._sampler.samples(trace_id, caller)
        header = traceparent(trace_id, new_span_id(), sampled=sampled)
        if sampled:
            self._begun[header] = time.monotonic()
        return replace(job, headers={**job.headers, TRACEPARENT: header})

    def told(self, item: Enqueued) -> None:
        """What became of one."""
        if item.job is None:
            return
        began = self._begun.pop(str(item.job.headers.get(TRACEPARENT)), None)
        if began is not None and item.fate in _SENT:
            self._traces.add([self._span(item.job, began, "" if item.fine else item.fate.value)])

    def _span(self, job: Job, began: float, error: str) -> Span:
        own = parent_of(job.headers)
        assert own is not None  # it is ours
        clock, caller = now(), self._caller
        said = ("messaging.message.body.size", len(job.payload)), ("acklast.key", job.key)
        return Span(
            sending(Kind.PRODUCER, job.lane, self._exchange, job.routing_key, self._names),
            Place(own.trace_id),
            own.span_id,
            caller.span_id if caller else None,
            caller is not None,
            clock.ns(began),
            clock.epoch_ns,
            said,
            error or None,
        )

    async def close(self) -> None:
        await self._traces.close()


def publishing_of(env: Mapping[str, str], names: Names, exchange: str, *, version: str) -> Publishing | None:
    """Where traces are exported.

    Raises:
        ConfigError: one of the variables cannot be used.
    """
    exporting = exporting_of(env)
    check_credentials(env, exporting)
    resource = resource_of(exporting, version=version, instance="enqueue")
    traces = open_traces(exporting, Exports(), names, resource, version)
    if traces is None:
        return None
    caller = parent_of({TRACEPARENT: env.get(_PARENT)})
    return Publishing(traces, Sampler(exporting.sampling), names, exchange, caller)
