"""Messages as bytes on the wire, and beside them what a dead letter must show of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from acklast import frames
from acklast_topology.contract import evidence

_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
)
_LAST_SECOND: Final = 253_402_300_800
"""Of the year 9999, and one."""


@dataclass(frozen=True, slots=True)
class Field:
    """A value's bytes with its type's letter, and how a letter shows it."""

    octets: bytes
    shown: Any


@dataclass(frozen=True, slots=True)
class RawMade:
    """A message: ``properties`` are the flags and what follows them.

    What nobody wrote down to be shown is what acklast's own reader shows.
    """

    properties: bytes
    body: bytes
    shown_properties: dict[str, Any] | None = None
    shown_headers: dict[str, Any] | None = None

    def letter(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The properties and the headers that its dead letter must show."""
        if self.shown_properties is not None and self.shown_headers is not None:
            return self.shown_properties, self.shown_headers
        header = struct.pack(">HHQ", 60, 0, len(self.body)) + self.properties
        seen = evidence(frames.message_of(header, self.body, "", "", False))
        return seen.properties, seen.headers


def shown_text(octets: bytes) -> str:
    """Text as a letter shows it: what is not UTF-8 and NUL are escaped."""
    return octets.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def short(octets: bytes) -> bytes:
    return bytes((len(octets),)) + octets


def long(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def table(entries: Iterable[tuple[bytes, Field]]) -> bytes:
    """A table with its length."""
    return long(b"".join(short(name) + field.octets for name, field in entries))


def made(
    body: bytes, values: dict[str, Any], headers: Iterable[tuple[bytes, Field]] | None = None
) -> RawMade:
    """A message of these properties: bytes are text, numbers are what the property takes."""
    headers = None if headers is None else list(headers)
    flags, octets, shown = 0, b"", {}
    for n, name in enumerate(_PROPERTIES):
        if name == "headers" and headers is not None:
            flags |= 1 << (15 - n)
            octets += table(headers)
        elif name in values:
            flags |= 1 << (15 - n)
            encoded, shown[name] = _property(name, values[name])
            octets += encoded
    shown_headers = {shown_text(name): field.shown for name, field in headers or ()}
    return RawMade(struct.pack(">H", flags) + octets, body, shown, shown_headers)


def _property(name: str, value: Any) -> tuple[bytes, Any]:
    if isinstance(value, bytes):
        return short(value), shown_text(value)
    if name == "timestamp":
        return struct.pack(">Q", value), shown_time(value)
    return bytes((value,)), value


def shown_time(seconds: int) -> Any:
    if seconds < _LAST_SECOND:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    return seconds if seconds < 2**63 else hex(seconds)


# --- fields ------------------------------------------------------------------------------------------


def text_field(octets: bytes) -> Field:
    return Field(b"S" + long(octets), shown_text(octets))


def array_field(fields: Iterable[Field]) -> Field:
    found = list(fields)
    return Field(b"A" + long(b"".join(one.octets for one in found)), [one.shown for one in found])


def table_field(entries: Iterable[tuple[bytes, Field]]) -> Field:
    found = list(entries)
    return Field(b"F" + table(found), {shown_text(name): field.shown for name, field in found})


def time_field(seconds: int) -> Field:
    return Field(b"T" + struct.pack(">Q", seconds), shown_time(seconds))


def _number(kind: str, layout: str) -> st.SearchStrategy[Field]:
    bits = 8 * struct.calcsize(layout)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if layout[1].islower() else (0, 2**bits - 1)
    return st.integers(low, high).map(lambda n: Field(kind.encode() + struct.pack(layout, n), n))


def _float(kind: str, layout: str, width: Any) -> st.SearchStrategy[Field]:
    finite = st.floats(allow_nan=False, allow_infinity=False, width=width)
    return finite.map(lambda x: Field(kind.encode() + struct.pack(layout, x), x))


_octets = st.binary(max_size=30) | st.text(max_size=12).map(str.encode)
_seconds = (
    st.integers(0, 2**64 - 1) | st.integers(0, 2**32) | st.sampled_from([2**63, 2**64 - 1, _LAST_SECOND])
)
_scalars = (
    st.just(Field(b"V", None))
    | st.booleans().map(lambda on: Field(b"t\x01" if on else b"t\x00", on))
    | _number("b", ">b")
    | _number("B", ">B")
    | _number("s", ">h")
    | _number("u", ">H")
    | _number("I", ">i")
    | _number("i", ">I")
    | _number("l", ">q")
    | _float("f", ">f", 32)
    | _float("d", ">d", 64)
    | _octets.map(text_field)
    | _octets.map(lambda octets: Field(b"x" + long(octets), shown_text(octets)))
    | _seconds.map(time_field)
)
Entries: TypeAlias = "list[tuple[bytes, Field]]"
_utf8 = st.text(max_size=10).map(str.encode)


def _entries(
    names: st.SearchStrategy[bytes], values: st.SearchStrategy[Field], most: int
) -> st.SearchStrategy[Entries]:
    """Names of one table differ also as they are shown."""
    pairs = st.tuples(names.filter(lambda name: not _brokers(name)), values)
    return st.lists(pairs, max_size=most, unique_by=lambda pair: shown_text(pair[0]))


def _brokers(name: bytes) -> bool:
    """What the broker itself reads or adds, or what the contract knows."""
    return name.lower().startswith(b"x-") or name.lower() in (b"cc", b"bcc", b"job-key")


fields = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4).map(array_field)
        | _entries(_utf8 | st.binary(max_size=12), inner, 4).map(table_field)
    ),
    max_leaves=8,
)
_own = st.sampled_from(
    [b"deadline", b"not-before", b"run", b"traceparent", b"cloudEvents:id", b"cloudEvents_type", b"ce-id"]
)
_texts = _octets | st.binary(max_size=255)
_bodies = (
    st.binary(max_size=200)
    | st.just(b"")
    | st.binary(max_size=20).map(lambda b: b"again" + b)
    | st.binary(min_size=1, max_size=9).map(lambda b: b * 9000)
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A message without its key."""

    body: bytes
    values: dict[str, Any]
    headers: list[tuple[bytes, Field]] | None

    def keyed(self, key: bytes) -> RawMade:
        """The message with this key in its header."""
        return made(self.body, self.values, [*(self.headers or ()), (b"job-key", text_field(key))])

    def keyless(self) -> RawMade:
        return made(self.body, self.values, self.headers)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Anything that a publisher can encode. Most of it is text, so that more than the first check is met."""
    octets = _texts if draw(st.integers(0, 3)) == 0 else _utf8
    values: dict[str, Any] = {}
    for name in ("correlation_id", "reply_to", "message_id", "app_id"):
        if draw(st.integers(0, 3)) == 0:
            values[name] = draw(octets)
    if draw(st.booleans()):
        values["type"] = draw(st.sampled_from([b"work.v1", b"work.v1", b"work.v1", b""]) | octets)
    if draw(st.booleans()):
        values["content_type"] = draw(st.sampled_from([b"application/json", b"text/plain"]) | octets)
    if draw(st.integers(0, 4)) == 0:
        values["content_encoding"] = draw(st.sampled_from([b"gzip", b"utf-8", b"identity", b""]) | octets)
    if draw(st.booleans()):
        values["timestamp"] = draw(_seconds)
    if draw(st.booleans()):
        # The broker knows no other one.
        values["delivery_mode"] = draw(st.sampled_from([1, 2, 2, 2]))
    if draw(st.booleans()):
        values["priority"] = draw(st.integers(0, 255))
    headers = None
    if draw(st.integers(0, 4)):
        own = draw(st.lists(st.tuples(_own, fields), max_size=1)) if draw(st.integers(0, 4)) == 0 else []
        headers = own + [pair for pair in draw(_entries(octets, fields, 5)) if pair[0] not in dict(own)]
    return Draft(draw(_bodies), values, headers)


broken = st.builds(
    lambda flags, rest, body: RawMade(struct.pack(">H", flags) + rest, body),
    st.integers(0, 0xFFFF) | st.just(1 << 13),
    st.binary(max_size=60) | st.binary(max_size=60).map(long),
    st.binary(max_size=20),
)
"""Bytes where properties are due: the broker refuses most of them."""
