"""Logs by structlog: JSON, or for people where standard error is a terminal. Never a payload or a secret."""

from __future__ import annotations

import logging
import sys
from dataclasses import fields
from typing import Any, Final

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from acklast.telemetry.events import Event, Notice, Settled

_SETTLED_FIELDS: Final = tuple(f.name for f in fields(Settled))
_WORRYING: Final = frozenset({"bury", "hold", "malformed", "conflict", "claim_lost"})
_CLIENT_LOGGERS: Final = ("aio_pika", "aiormq")


def configure(level: str = "info", style: str = "auto") -> None:
    """Set the process's logging up. ``style`` is ``auto``, ``json`` or ``console``.

    The client libraries' own lines come in the same shape, from warnings up: what they report as errors
    (a lost connection) the daemon reports itself, once, with what it does about it.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    console = style == "console" or (style == "auto" and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: list[Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
    )
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
    for name in _CLIENT_LOGGERS:
        logging.getLogger(name).setLevel(max(number, logging.CRITICAL))


def sink(logger: FilteringBoundLogger | None = None) -> LogSink:
    """A sink that writes every event as one log line."""
    return LogSink(logger or structlog.get_logger("acklast"))


class LogSink:
    def __init__(self, logger: FilteringBoundLogger) -> None:
        self._logger = logger

    def __call__(self, event: Event) -> None:
        if isinstance(event, Notice):
            getattr(self._logger, event.level)(event.name, **event.fields)
            return
        level = "warning" if event.disposition in _WORRYING else "info"
        getattr(self._logger, level)("job.settled", **_said(event))


def _said(event: Settled) -> dict[str, Any]:
    """The fields that say something: a log line is read at three in the morning."""
    values = ((name, getattr(event, name)) for name in _SETTLED_FIELDS)
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in values
        if value is not None
        and not (name == "ambiguous" and value is False)
        and not (name == "acked" and value)
    }
