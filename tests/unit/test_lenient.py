"""What the client library would die of arrives as it is, and all else as before."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, decode, frame
from pamqp.header import ContentHeader

from acklast import frames, lenient
from acklast.channels import text_of
from acklast_topology.wire import Properties


@pytest.fixture(autouse=True, scope="module")
def installed() -> Iterator[None]:
    """The library's own functions are put back, so that no other test depends on this one."""
    methods = dict(decode.METHODS)
    lenient.install()
    yield
    decode.METHODS.update(methods)


def read(**properties: Any) -> commands.Basic.Properties:
    """The properties after their way over the wire."""
    return read_frame(ContentHeader(0, 2, Properties(**properties)).marshal())


def read_frame(payload: bytes) -> commands.Basic.Properties:
    data = struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce"
    _, _, header = frame.unmarshal(data)
    assert isinstance(header, ContentHeader)
    return header.properties


def headers_frame(encoded: bytes) -> bytes:
    """A content header whose only property is this table."""
    return (
        struct.pack(">HxxQ", 60, 2) + struct.pack(">H", 1 << 13) + struct.pack(">I", len(encoded)) + encoded
    )


@pytest.mark.parametrize("name", ["content_type", "message_id", "message_type", "app_id", "correlation_id"])
def test_text_that_is_not_utf8_arrives_as_bytes(name: str) -> None:
    # The same value that the library's own reader raises for.
    properties = read(**{name: b"\xff\xfe"}, priority=4)
    assert getattr(properties, name) == b"\xff\xfe"
    assert properties.priority == 4


def test_the_library_s_own_decoder_does_raise() -> None:
    """The reason for all this: once it no longer does, this module can go."""
    with pytest.raises(UnicodeDecodeError):
        decode.short_str(b"\x02\xff\xfe")
    with pytest.raises((ValueError, OverflowError)):
        decode.timestamp(b"\xff" * 8)


def test_a_timestamp_out_of_range_arrives_as_a_number() -> None:
    assert read(timestamp=2**64 - 1).timestamp == 2**64 - 1
    assert read(timestamp=1_700_000_000).timestamp == datetime.fromtimestamp(1_700_000_000, UTC)


def test_header_names_that_are_not_utf8_arrive_as_bytes_at_any_depth() -> None:
    given = {b"\xff": 1, "inner": {b"\xfe": [{b"\xfd": "x"}]}, "plain": "y"}
    assert read(headers=given).headers == given


def test_a_time_out_of_range_among_the_headers_arrives_as_a_number() -> None:
    encoded = b"\x04when" + b"T" + b"\xff" * 8 + b"\x01aS\x00\x00\x00\x01b"
    assert read_frame(headers_frame(encoded)).headers == {"when": 2**64 - 1, "a": "b"}


@pytest.mark.parametrize(
    ("encoded", "headers"),
    [
        (b"\x01a?", {"a": b"?"}),  # no AMQP type has this tag
        (
            b"\x01bV\x01aF\x00\x00\xff\xff",
            {"b": None, "a": b"F\x00\x00\xff\xff"},
        ),  # longer than what holds it
        (b"\x01aS\x00", {"a": b"S\x00"}),  # cut off
    ],
)
def test_a_header_that_cannot_be_read_arrives_as_bytes(encoded: bytes, headers: dict[str, Any]) -> None:
    assert read_frame(headers_frame(encoded)).headers == headers


@given(st.binary(max_size=100))
def test_any_headers_are_what_the_bulk_receiver_makes_of_them(encoded: bytes) -> None:
    assert repr(read_frame(headers_frame(encoded)).headers) == repr(frames.table(encoded))


def test_headers_nested_without_end_are_kept_as_bytes_from_some_depth_on() -> None:
    encoded = b""
    for _ in range(5_000):
        encoded = b"\x01aF" + struct.pack(">I", len(encoded)) + encoded
    assert read_frame(headers_frame(encoded)).headers == frames.table(encoded)


def test_ordinary_headers_arrive_as_before() -> None:
    given = {"job-key": "k", "n": 1, "list": [1, "a", {"b": True}], "when": datetime(2026, 1, 1, tzinfo=UTC)}
    assert read(headers=given).headers == given


def test_a_routing_key_that_is_not_utf8_becomes_escaped_text() -> None:
    assert text_of(b"work.\xff") == "work.\\xff"
    assert text_of("work.é") == "work.é"
    assert text_of(None) == ""
