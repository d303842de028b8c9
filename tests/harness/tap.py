"""A receiver of OTLP over HTTP in the test's own process: what daemons export, as values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from dev.workspace import free_port
from harness.waiting import eventually

KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
QUICK: Final = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_BLRP_SCHEDULE_DELAY": "100"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A span as it came."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    links: tuple[tuple[str, str], ...]
    start_ns: int
    end_ns: int
    failed: bool
    tracestate: str

    @property
    def operation(self) -> str:
        return str(self.attributes.get("messaging.operation.type", self.kind))


@dataclass(frozen=True, slots=True)
class Line:
    """A log record as it came."""

    body: str
    level: str
    attributes: Mapping[str, Any]
    trace_id: str
    span_id: str


@dataclass(slots=True)
class Tap:
    """Made by ``tap``."""

    url: str
    spans: list[Seen] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def env(self, **more: str) -> dict[str, str]:
        """What a daemon finds that exports to it, and quickly."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_METRICS_EXPORTER": "none", **QUICK, **more}

    def of(self, key: str) -> list[Seen]:
        """The spans of one job, in the order of their beginning; a call's has no key, and its trace has."""
        traces = {span.trace_id for span in self.spans if span.attributes.get("acklast.key") == key}
        return sorted((span for span in self.spans if span.trace_id in traces), key=lambda one: one.start_ns)

    async def settled(self, key: str, times: int = 1) -> list[Seen]:
        """Wait until the spans of so many deliveries of a job are there."""

        def there() -> list[Seen]:
            found = self.of(key)
            return found if sum(one.operation == "settle" for one in found) >= times else []

        return await eventually(there, 30, f"spans of {times} deliveries of {key}")

    async def until(self, holds: Callable[[], Any], what: str) -> None:
        await eventually(holds, 30, what)


@asynccontextmanager
async def tap() -> AsyncIterator[Tap]:
    """A receiver on a free port of the loopback."""
    port = free_port()
    made = Tap(f"http://127.0.0.1:{port}")
    async with OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=port)) as receiver:
        reading = [
            asyncio.create_task(_read(receiver.stream_traces(), made.spans, _seen)),
            asyncio.create_task(_read(receiver.stream_logs(), made.lines, _line)),
        ]
        try:
            yield made
        finally:
            for task in reading:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*reading)


async def _read(stream: AsyncIterator[Any], into: list[Any], read: Callable[[Any], Any]) -> None:
    async for one in stream:
        into.append(read(one))  # noqa: PERF401 - each at once: somebody waits for it


def _seen(span: Any) -> Seen:
    return Seen(
        name=span.name,
        kind=KINDS[span.kind],
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        failed=span.status.code == 2,
        tracestate=span.trace_state,
    )


def _line(record: Any) -> Line:
    return Line(
        body=record.body.string_value,
        level=record.severity_text,
        attributes=_values(record.attributes),
        trace_id=record.trace_id.hex(),
        span_id=record.span_id.hex(),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
