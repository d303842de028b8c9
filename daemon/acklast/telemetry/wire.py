"""OTLP's protobuf, written by hand: spans and log records as the bytes that a collector reads. Pure.

The library's own encoder takes a hundred times as long: it makes a message object of every attribute. At
thousands of jobs a second that is more than all the rest of a job. What it writes is the reference that the
tests compare with.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from acklast.telemetry.record import Record
from acklast.telemetry.span import SAMPLED, Attributes, Operation, Place, Span
from acklast.telemetry.traceparent import Parent

_HAS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200
_FLAGS: Final = struct.Struct("<BBI")
_TIMES: Final = struct.Struct("<BQBQ")
_TIME: Final = struct.Struct("<BQ")
_DOUBLE: Final = struct.Struct("<d")
_VARINTS: Final = [bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(0x4000)]
_ERROR_STATUS: Final = b"\x7a\x02\x18\x02"
"""Field 15, two bytes: the code (3) is ERROR (2)."""
_SPAN_ATTRIBUTE: Final = b"\x4a"
_RECORD_ATTRIBUTE: Final = b"\x32"
_RESOURCE_ATTRIBUTE: Final = b"\x0a"
_SHORT: Final = 256
"""Bytes of a text: what stands before a shorter one is kept."""


def request(resource: bytes, scope: bytes, items: Iterable[bytes]) -> bytes:
    """An export request: for spans and for log records the fields have the same numbers."""
    scoped = _long(b"\x0a", scope) + b"".join([_long(b"\x12", item) for item in items])
    return _long(b"\x0a", _long(b"\x0a", resource) + _long(b"\x12", scoped))


def resource(attributes: Attributes) -> bytes:
    """Who sends."""
    return _attributes(_RESOURCE_ATTRIBUTE, attributes)


def scope(name: str, version: str) -> bytes:
    """Which instrumentation has made it."""
    return _text(b"\x0a", name) + _text(b"\x12", version)


def spans(many: Iterable[Span]) -> list[bytes]:
    """Spans of field 2 of their scope, each without tag and length. Fields may stand in any order.

    What spans of one place have in common is encoded once, if they come one after the other.
    """
    made: list[bytes] = []
    place: Place | None = None
    head = linked = b""
    for one in many:
        if one.place is not place:
            place = one.place
            head, linked = _head(place), _link(place.link)
        flags = SAMPLED | _HAS_REMOTE
        parent = b""
        if one.parent_id is not None:
            parent = b"\x22\x08" + bytes.fromhex(one.parent_id)
            flags |= _IS_REMOTE if one.remote else 0
        parts = (
            head,
            _operation(one.operation),
            b"\x12\x08",
            bytes.fromhex(one.span_id),
            parent,
            _TIMES.pack(0x39, one.start_ns, 0x41, one.end_ns),
            _attributes(_SPAN_ATTRIBUTE, one.attributes) if one.attributes else b"",
            _error(one.error) if one.error is not None else b"",
            linked if one.linked else b"",
            _FLAGS.pack(0x85, 0x01, flags),
        )
        made.append(b"".join(parts))
    return made


def _head(place: Place) -> bytes:
    trace = b"\x0a\x10" + bytes.fromhex(place.trace_id)
    if place.tracestate:
        trace += _text(b"\x1a", place.tracestate)
    return trace + _attributes(_SPAN_ATTRIBUTE, place.attributes)


@lru_cache(2048)
def _operation(operation: Operation) -> bytes:
    said = _attributes(_SPAN_ATTRIBUTE, operation.attributes)
    return _text(b"\x2a", operation.name) + b"\x30" + _VARINTS[operation.kind] + said


def _error(code: str) -> bytes:
    return _attributes(_SPAN_ATTRIBUTE, (("error.type", code),)) + _ERROR_STATUS


def _link(parent: Parent | None) -> bytes:
    if parent is None:
        return b""
    flags = (parent.flags & 0xFF | _HAS_REMOTE | _IS_REMOTE).to_bytes(4, "little")
    ids = b"\x0a\x10" + bytes.fromhex(parent.trace_id) + b"\x12\x08" + bytes.fromhex(parent.span_id)
    return _long(b"\x6a", ids + b"\x35" + flags)


def record(one: Record) -> bytes:
    """One log record, in the same way."""
    parts = [
        _TIME.pack(0x09, one.at_ns),
        b"\x10" + _VARINTS[one.severity],
        _text(b"\x1a", one.level),
        _long(b"\x2a", _text(b"\x0a", one.body)),
        _attributes(_RECORD_ATTRIBUTE, one.attributes),
    ]
    if one.trace_id:
        parts += (b"\x45" + SAMPLED.to_bytes(4, "little"), b"\x4a\x10", bytes.fromhex(one.trace_id))
    if one.span_id:
        parts += (b"\x52\x08", bytes.fromhex(one.span_id))
    parts.append(_TIME.pack(0x59, one.at_ns))
    return b"".join(parts)


# --- the pieces ------------------------------------------------------------------------------------------


def _attributes(tag: bytes, attributes: Attributes) -> bytes:
    """Each is a name (1) and a value (2), which is a message of its own: a text (1), or a number."""
    parts: list[bytes] = []
    for name, value in attributes:
        if value.__class__ is str or isinstance(value, str):  # a reason may be a member of an enumeration
            data = value.encode(errors="replace")
            size = len(data)
            parts.append(_before_text(tag, name, size) if size < _SHORT else _up_to_text(tag, name, size))
            parts.append(data)
        else:
            parts.append(_small(tag, name, value) if value.__class__ is int else _numbered(tag, name, value))
    return b"".join(parts)


def _up_to_text(tag: bytes, name: str, size: int) -> bytes:
    """All that stands before a text of so many bytes that is an attribute's value."""
    key, tagged = _text(b"\x0a", name), b"\x0a" + _varint(size)
    head = b"\x12" + _varint(len(tagged) + size) + tagged
    return tag + _varint(len(key) + len(head) + size) + key + head


_before_text = lru_cache(8192)(_up_to_text)
"""There are few names, and most texts are short."""


def _numbered(tag: bytes, name: str, value: float) -> bytes:
    return _long(tag, _text(b"\x0a", name) + _long(b"\x12", _number(value)))


_small = lru_cache(4096)(_numbered)
"""Most whole numbers are small, and come again: an attempt, a size."""


def _number(value: float) -> bytes:
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18" + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    return b"\x21" + _DOUBLE.pack(value)


def _text(tag: bytes, text: str) -> bytes:
    data = text.encode(errors="replace")
    return tag + _varint(len(data)) + data


def _long(tag: bytes, data: bytes) -> bytes:
    return tag + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    if number < 0x4000:
        return _VARINTS[number]
    output = bytearray()
    while number >= 0x80:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
    return bytes(output)
