"""Lets the client library read messages that its own decoder would die of.

A text that is not UTF-8 or a time out of range raises inside the library's reader and ends the connection;
the broker then delivers the same message again, for ever, and one foreign message stops a whole lane. Here
such a value arrives as what it is, bytes or a number, and the contract makes a dead letter of its message.
Headers are read by the bulk receiver's own function, so that a message means the same on either.

The seam is the decoder's table of functions by AMQP type. It is shared by the whole process, and changes
nothing of what the library could read before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pamqp import decode

from acklast import frames

Decoder: TypeAlias = Callable[[bytes], tuple[int, Any]]

_U64: Final = struct.Struct(">Q")


def install() -> None:
    """Make the library's decoder lenient. Safe to repeat."""
    tolerant: dict[str, Decoder] = {"shortstr": short_text, "timestamp": moment, "table": table}
    decode.METHODS.update(tolerant)


def short_text(value: bytes) -> tuple[int, str | bytes]:
    """A short string; bytes where it is not UTF-8."""
    end = 1 + value[0]
    return end, frames.text(value[1:end])


def moment(value: bytes) -> tuple[int, Any]:
    """A timestamp; the bare number where no calendar has it."""
    return 8, frames.timestamp(_U64.unpack_from(value)[0])


def table(value: bytes) -> tuple[int, dict[Any, Any]]:
    """A field table; what of it cannot be read stays bytes."""
    end = 4 + int.from_bytes(value[:4], "big")
    return end, frames.table(value[4:end])
