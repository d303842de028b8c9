"""Logs by structlog: JSON, or for people where standard error is a terminal. Never a payload or a secret."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from acklast.printable import SEVERAL, safe
from acklast.telemetry import journal
from acklast.telemetry.events import Event, Notice, Settled
from acklast.telemetry.journal import Journal
from acklast.telemetry.record import writable
from acklast.telemetry.records import Records, tee
from acklast.telemetry.tracebacks import told_exception
from acklast.telemetry.writer import Writer

_WORRYING: Final = frozenset({"bury", "hold", "malformed", "conflict", "claim_lost"})
_CLIENT_LOGGERS: Final = ("aio_pika", "aiormq")


def _whatever(render: Processor) -> Processor:
    """A renderer that writes every line: what it cannot write of one is there by its type."""

    def rendered(logger: Any, method: str, event: EventDict) -> Any:
        try:
            return render(logger, method, dict(event))
        except Exception:
            return render(logger, method, {name: writable(value) for name, value in event.items()})

    return rendered


def _harmless(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A processor of structlog's, for lines that a terminal shows: it would do what a publisher or a handler
    has put into a text. JSON escapes that by itself."""
    kept = {"exception": SEVERAL}
    return {
        name: safe(value, kept.get(name, "")) if isinstance(value, str) else value
        for name, value in event.items()
    }


_JSON: Final = _whatever(structlog.processors.JSONRenderer(default=str))


def configure(level: str = "info", style: str = "auto", records: Records | None = None) -> LogSink:
    """Set the process's logging up; the sink that writes events to it. ``style``: auto, json or console.

    ``records``: what exports every line besides.

    The client libraries' own lines come in the same shape, from warnings up: what they report as errors
    (a lost connection) the daemon reports itself, once, with what it does about it.

    Where systemd's journal reads standard error, lines have their priority, and events of the daemon itself
    go to the journal with their fields.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    writer = Writer(sys.stderr)
    journaled = not console and journal.reads(sys.stderr, os.environ)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if records is not None:
        shared.append(tee(records))
    people: list[Processor] = [_harmless, _whatever(structlog.dev.ConsoleRenderer())]
    render: list[Processor] = [told_exception, *(people if console else [_JSON])]
    structlog.configure(
        processors=[*shared, *render[:-1], _ToJournal(Journal(), writer) if journaled else render[-1]],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(writer)
    formatter = (_Prefixed if journaled else structlog.stdlib.ProcessorFormatter)(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
    )
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], force=True)
    _mute_others(number)
    return LogSink(structlog.get_logger("acklast"), None if console else writer, number, journaled, records)


def louder(one: str, other: str) -> str:
    """The one of two levels that says more."""
    numbers = logging.getLevelNamesMapping()
    return min(one, other, key=lambda level: numbers[level.upper()])


class _ToJournal:
    """Ends structlog's chain: an entry in the journal, or else a line on the stream."""

    def __init__(self, to: Journal, writer: Writer) -> None:
        self._journal = to
        self._writer = writer

    def __call__(self, logger: Any, method: str, event: EventDict) -> str:
        text, level = str(_JSON(logger, method, event)), event["level"]
        self._writer.flush()  # what was said before comes before
        if self._journal.takes(text, level, event):
            raise structlog.DropEvent
        return journal.prefix(level) + text


def _mute_others(number: int) -> None:
    """What other libraries may say while this process says what is of a level and above."""
    logging.getLogger().setLevel(max(number, logging.WARNING))
    for name in _CLIENT_LOGGERS:
        logging.getLogger(name).setLevel(max(number, logging.CRITICAL))


class _Prefixed(structlog.stdlib.ProcessorFormatter):
    """Lines of other libraries, with their priority."""

    def format(self, record: logging.LogRecord) -> str:
        return journal.prefix(record.levelname.lower()) + super().format(record)


class LogSink:
    """Writes every event as one log line.

    A job's line is written for every job, so its JSON does not go through structlog's chain, which takes
    longer than all else that is said of a job. It looks the same.
    """

    def __init__(
        self,
        logger: FilteringBoundLogger,
        writer: Writer | None,
        level: int,
        journaled: bool = False,
        records: Records | None = None,
    ) -> None:
        """``journaled``: lines have their priority in front."""
        self._records = records
        self._prefixes = {level: journal.prefix(level) if journaled else "" for level in ("info", "warning")}
        self._logger = logger
        self._writer = writer
        self._hear(level)

    def set_level(self, level: str) -> None:
        """Say what is of this level and above from now on, of the whole process."""
        number = logging.getLevelNamesMapping()[level.upper()]
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(number))
        _mute_others(number)
        self._logger = structlog.get_logger("acklast")
        self._hear(number)

    def _hear(self, level: int) -> None:
        self._says_info = level <= logging.INFO
        self._says_warning = level <= logging.WARNING

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            getattr(self._logger, event.level)(event.name, **event.fields)
            return
        if not isinstance(event, Settled):
            return  # figures for metrics: a line for each would say nothing to anybody
        worrying = event.disposition in _WORRYING
        if not (self._says_warning if worrying else self._says_info):
            return
        level = "warning" if worrying else "info"
        if self._writer is None:
            getattr(self._logger, level)("job.settled", **_said(event))
            return
        self._writer.line(self._prefixes[level] + _line(event, level))
        if self._records is not None:
            self._records.of_job(event, {"event": "job.settled", "level": level, **_said(event)})


def _line(event: Settled, level: str) -> str:
    """The same as JSON, put together by hand: a serializer takes three times as long."""
    parts = [_head(event.disposition, event.lane, event.type, event.outcome, level)]
    if event.key is not None:
        parts.append(f',"key":{quoted(event.key)}')
    if event.run is not None:
        parts.append(f',"run":{quoted(event.run)}')
    if event.reason is not None:
        parts.append(f',"reason":{quoted(event.reason)}')
    if event.attempt is not None:
        parts.append(f',"attempt":{event.attempt}')
    if event.fence is not None:
        parts.append(f',"fence":{event.fence}')
    if event.trace_id is not None:
        parts.append(f',"trace_id":{quoted(event.trace_id)}')
    if event.ambiguous:
        parts.append(',"ambiguous":true')
    if event.handler_s is not None:
        parts.append(f',"handler_s":{event.handler_s:.6f}')
    if event.total_s is not None:
        parts.append(f',"total_s":{event.total_s:.6f}')
    if not event.acked:
        parts.append(',"acked":false')
    parts.append(f',"timestamp":"{datetime.now(UTC).isoformat(timespec="microseconds")[:-6]}Z"}}')
    return "".join(parts)


@lru_cache(256)
def _head(disposition: str, lane: str, kind: str | None, outcome: str | None, level: str) -> str:
    """What the lines of a lane have in common; the types are a publisher's, so only the last are kept."""
    said = {"event": "job.settled", "level": level, "disposition": disposition, "lane": lane}
    said |= {name: value for name, value in (("type", kind), ("outcome", outcome)) if value is not None}
    return json.dumps(said, separators=(",", ":"))[:-1]


def _said(event: Settled) -> dict[str, Any]:
    """The fields that say something: a log line is read at three in the morning."""
    pairs = (
        ("disposition", event.disposition),
        ("lane", event.lane),
        ("key", event.key),
        ("type", event.type),
        ("run", event.run),
        ("outcome", event.outcome),
        ("reason", event.reason),
        ("attempt", event.attempt),
        ("fence", event.fence),
        ("trace_id", event.trace_id),
    )
    said: dict[str, Any] = {name: value for name, value in pairs if value is not None}
    if event.ambiguous:
        said["ambiguous"] = True
    if event.handler_s is not None:
        said["handler_s"] = round(event.handler_s, 6)
    if event.total_s is not None:
        said["total_s"] = round(event.total_s, 6)
    if not event.acked:
        said["acked"] = False
    return said
