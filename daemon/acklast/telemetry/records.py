"""The log as an OTLP signal: every line once more, as a record with the ids of its trace."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from structlog.typing import EventDict

from acklast.telemetry import wire
from acklast.telemetry.batches import Batches
from acklast.telemetry.events import Settled
from acklast.telemetry.exports import Exports
from acklast.telemetry.record import Record, plain, shortened
from acklast.telemetry.span import Attributes
from acklast.telemetry.tracebacks import told_exception
from acklast.telemetry.variables import Exporter, Exporting, Signal

_OWN: Final = frozenset({"event", "level", "timestamp", "trace_id", "span_id"})
"""What has a place of its own in a record."""
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}")


class Records:
    """Exports log lines. The log decides what is a line, and hands it on, from any thread."""

    def __init__(self, batches: Batches[Any], encode: Callable[[Record], Any]) -> None:
        """``encode``: makes of a record what ``batches`` takes."""
        self._batches = batches
        self._encode = encode

    def put(self, line: Mapping[str, Any], span_id: str = "") -> None:
        if self._batches.full():
            self._batches.drop(1)
        else:
            self._batches.put([self._encode(record_of(line, time.time_ns(), span_id))])

    def of_job(self, event: Settled, line: Mapping[str, Any]) -> None:
        """The line of a settled job, with the span of its handler."""
        trace = event.trace
        self.put(line, trace.span_id if trace is not None and trace.began is not None else "")

    async def close(self) -> None:
        await self._batches.close()


def record_of(line: Mapping[str, Any], now_ns: int, span_id: str = "") -> Record:
    """A line as a record. What it says of an exception is in the line's own words."""
    said = tuple((str(name), plain(value)) for name, value in line.items() if name not in _OWN)
    return Record(
        _at(line.get("timestamp"), now_ns),
        str(line.get("level", "info")),
        shortened(str(line.get("event", ""))),
        said,
        _id(line, "trace_id", _TRACE_ID),
        span_id or _id(line, "span_id", _SPAN_ID),
    )


def _id(line: Mapping[str, Any], name: str, valid: re.Pattern[str]) -> str:
    """A handler may call anything of its own so: bytes that are no id would cost the whole request."""
    text = str(line.get(name))
    return text if valid.fullmatch(text) else ""


def _at(timestamp: object, now_ns: int) -> int:
    if not isinstance(timestamp, str):
        return now_ns
    return int(datetime.fromisoformat(timestamp).timestamp() * 1e6) * 1000


def tee(records: Records) -> Any:
    """A processor of structlog's that hands every line on."""

    def process(logger: Any, method: str, line: EventDict) -> EventDict:
        records.put(told_exception(logger, method, dict(line)) if "exc_info" in line else line)
        return line

    return process


def open_records(
    exporting: Exporting, exports: Exports, resource: Attributes, version: str
) -> Records | None:
    """The part, where logs are exported."""
    route = exporting.routes.get(Signal.LOGS)
    if route is None:
        return None
    if route.exporter is Exporter.CONSOLE:
        from acklast.telemetry.readable import console_records

        return Records(Batches(Signal.LOGS, console_records(), exports, exporting.records), lambda one: one)
    from acklast.telemetry.otlp import batches_to

    return Records(batches_to(route, exports, exporting.records, resource, version), wire.record)
