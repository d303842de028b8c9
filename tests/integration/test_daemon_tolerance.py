"""Raw messages by the thousand over the wire: each one that the broker takes is done or kept as it came."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeAlias

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from acklast import frames
from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.contract import digest
from acklast_topology.evidence import AS_SENT
from acklast_topology.publish import Job
from harness import Broker, eventually
from harness.daemon import Daemon, Fault
from harness.raw_messages import (
    Draft,
    Field,
    RawMade,
    broken,
    drafts,
    shown_text,
    table_field,
    text_field,
    time_field,
)
from harness.raw_publisher import RawPublisher
from harness.scripted import LANE, TYPE
from harness.site import NAMES, Site, one_receiver_else_soak

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
Identity: TypeAlias = tuple[bytes, str, str]
APP = "harness.tolerant:app"
DRAWN, BATCH = 4, 30


@dataclass
class Published:
    """What was published, and what the broker would not have."""

    confirmed: list[tuple[str | None, RawMade]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def publish(self, publisher: RawPublisher, key: str | None, message: RawMade) -> None:
        routing_key = f"{LANE}.{len(self.confirmed)}".encode()
        refusal = publisher.publish(NAMES.ingress, routing_key, message.properties, message.body)
        if refusal is None:
            self.confirmed.append((key, message))
        else:
            self.refused[f"{refusal.code} {refusal.text[:60]}"] += 1


def publish_many(url: str, examples: int) -> Published:
    """Publish ``examples`` batches of what Hypothesis draws."""
    published = Published()
    with RawPublisher(url) as publisher:

        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(drafts(), min_size=DRAWN, max_size=DRAWN), broken, st.randoms(use_true_random=False))
        def publish(drawn: list[Draft], nonsense: RawMade, chance: Random) -> None:
            for _ in range(BATCH):
                # To draw a message takes much longer than to publish it: so a few are mixed.
                parts = [chance.choice(drawn) for _ in range(3)]
                draft = Draft(parts[0].body, parts[1].values, parts[2].headers)
                published.publish(publisher, *keyed(draft, len(published.confirmed), chance.randrange(10)))
            published.publish(publisher, None, nonsense)

        publish()
    return published


def keyed(draft: Draft, serial: int, kind: int) -> tuple[str | None, RawMade]:
    """The message and its key: of its own, or the one of its id, or one that is none."""
    if kind == 0 and "message_id" in draft.values:
        # Two messages of one key and one content are one to the ledger, whatever else is in them.
        own = draft.values["message_id"][:200] + b"-%d" % serial
        return shown_text(own), Draft(draft.body, draft.values | {"message_id": own}, draft.headers).keyless()
    if kind == 0:
        return None, draft.keyless()
    if kind == 1:
        return None, draft.keyed(b"k%d\xff\0" % serial)
    return f"k{serial}", draft.keyed(b"k%d" % serial)


@dataclass
class Kept:
    """What the ledger knows: letters by what they hold, and the keys that are done."""

    letters: dict[Identity, dict[str, Any]]
    """Each one's row."""
    done: set[str]
    seen: int

    @classmethod
    async def read(cls, dsn: str) -> Kept:
        connection = await asyncpg.connect(dsn)
        try:
            rows = await connection.fetch(
                "SELECT payload, headers, properties, reason, seen FROM acklast.dead_letters"
            )
            done = await connection.fetch("SELECT key FROM acklast.jobs WHERE state = 'done'")
        finally:
            await connection.close()
        letters = {
            identity(row["payload"], json.loads(row["properties"]), json.loads(row["headers"])): dict(row)
            for row in rows
        }
        return cls(letters, {row["key"] for row in done}, sum(row["seen"] for row in rows))

    def keeps(self, message: RawMade) -> bool:
        """Whether a letter has its body and shows its properties, or keeps those that it cannot show."""
        letter = self.letters.get(identity(message.body, *message.letter()))
        if letter is None:
            return False
        as_sent = json.loads(letter["properties"]).get(AS_SENT)
        return as_sent is None or steady(b64decode(as_sent)) == steady(message.properties)


def steady(properties: bytes) -> bytes:
    """What a message's properties say, without what the broker adds."""
    raw = frames.message_of(struct.pack(">HHQ", 60, 0, 0) + properties, b"", "", "", False)
    empty: dict[str, Any] = {name: None for name in TEXTS if getattr(raw, name) == ""}
    return digest(replace(raw, **empty))


def identity(body: bytes, properties: dict[str, Any], headers: dict[str, Any]) -> Identity:
    """What tells a message from all others, without what the broker adds."""
    own = {name: value for name, value in headers.items() if not name.lower().startswith("x-")}
    shown = {name: value for name, value in properties.items() if name != AS_SENT}
    return bytes(body), _plain(shown), _plain(own)


def _plain(values: Any) -> str:
    """As one text; numbers as floats, because Postgres writes 1e30 out, and without the sign of its -0.0."""
    read = json.loads(json.dumps(values), parse_int=float, parse_float=_unsigned)
    return json.dumps(read, sort_keys=True)


def _unsigned(number: str) -> float:
    return float(number) + 0.0


async def publishes_and_accounts(
    new_site: NewSite, broker: Broker, dsn: str, examples: int, timeout_s: float
) -> Published:
    async with new_site(app=APP, concurrency=20) as place:
        with place.daemon() as daemon:
            published = await asyncio.to_thread(publish_many, broker.url, examples)
            await place.publish(Job(LANE, "last", b"{}", type=TYPE))
            await place.reaches("last", State.DONE, timeout_s)
            await eventually(lambda: _all_ended(daemon, len(published.confirmed)), timeout_s, "all has ended")
            await eventually(place.is_drained, what="nothing is left in any queue")
            kept = await Kept.read(dsn)
            unaccounted = [
                (key, message)
                for key, message in published.confirmed
                if key not in kept.done and not kept.keeps(message)
            ]
            assert unaccounted == [], unaccounted[:3]
            repeats = len(daemon.said("job.settled", disposition="decided"))
            assert kept.seen + len(kept.done) + repeats == len(published.confirmed) + 1
            unharmed(daemon)
            assert await daemon.drained() == Exit.OK
    return published


def _all_ended(daemon: Daemon, count: int) -> bool:
    ended = [line for line in daemon.said("job.settled") if line["disposition"] in FINAL]
    return len(ended) >= count + 1


FINAL = ("complete", "malformed", "bury", "conflict", "decided")


def unharmed(daemon: Daemon) -> None:
    """It lives on its first connection, and nothing in it broke."""
    assert daemon.process.poll() is None
    assert len(daemon.said("broker.connected", role="consumer")) == 1
    for wrong in ("lane.interrupted", "delivery.defect", "record.refused", "attempt.defect"):
        assert daemon.said(wrong) == [], daemon.said(wrong)[:2]


NOT_UTF8 = b"\xff\xfe"
GOOD = b'{"steps": [{"do": "done"}]}'
TYPED: dict[str, Any] = {"type": TYPE.encode()}
TEXTS = ("content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "type", "app_id")
BIG = 16 * 2**20


def good(key: str, headers: Any = (), body: bytes = GOOD, **values: Any) -> RawMade:
    """A good message with some of it changed."""
    return Draft(body, TYPED | values, list(headers)).keyed(key.encode())


def cut(message: RawMade) -> RawMade:
    """One of which a letter cannot show all."""
    return replace(message, shown_headers=None)


def nested(depth: int) -> Field:
    inner = Field(b"V", None)
    for _ in range(depth):
        inner = table_field([(b"in", inner)])
    return inner


def named_cases() -> Iterator[tuple[str, str | None, RawMade]]:
    """What each is, the reason of its letter (None: it is a job like any other), and the message."""
    for name in TEXTS:
        yield f"{name} that is not UTF-8", "undecodable", good(name, **{name: NOT_UTF8})
    yield "a header name that is not UTF-8", "undecodable", good("name", [(NOT_UTF8, text_field(b"x"))])
    yield "a nested one", None, good("inner", [(b"t", table_field([(NOT_UTF8, text_field(b"x"))]))])
    yield "a binary header", None, good("binary", [(b"b", text_field(NOT_UTF8))])
    yield "a time out of range", None, good("time", timestamp=2**64 - 1)
    yield (
        "a deadline out of range",
        "invalid_deadline",
        good("deadline", [(b"deadline", time_field(2**64 - 1))]),
    )
    yield "a header that is a time out of range", None, good("late", [(b"t", time_field(2**64 - 1))])
    yield "huge headers", "invalid_headers", cut(good("huge", [(b"h", text_field(b"x" * 100_000))]))
    yield (
        "many headers",
        "invalid_headers",
        # Named in order: RabbitMQ 4.3 sorts a message's headers, and a letter shows the first of them.
        cut(good("many", [(b"h%04d" % n, text_field(b"x" * 9)) for n in range(5000)])),
    )
    yield "nested headers", None, good("nested", [(b"n", nested(12))])
    yield "headers nested without end", None, good("deep", [(b"n", nested(500))])
    yield "an empty body", "invalid_payload", good("empty", body=b"")
    yield "a body of 16 MB", "invalid_payload", good("big", body=b"\0" * BIG)
    yield "a job of 16 MB that waits", None, good("waits", body=AGAIN_JSON + b"x" * BIG + b'"}')
    yield (
        "a compressed body",
        "invalid_payload",
        good("gzip", body=gzip.compress(GOOD), content_encoding=b"gzip"),
    )
    yield "an unknown encoding", "invalid_payload", good("odd", content_encoding=b"klingon")
    yield "a text that says it is compressed", "invalid_payload", good("lie", content_encoding=b"gzip")


AGAIN_JSON = b'{"steps": [{"do": "transient"}, {"do": "done"}], "more": "'


async def test_each_named_oddity_is_done_or_kept_also_when_it_comes_again(
    new_site: NewSite, broker: Broker, ledger_dsn: str
) -> None:
    cases = list(named_cases())
    async with new_site(concurrency=4, prefetch=100) as place:
        with RawPublisher(broker.url) as publisher:
            for what, _, message in cases:
                refusal = await asyncio.to_thread(
                    publisher.publish, NAMES.ingress, LANE.encode(), message.properties, message.body
                )
                assert refusal is None, (what, refusal)
        # The broker reads and writes the headers of what it delivers again: it counts there.
        with place.daemon(fault=Fault("received")) as first:
            await first.dies_at_fault()
        with place.daemon() as daemon:
            await place.publish(Job(LANE, "last", GOOD, type=TYPE))
            await eventually(lambda: _all_ended(daemon, len(cases)), 60, "all has ended")
            await eventually(place.is_drained, what="nothing is left in any queue")
            unharmed(daemon)
            kept = await Kept.read(ledger_dsn)
            for what, reason, message in cases:
                letter = kept.letters.get(identity(message.body, *message.letter()), {})
                assert letter.get("reason") == reason, (what, letter)
                assert reason is None or kept.keeps(message), what
            assert len(kept.done) == 1 + sum(reason is None for _, reason, _ in cases)
            assert await daemon.drained() == Exit.OK


@one_receiver_else_soak
async def test_whatever_is_published_is_done_or_kept_and_the_lane_goes_on(
    new_site: NewSite, broker: Broker, ledger_dsn: str
) -> None:
    published = await publishes_and_accounts(new_site, broker, ledger_dsn, 11, 60)
    assert len(published.confirmed) >= 300


@pytest.mark.soak
async def test_ten_thousand_raw_messages_are_each_done_or_kept(
    new_site: NewSite, broker: Broker, ledger_dsn: str
) -> None:
    published = await publishes_and_accounts(new_site, broker, ledger_dsn, 360, 170)
    assert len(published.confirmed) >= 10_000
