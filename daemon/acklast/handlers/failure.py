"""How an exception that a handler did not classify is named: by type and place, never by its text.

An exception's text may carry a provider's response, and a response may carry anything.
"""

from __future__ import annotations

import os
import re
import traceback
from types import TracebackType
from typing import Final

_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9_]+")
_ACKLAST: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH120, PTH100 - compared with co_filename, which is text
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def clipped(text: str, limit: int) -> str:
    """At most ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def exception_name(error: BaseException) -> str:
    """The exception's class, fit for a reason code."""
    return _NOT_NAME.sub("_", type(error).__name__)[:60]


def sole(error: BaseException) -> BaseException:
    """The one exception inside a group of one, as a task group wraps it; else the exception itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def described(error: BaseException, source: str) -> str:
    """The exception's type and where the handler's own code was when it came.

    ``source`` is the handler's file. Its own code is what lies in the same directory and below.
    """
    place = _place(error.__traceback__, os.path.join(os.path.dirname(source), ""))  # noqa: PTH118, PTH120 - as above
    return clipped(f"{exception_name(error)} at {place}" if place else exception_name(error), 200)


def _place(trace: TracebackType | None, home: str) -> str:
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in traceback.walk_tb(trace)
    ]
    others = [frame for frame in frames if not frame[0].startswith(_ACKLAST)]
    own = [f for f in others if f[0].startswith(home) and not any(part in f[0] for part in _INSTALLED)]
    if not others:
        return ""
    file, line, function = (own or others)[-1]
    return f"{os.path.basename(file)}:{line} {function}"  # noqa: PTH119 - as above
