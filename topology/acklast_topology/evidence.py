"""What is kept of a message that became a dead letter: evidence for people, a digest for repeats."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final

from acklast_topology.message import OddTime, RawMessage
from acklast_topology.wire import Properties

MAX_EVIDENCE_BYTES: Final = 65_536
"""Bound of the headers, and again of the properties, as JSON; without ``AS_SENT``."""
MAX_TEXT_CHARS: Final = 8_192
MAX_DEPTH: Final = 16
MAX_AS_SENT_BYTES: Final = 262_144
"""More than any broker's frame holds."""
AS_SENT: Final = "as_sent_base64"
CUT: Final = "…"
"""Stands where evidence was cut to its bounds."""

_NOT_PROPERTIES: Final = frozenset({"body", "exchange", "routing_key", "redelivered", "headers"})
_PROPERTIES: Final = tuple(f.name for f in fields(RawMessage) if f.name not in _NOT_PROPERTIES)
# What a broker changes on the way through a dead-letter exchange; the message is the same one.
_UNSTEADY_PROPERTIES: Final = frozenset({"expiration"})
_UNSTEADY_HEADERS: Final = frozenset({"cc", "bcc"})


@dataclass(frozen=True, slots=True)
class Evidence:
    """Headers and properties, ready for JSON and for Postgres: no bytes, no NUL, no surrogates, bounded."""

    headers: dict[str, Any]
    properties: dict[str, Any]


def evidence(raw: RawMessage) -> Evidence:
    """Show a message's headers and properties. Pure; never raises.

    Binary is shown escaped, times as ISO 8601, decimals and numbers beyond 64 bits as text. Where anything
    had to be escaped or cut, or would come back from JSON as something else, the properties show all of them
    once more as ``AS_SENT``.
    """
    named = ((name, getattr(raw, name)) for name in _PROPERTIES)
    of_headers, of_properties = _Shower(times=False), _Shower(times=True)
    headers = of_headers.table(raw.headers.items(), 0)
    properties = of_properties.table(((n, v) for n, v in named if v is not None), 0)
    if not (of_headers.whole and of_properties.whole):
        properties |= _as_sent(raw)
    return Evidence(headers, properties)


def _as_sent(raw: RawMessage) -> dict[str, str]:
    """The properties as AMQP encodes them, headers included: flags and values of a content header frame."""
    try:
        values = {name: getattr(raw, name) for name in _PROPERTIES if name != "type"}
        octets = Properties(**values, headers=dict(raw.headers), message_type=raw.type).marshal()  # type: ignore[arg-type]
    except Exception:  # what no AMQP reader makes has no encoding either
        return {}
    return {AS_SENT: b64encode(octets).decode()} if len(octets) <= MAX_AS_SENT_BYTES else {}


def digest(raw: RawMessage) -> bytes:
    """SHA-256 by which a message that is delivered again is known for the same one. Never raises.

    What a broker adds or changes does not count: the redelivered flag, ``x-*`` headers, the route.
    """
    found = sha256()
    for name in _PROPERTIES:
        if name not in _UNSTEADY_PROPERTIES:
            found.update(b"".join(_hashable(getattr(raw, name), 0)))
    headers = {key: value for key, value in raw.headers.items() if not _unsteady(key)}
    found.update(b"".join(_hashable(headers, 0)))
    found.update(raw.body)
    return found.digest()


def escaped(value: str | bytes | bytearray) -> str:
    """Text that JSON and Postgres can hold: bytes that are not UTF-8, NUL and surrogates are escaped."""
    text = value if isinstance(value, str) else bytes(value).decode("utf-8", "backslashreplace")
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


class _Shower:
    """Turns values to JSON's while it counts down what may still be shown."""

    def __init__(self, *, times: bool) -> None:
        """``times``: whoever reads them again knows which texts are times."""
        self._left = MAX_EVIDENCE_BYTES
        self._times = times
        self.whole = True
        """Whether what was shown can be turned back into what it was."""

    def table(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, value in items:
            if self._left <= 0 or depth > MAX_DEPTH:
                shown[CUT] = "cut"
                self.whole = False
                break
            name = self._text(key) if isinstance(key, str | bytes | bytearray) else self._other(key)
            while name in shown:  # escaped, two names may look alike
                name += "'"
            shown[name] = self._value(value, depth)
        return shown

    def _array(self, values: Iterable[Any], depth: int) -> list[Any]:
        shown: list[Any] = []
        for value in values:
            if self._left <= 0 or depth > MAX_DEPTH:
                shown.append(CUT)
                self.whole = False
                break
            shown.append(self._value(value, depth))
        return shown

    def _value(self, value: object, depth: int) -> Any:
        self._left -= 8  # punctuation and small values: an endless list of nulls is bounded too
        match value:
            case None | bool():
                return value
            case int() if -(2**63) <= value < 2**63:
                self._left -= 20
                self.whole = self.whole and (self._times or not isinstance(value, OddTime))
                return int(value)
            case float() if value - value == 0:  # finite: JSON has no other
                self._left -= 24
                # jsonb has no exponents and no negative zero: 1e300 comes back as an integer of 300 digits.
                self.whole = self.whole and "e" not in repr(value) and repr(value) != "-0.0"
                return float(value)
            case str() | bytes() | bytearray():
                return self._text(value)
            case datetime():
                self.whole = self.whole and self._times
                return self._text(value.isoformat())
            case Mapping():
                return self.table(value.items(), depth + 1)
            case list() | tuple():
                return self._array(value, depth + 1)
            case _:
                return self._other(value)

    def _text(self, value: str | bytes | bytearray) -> str:
        text = escaped(value[:MAX_TEXT_CHARS])
        self._left -= len(json.dumps(text))
        self.whole = self.whole and text == value
        return text if len(value) <= MAX_TEXT_CHARS else text + CUT

    def _other(self, value: object) -> str:
        """Decimals, and what no AMQP reader makes."""
        self.whole = False
        if isinstance(value, int):
            return self._text(hex(value)[:MAX_TEXT_CHARS])  # decimal digits without measure raise
        try:
            return self._text(str(value))
        except Exception:  # a foreign value's own __str__: evidence must not fail for it
            return self._text(type(value).__name__)


def _unsteady(key: object) -> bool:
    text = key if isinstance(key, str) else bytes(key).decode("latin-1") if isinstance(key, bytes) else ""
    lowered = text.lower()
    return lowered.startswith("x-") or lowered in _UNSTEADY_HEADERS


def _hashable(value: object, depth: int) -> Iterator[bytes]:
    """A value as bytes that differ for different values: a tag, a length, the content."""
    if depth > MAX_DEPTH:
        yield b"~"
        return
    match value:
        case Mapping():
            entries = sorted(
                (b"".join(_hashable(k, depth + 1)), b"".join(_hashable(v, depth + 1)))
                for k, v in value.items()
            )
            yield b"F%d;" % len(entries)
            for key, content in entries:
                yield key + content
        case list() | tuple():
            yield b"A%d;" % len(value)
            for item in value:
                yield from _hashable(item, depth + 1)
        case _:
            tag, content = _scalar(value)
            yield b"%s%d;" % (tag, len(content)) + content


def _scalar(value: object) -> tuple[bytes, bytes]:
    match value:
        case None:
            return b"V", b""
        case bool():
            return b"t", b"1" if value else b"0"
        case int():
            return b"I", hex(value).encode()
        case float():
            return b"d", struct.pack(">d", value)
        case str():
            return b"S", value.encode("utf-8", "surrogatepass")
        case bytes() | bytearray():
            return b"B", bytes(value)
        case datetime():
            return b"T", value.isoformat().encode()
        case Decimal():
            return b"D", str(value).encode()
        case _:
            return b"?", type(value).__name__.encode()
