"""The standard streams as commands use them: an answer that cannot be written is an error like others."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from acklast.errors import AcklastError, Exit

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STREAMS: Final = ("stdin", "stdout", "stderr")
_STDOUT: Final = 1


class Unwritten(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """Standard output takes no more: its disk is full, or it is closed."""

    exit = Exit.OUTPUT


class _Answer(io.FileIO):
    """Standard output. That its reader went away stays what it is: shells know that case."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            what = f"standard output cannot be written: {error.strerror}"
            remedy = "Make room, or send it elsewhere; what the command did stays done"
            raise Unwritten(what, remedy) from None


def use_streams() -> None:
    """Have every command find three streams, and an answer that is lost be told by ``Unwritten``."""
    for number, name in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            _fill(number, name)
    sys.stdout = answering(_STDOUT, sys.stdout)


def answering(number: int, like: TextIO) -> TextIO:
    """A standard output whose loss is told by ``Unwritten``, in the encoding of this one.

    A terminal of another alphabet shows what it can.
    """
    raw = io.BufferedWriter(_Answer(number, "wb", closefd=False))
    return io.TextIOWrapper(raw, like.encoding, "backslashreplace", line_buffering=like.isatty())


def _fill(number: int, name: str) -> None:
    """A stream that whoever started the command closed: the next file would be taken for it.

    It gives nothing, and takes nothing.
    """
    _put(number, os.O_RDONLY)
    setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))


def drop_output() -> None:
    """Let go of what could not be written: Python tries once more at its end, and would complain of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, Unwritten):
            with suppress(OSError):
                _put(stream.fileno(), os.O_WRONLY)


def _put(number: int, mode: int) -> None:
    null = os.open(os.devnull, mode)
    if null != number:
        os.dup2(null, number)
        os.close(null)
