"""Every shape of message that the broker carries is delivered by either receiver, and means the same on both.

The frames are made by hand: no client library writes them, and some of them end a library's connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias

import asyncpg

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.wire import Properties
from harness import eventually
from harness.scripted import LANE
from harness.site import NAMES, Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

BODY: Final = b'{"steps": [{"do": "done"}]}'
NO_TEXT: Final = b"\xff\xfe"
LAST: Final = "last"
SHORT: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "app_id",
)


class ByHand(Properties):
    """Properties that go out as these bytes."""

    def __init__(self, encoded: bytes) -> None:
        super().__init__()
        self.encoded = encoded

    def marshal(self) -> bytes:
        return self.encoded


def entry(name: bytes, value: bytes) -> bytes:
    """A header: its name and its value with the type before it."""
    return bytes([len(name)]) + name + value


def long(kind: bytes, octets: bytes) -> bytes:
    return kind + struct.pack(">I", len(octets)) + octets


def nested(depth: int, kind: bytes) -> bytes:
    """Tables (F) or arrays (A) within one another."""
    value = long(kind, b"")
    for _ in range(depth):
        value = long(kind, entry(b"a", value) if kind == b"F" else value)
    return value


_BITS: Final = {
    "content_type": 15,
    "content_encoding": 14,
    "headers": 13,
    "delivery_mode": 12,
    "priority": 11,
    "correlation_id": 10,
    "reply_to": 9,
    "message_id": 7,
    "timestamp": 6,
    "type": 5,
    "app_id": 3,
    "cluster_id": 2,
}
_LENGTHS: Final = {"headers": ">I", "delivery_mode": "", "priority": "", "timestamp": ""}
"""How the length before a property is written; a short text's takes one byte."""


def by_hand(key: str, extra: bytes = b"", **properties: bytes) -> ByHand:
    """The properties of a good job with some changed or added; ``extra`` are more headers."""
    headers = entry(b"job-key", long(b"S", key.encode())) + extra
    given = {
        "content_type": b"application/json",
        "headers": headers,
        "delivery_mode": b"\2",
        "type": b"work.v1",
    } | properties
    flags = sum(1 << _BITS[name] for name in given)
    encoded = struct.pack(">H", flags)
    for name in sorted(given, key=lambda name: -_BITS[name]):
        length = _LENGTHS.get(name, ">B")
        encoded += (struct.pack(length, len(given[name])) if length else b"") + given[name]
    return ByHand(encoded)


def with_header(value: bytes) -> Callable[[str], ByHand]:
    return lambda key: by_hand(key, entry(b"a", value))


def with_property(name: str, value: bytes) -> Callable[[str], ByHand]:
    return lambda key: by_hand(key, **{name: value})


GOOD: Final[dict[str, Callable[[str], ByHand]]] = {
    "void": with_header(b"V"),
    "integers": lambda key: by_hand(
        key,
        b"".join(
            entry(kind, kind + b"\xff" * size)
            for kind, size in zip(
                (b"b", b"B", b"s", b"u", b"I", b"i", b"l", b"L"), (1, 1, 2, 2, 4, 4, 8, 8), strict=True
            )
        ),
    ),
    "decimal": with_header(b"D\xff\0\0\0\7"),
    "octets": with_header(long(b"x", NO_TEXT)),
    "text that is none": with_header(long(b"S", NO_TEXT)),
    "no name": lambda key: by_hand(key, entry(b"", long(b"S", b"x"))),
    "one name twice": lambda key: by_hand(key, entry(b"a", b"V") + entry(b"a", b"t\1")),
    "deep tables": with_header(nested(50, b"F")),
    "deeper tables": with_header(nested(500, b"F")),
    "deepest tables": with_header(nested(5_000, b"F")),
    "deep arrays": with_header(nested(5_000, b"A")),
    "time in a header": with_header(b"T" + b"\xff" * 8),
    "far future": with_property("timestamp", b"\xff" * 8),
    "milliseconds": with_property("timestamp", struct.pack(">Q", 1_700_000_000_000)),
    "priority": with_property("priority", b"\xff"),
    "cluster": with_property("cluster_id", NO_TEXT),
}
BROKEN: Final[dict[str, tuple[str, Callable[[str], ByHand]]]] = {
    "name that is no text": ("undecodable", lambda key: by_hand(key, entry(NO_TEXT, b"V"))),
    **{f"{name} that is no text": ("undecodable", with_property(name, NO_TEXT)) for name in SHORT},
}


async def publish(place: Site, *messages: ByHand) -> None:
    async with place.connection.channel() as channel:
        underlay = await channel.get_underlay_channel()
        for properties in messages:
            await underlay.basic_publish(
                BODY, exchange=NAMES.ingress, routing_key=LANE, properties=properties
            )


async def letters(dsn: str) -> list[str]:
    """The reason of every dead letter."""
    connection = await asyncpg.connect(dsn)
    try:
        rows: list[Any] = await connection.fetch("SELECT reason FROM acklast.dead_letters ORDER BY reason")
    finally:
        await connection.close()
    return [row["reason"] for row in rows]


async def test_every_shape_is_delivered(new_site: NewSite, ledger_dsn: str) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            await publish(place, *(make(name) for name, make in GOOD.items()))
            await publish(place, *(make(name) for name, (_, make) in BROKEN.items()))
            await place.publish(scripted(LAST, "done"))
            await place.reaches(LAST, State.DONE)

            async def all_told() -> bool:
                return len(await letters(ledger_dsn)) >= len(BROKEN) and len(place.log.effects()) > len(GOOD)

            await eventually(all_told, what="every message had its effect or is kept")
            assert len(daemon.said("broker.connected", role="consumer")) == 1
            assert await daemon.drained() == Exit.OK
        assert sorted(effect.key for effect in place.log.effects()) == sorted((*GOOD, LAST))
        assert await letters(ledger_dsn) == sorted(reason for reason, _ in BROKEN.values())
        assert await place.ready() == {}


async def test_a_shape_keeps_its_headers_on_its_way_through_a_retry(new_site: NewSite) -> None:
    """What was kept as bytes can be sent on."""
    body = b'{"steps": [{"do": "transient"}, {"do": "done"}]}'
    async with new_site() as place:
        with place.daemon() as daemon:
            async with place.connection.channel() as channel:
                underlay = await channel.get_underlay_channel()
                for name, make in GOOD.items():
                    await underlay.basic_publish(
                        body, exchange=NAMES.ingress, routing_key=LANE, properties=make(name)
                    )
            await eventually(lambda: len(place.log.effects()) == len(GOOD), what="every job is done")
            assert await daemon.drained() == Exit.OK
        assert sorted(effect.key for effect in place.log.effects()) == sorted(GOOD)
        assert len(place.log.calls()) == 2 * len(GOOD)
