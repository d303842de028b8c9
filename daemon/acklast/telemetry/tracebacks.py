"""What a log line says of an exception: where it came from, and no value that its text may quote."""

from __future__ import annotations

import sys
from typing import Any

from structlog.typing import EventDict

from acklast.unquoted import unquoted_traceback


def told_exception(_logger: Any, _method: str, line: EventDict) -> EventDict:
    """A processor of structlog's: puts ``exception`` in the place of ``exc_info``."""
    error = _raised(line.pop("exc_info", None))
    if error is not None:
        line["exception"] = unquoted_traceback(error)
    return line


def _raised(given: Any) -> BaseException | None:
    """What may stand there: an exception, the three that belong to one, or that there is one now."""
    match given:
        case BaseException():
            return given
        case (_, BaseException() as error, _):
            return error
        case None | False | (None, None, None):
            return None
        case _:
            return sys.exc_info()[1]
