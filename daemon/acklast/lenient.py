"""Lets the client library read messages that its own decoder would die of.

A text that is not UTF-8 or a time out of range raises inside the library's reader and ends the connection;
the broker then delivers the same message again, for ever, and one foreign message stops a whole lane. Here
such a value arrives as what it is, bytes or a number, and the contract makes a dead letter of its message.

The seam is the decoder's table of functions by AMQP type. It is shared by the whole process, and changes
nothing of what the library could read before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pamqp import decode

Decoder: TypeAlias = Callable[[bytes], tuple[int, Any]]

UNREADABLE: Final = b"unreadable"
"""The one header of a message whose headers cannot be read: bytes, so that the contract refuses it."""


def install() -> None:
    """Make the library's decoder lenient. Safe to repeat."""
    by_name: dict[str, Decoder] = {"shortstr": short_text, "timestamp": moment, "table": headers}
    by_tag: dict[bytes, Decoder] = {b"T": moment, b"F": table}
    decode.METHODS.update(by_name)
    decode.TABLE_MAPPING.update(by_tag)


def short_text(value: bytes) -> tuple[int, str | bytes]:
    """A short string; bytes where it is not UTF-8."""
    try:
        return decode.short_str(value)
    except UnicodeDecodeError:
        length = value[0]
        return length + 1, value[1 : length + 1]


def moment(value: bytes) -> tuple[int, Any]:
    """A timestamp; the bare number where no calendar has it."""
    try:
        return decode.timestamp(value)
    except (ValueError, OverflowError, OSError):
        number: int = struct.unpack_from(">Q", value)[0]
        return 8, number


def headers(value: bytes) -> tuple[int, dict[Any, Any]]:
    """A message's headers; ``UNREADABLE`` alone where they cannot be taken apart."""
    try:
        return table(value)
    except (ValueError, LookupError, struct.error, RecursionError):
        length: int = struct.unpack_from(">I", value)[0]
        return 4 + length, {UNREADABLE: None}


def table(value: bytes) -> tuple[int, dict[Any, Any]]:
    """A field table; bytes for a name that is not UTF-8."""
    end = 4 + struct.unpack_from(">I", value)[0]
    if end > len(value):
        raise ValueError("a field table is longer than what holds it")
    offset, found = 4, {}
    while offset < end:
        consumed, name = short_text(value[offset:end])
        offset += consumed
        consumed, found[name] = decode.embedded_value(value[offset:end])
        offset += consumed
    return end, found
