"""An application that is instrumented by itself: its own spans, in its own SDK, of its handlers and of what
its instrumentation finds beneath them, as one of asyncpg or aio-pika would.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from acklast import App, Context
from acklast.broker import Link
from acklast.ledger.batch import Batcher
from harness.scripted import DIRECTORY, LANE, TYPE

FILE: Final = "spans.jsonl"

app = App()


class _ToFile(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with (Path(os.environ[DIRECTORY]) / FILE).open("a") as file:
            for span in spans:
                file.write(json.dumps(_told(span)) + "\n")
        return SpanExportResult.SUCCESS


def _told(span: ReadableSpan) -> dict[str, Any]:
    context, parent = span.get_span_context(), span.parent
    assert context is not None
    return {
        "name": span.name,
        "trace": f"{context.trace_id:032x}",
        "parent": f"{parent.span_id:016x}" if parent else "",
        **dict(span.attributes or {}),
    }


_provider = TracerProvider()
_provider.add_span_processor(SimpleSpanProcessor(_ToFile()))
_tracer = _provider.get_tracer("theirs")


def _instrument(owner: type, method: str) -> None:
    """What an instrumentation does to a client's method."""
    wrapped: Callable[..., Any] = getattr(owner, method)

    @wraps(wrapped)
    async def call(*arguments: Any, **more: Any) -> Any:
        with _tracer.start_as_current_span(method):
            return await wrapped(*arguments, **more)

    setattr(owner, method, call)


_instrument(Batcher, "_flush")
_instrument(Link, "_connect_one")


@app.job(TYPE, lane=LANE)
async def work(payload: dict[str, Any], ctx: Context) -> None:
    """Do something that an instrumented client does, and leave its span open behind it, as some do."""
    told = {
        "key": ctx.key,
        "traceparent": ctx.traceparent or "",
        "tenant": str(baggage.get_baggage("tenant")),
    }
    with _tracer.start_as_current_span("handler", attributes=told):
        await asyncio.sleep(0)
    leaked = trace.use_span(_tracer.start_span("leaked"), end_on_exit=False)
    leaked.__enter__()
