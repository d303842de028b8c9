"""How an exception that a handler did not classify is named: by type and place, never by its text.

An exception's text may carry a provider's response, and a response may carry anything.
"""

from __future__ import annotations

import os
import re
import traceback
from types import FrameType, TracebackType
from typing import Final

from acklast.fingerprint import FRAMES, Raised, text_digest

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
    others, own = _frames(error.__traceback__, source)
    if not others:
        return exception_name(error)
    frame, line = (own or others)[-1]
    code = frame.f_code
    place = f"{os.path.basename(code.co_filename)}:{line} {code.co_name}"  # noqa: PTH119 - as above
    return clipped(f"{exception_name(error)} at {place}", 200)


def raised(error: BaseException, source: str, key: str) -> Raised:
    """What the exception tells of the kind of failure. Its text goes in as a digest, and never raises."""
    _, own = _frames(error.__traceback__, source)
    frames = tuple(_name(frame) for frame, _ in own[-FRAMES:][::-1])
    try:
        text = text_digest(str(error), key)
    except Exception:  # its own __str__ is broken: then its type and place must do
        text = ""
    return Raised(exception_name(error), text, frames)


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"


def _frames(
    trace: TracebackType | None, source: str
) -> tuple[list[tuple[FrameType, int]], list[tuple[FrameType, int]]]:
    """The frames that are not acklast's, and those of them that are the handler's own code."""
    home = os.path.join(os.path.dirname(source), "")  # noqa: PTH118, PTH120 - compared with co_filename
    others = [
        (frame, line)
        for frame, line in traceback.walk_tb(trace)
        if not frame.f_code.co_filename.startswith(_ACKLAST)
    ]
    return others, [(frame, line) for frame, line in others if _is_own(frame.f_code.co_filename, home)]


def _is_own(file: str, home: str) -> bool:
    return file.startswith(home) and not any(part in file for part in _INSTALLED)
