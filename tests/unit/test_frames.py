"""Frames cut and read in bulk: the same as the client library reads, and more than it survives."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pamqp.frame
import pytest
from aiormq import spec
from hypothesis import given
from hypothesis import strategies as st
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from acklast.frames import HEARTBEAT, table
from acklast.receiver import BulkProtocol
from acklast_topology.contract import RawMessage
from acklast_topology.wire import Properties, encode_table

CHANNEL = 3


def frames_of(tag: int, body: bytes, *, channel: int = CHANNEL, size: int = 1000, **properties: Any) -> bytes:
    """A delivery as the broker sends it, its body in frames of ``size`` bytes."""
    deliver = spec.Basic.Deliver("ctag", tag, True, "acklast.v1.in", "cleanup.x")
    header = ContentHeader(body_size=len(body), properties=Properties(**properties))
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    frames: list[Any] = [deliver, header, *(ContentBody(part) for part in parts)]
    return b"".join(pamqp.frame.marshal(frame, channel) for frame in frames)


class Receiver:
    """A protocol whose deliveries and other bytes can be looked at."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, RawMessage]] = []
        self.reader = asyncio.StreamReader()
        self.protocol = BulkProtocol(self.reader, asyncio.get_running_loop())
        self.protocol.take(CHANNEL, lambda tag, raw: self.taken.append((tag, raw)))

    async def others(self) -> bytes:
        self.reader.feed_eof()
        return await self.reader.read()


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


async def test_a_delivery_comes_with_everything_that_it_holds() -> None:
    receiver = Receiver()
    moment = datetime(2026, 11, 29, 12, tzinfo=UTC)
    data = frames_of(
        7,
        b"x" * 2500,
        content_type="application/json",
        content_encoding="utf-8",
        headers={"job-key": "k", "n": 5},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="1",
        message_id="m",
        timestamp=moment,
        message_type="t",
        user_id="u",
        app_id="a",
    )
    receiver.protocol.data_received(data)
    assert receiver.taken == [
        (
            7,
            RawMessage(
                body=b"x" * 2500,
                exchange="acklast.v1.in",
                routing_key="cleanup.x",
                redelivered=True,
                content_type="application/json",
                content_encoding="utf-8",
                headers={"job-key": "k", "n": 5},
                delivery_mode=2,
                priority=3,
                correlation_id="c",
                reply_to="r",
                expiration="1",
                message_id="m",
                timestamp=moment,
                type="t",
                user_id="u",
                app_id="a",
            ),
        )
    ]


@given(cuts=st.lists(st.integers(0, 5000), max_size=12), bodies=st.lists(st.binary(max_size=300), max_size=6))
async def test_however_the_bytes_arrive_each_frame_goes_where_it_belongs(
    cuts: list[int], bodies: list[bytes]
) -> None:
    receiver = Receiver()
    foreign = [frames_of(n, body, channel=9) for n, body in enumerate(bodies, 1)]
    ours = [frames_of(n, body, size=100) for n, body in enumerate(bodies, 1)]
    data = b"".join(one + two + HEARTBEAT for one, two in zip(foreign, ours, strict=True))
    for chunk in chunks(data, cuts):
        receiver.protocol.data_received(chunk)
    assert [(tag, raw.body) for tag, raw in receiver.taken] == list(enumerate(bodies, 1))
    others = await receiver.others()
    expected = b"".join(one + HEARTBEAT for one in foreign)
    assert others.replace(HEARTBEAT, b"") == expected.replace(HEARTBEAT, b"")
    assert others.count(HEARTBEAT) >= len(bodies)


async def test_another_channels_frames_between_those_of_a_delivery_do_not_disturb_it() -> None:
    receiver = Receiver()
    ours = frames_of(1, b"ab" * 100, size=100)
    method_end = 8 + int.from_bytes(ours[3:7], "big")
    other = pamqp.frame.marshal(spec.Basic.QosOk(), 1)
    receiver.protocol.data_received(ours[:method_end] + other + ours[method_end:])
    assert [(tag, raw.body) for tag, raw in receiver.taken] == [(1, b"ab" * 100)]
    assert await receiver.others() == other


async def test_text_that_is_not_utf_8_and_times_that_are_none_arrive_as_they_are() -> None:
    receiver = Receiver()
    receiver.protocol.data_received(
        frames_of(
            1,
            b"",
            message_id=b"\xff\xfe",
            message_type=b"\x80",
            content_type=b"\xc3\x28",
            timestamp=2**63,
            headers={b"\xff": "v", "t": b"\xfe"},
        )
    )
    ((_, raw),) = receiver.taken
    assert (raw.message_id, raw.type, raw.content_type) == (b"\xff\xfe", b"\x80", b"\xc3\x28")
    assert raw.timestamp == 2**63
    assert raw.headers == {b"\xff": "v", "t": b"\xfe"}


async def test_a_flood_of_deliveries_alone_still_shows_the_library_that_the_connection_lives() -> None:
    receiver = Receiver()
    receiver.protocol.data_received(frames_of(1, b"") + frames_of(2, b""))
    assert await receiver.others() == HEARTBEAT


async def test_a_server_of_another_version_is_left_to_the_library() -> None:
    receiver = Receiver()
    receiver.protocol.data_received(b"AMQP\x01\x01\x00\x0a")
    assert await receiver.others() == b"AMQP\x01\x01\x00\x0a"


async def test_a_read_that_begins_like_a_protocol_header_within_a_body_is_the_bodys() -> None:
    receiver = Receiver()
    foreign = frames_of(1, b"xxxxAMQP\x00\x00\x09\x01 and more", channel=9)
    at = foreign.index(b"AMQP")
    receiver.protocol.data_received(foreign[:at])
    receiver.protocol.data_received(foreign[at:] + frames_of(1, b"ours"))
    assert [(tag, raw.body) for tag, raw in receiver.taken] == [(1, b"ours")]
    assert await receiver.others() == foreign


async def test_a_channel_that_was_left_is_the_librarys_again() -> None:
    receiver = Receiver()
    receiver.protocol.leave(CHANNEL)
    data = frames_of(1, b"b")
    receiver.protocol.data_received(data)
    assert receiver.taken == []
    assert await receiver.others() == data


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001
        lambda at: at.replace(microsecond=0)
    )
    | st.decimals(-1000, 1000, places=3)
    | st.binary(max_size=9).map(bytearray),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=20), values, max_size=5))
def test_a_table_reads_as_it_was_written(written: dict[str, Any]) -> None:
    assert table(encode_table(written)[4:]) == written


@given(st.binary(max_size=200))
def test_no_bytes_make_a_table_fail(octets: bytes) -> None:
    assert isinstance(table(octets), dict)


def test_a_decimal_keeps_its_scale() -> None:
    assert table(b"\x01dD\x02\x00\x00\x00\x7b") == {"d": Decimal("1.23")}


@pytest.mark.parametrize("depth", [10, 500])
def test_a_table_in_a_table_in_a_table_does_not_exhaust_the_stack(depth: int) -> None:
    octets = b"\x01kV"
    for _ in range(depth):
        octets = b"\x01kF" + len(octets).to_bytes(4, "big") + octets
    assert isinstance(table(octets), dict)
