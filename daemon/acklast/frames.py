"""AMQP 0-9-1 frames read in bulk, tolerantly: whatever a publisher put into a message, the message comes out.

The client library decodes one frame per step of a coroutine, at five times the cost, and raises inside its
reader on text that is not UTF-8 or a timestamp out of range: the connection dies, and again with the same
message at the head of the queue. Here a delivery is cut out whole, and text that cannot be read stays bytes.

Source: AMQP 0-9-1, sections 4.2.3 to 4.2.6, with RabbitMQ's field types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from struct import Struct, error
from types import MappingProxyType
from typing import Any, Final

from acklast_topology.contract import RawMessage
from acklast_topology.message import OddTime

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
FRAME_END: Final = 0xCE
DELIVER: Final = b"\x00\x3c\x00\x3c"
"""Class and method of basic.deliver."""
CHANNEL_CLOSE: Final = b"\x00\x14\x00\x28"
HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
FRAME_HEAD: Final = Struct(">BHI")

_U64: Final = Struct(">Q")
_NO_HEADERS: Final[Mapping[Any, Any]] = MappingProxyType({})
_DEEPEST: Final = 64
"""Tables nested deeper than this are kept as their bytes."""


def text(octets: bytes) -> str | bytes:
    """Text, or its bytes where it is not UTF-8."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def delivery_of(method: bytes, header: bytes, body: bytes) -> tuple[int, RawMessage]:
    """The delivery tag and the message of a basic.deliver: ``method`` and ``header`` are frame payloads."""
    at = 5 + method[4]  # over class, method and the consumer tag
    tag = _U64.unpack_from(method, at)[0]
    redelivered = bool(method[at + 8] & 1)
    at += 9
    end = at + 1 + method[at]
    exchange = _name(method[at + 1 : end])
    routing_key = _name(method[end + 1 : end + 1 + method[end]])
    return tag, message_of(header, body, exchange, routing_key, redelivered)


@lru_cache(256)
def _name(octets: bytes) -> str:
    """An exchange or a routing key; what of it is not UTF-8 is escaped."""
    return str(octets, "utf-8", "backslashreplace")


def message_of(header: bytes, body: bytes, exchange: str, routing_key: str, redelivered: bool) -> RawMessage:
    """The message of a content header frame's payload and a body."""
    at = 14
    values: list[Any] = [None] * 13
    for n, kind in _present(header[12] << 8 | header[13]):
        if kind == _SHORT:
            end = at + 1 + header[at]
            octets = header[at + 1 : end]
            try:
                values[n] = octets.decode()
            except UnicodeDecodeError:
                values[n] = octets
            at = end
        elif kind == _OCTET:
            values[n] = header[at]
            at += 1
        elif kind == _TABLE:
            size = int.from_bytes(header[at : at + 4], "big")
            values[n] = table(header[at + 4 : at + 4 + size])
            at += 4 + size
        else:
            values[n] = timestamp(_U64.unpack_from(header, at)[0])
            at += 8
    return RawMessage(
        body,
        exchange,
        routing_key,
        redelivered,
        values[0],
        values[1],
        values[2] or _NO_HEADERS,
        *values[3:13],
    )


_SHORT, _OCTET, _TABLE, _TIME = range(4)
_PROPERTIES: Final = (
    *(_SHORT, _SHORT, _TABLE),  # content_type, content_encoding, headers
    *(_OCTET, _OCTET),  # delivery_mode, priority
    *(_SHORT, _SHORT, _SHORT, _SHORT),  # correlation_id, reply_to, expiration, message_id
    *(_TIME, _SHORT, _SHORT, _SHORT),  # timestamp, type, user_id, app_id
)


@lru_cache(256)
def _present(flags: int) -> tuple[tuple[int, int], ...]:
    """Which properties a header's flags announce, and of what kind. Publishers send a few combinations."""
    return tuple((n, kind) for n, kind in enumerate(_PROPERTIES) if flags & 1 << (15 - n))


@lru_cache(256)
def timestamp(seconds: int) -> datetime | OddTime:
    """A moment, or the number where no calendar holds it."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return OddTime(seconds)


def table(octets: bytes, depth: int = 0) -> dict[Any, Any]:
    """A field table. What cannot be read is kept under its name as bytes, with the rest of the table."""
    found: dict[Any, Any] = {}
    at, end = 0, len(octets)
    while at < end:
        size = octets[at]
        name = text(octets[at + 1 : at + 1 + size])
        at += 1 + size
        try:
            found[name], at = _value(octets, at, depth)
        except (error, IndexError, KeyError, ValueError):
            found[name] = octets[at:]
            return found
    return found


def _value(octets: bytes, at: int, depth: int) -> tuple[Any, int]:
    kind = octets[at : at + 1]
    at += 1
    if kind in _SIZED:
        start = at + 4
        end = start + int.from_bytes(octets[at:start], "big")
        if end > len(octets):
            raise ValueError("a value longer than its table")
        return _sized(kind, octets[start:end], depth), end
    struct, read = _FIXED[kind]
    return read(*struct.unpack_from(octets, at)), at + struct.size


_SIZED: Final = frozenset((b"S", b"x", b"F", b"A"))


def _sized(kind: bytes, octets: bytes, depth: int) -> Any:
    if kind == b"S":
        return text(octets)
    if kind == b"x":
        return bytearray(octets)
    if depth >= _DEEPEST:
        return bytearray(octets)
    return table(octets, depth + 1) if kind == b"F" else _array(octets, depth + 1)


def _array(octets: bytes, depth: int) -> list[Any]:
    found: list[Any] = []
    at = 0
    while at < len(octets):
        value, at = _value(octets, at, depth)
        found.append(value)
    return found


def _same(value: Any) -> Any:
    return value


def _decimal(scale: int, unscaled: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale)


_FIXED: Final[dict[bytes, tuple[Struct, Callable[..., Any]]]] = {
    b"t": (Struct(">B"), bool),
    b"b": (Struct(">b"), _same),
    b"B": (Struct(">B"), _same),
    b"s": (Struct(">h"), _same),
    b"u": (Struct(">H"), _same),
    b"I": (Struct(">i"), _same),
    b"i": (Struct(">I"), _same),
    b"L": (Struct(">q"), _same),
    b"l": (Struct(">q"), _same),
    b"f": (Struct(">f"), _same),
    b"d": (Struct(">d"), _same),
    b"D": (Struct(">Bi"), _decimal),
    b"T": (_U64, timestamp),
    b"V": (Struct(""), lambda: None),
}
