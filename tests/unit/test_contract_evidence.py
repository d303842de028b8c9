"""Evidence for people and the digest for repeats."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from acklast.frames import message_of
from acklast_topology.contract import RawMessage, digest, evidence
from acklast_topology.evidence import AS_SENT, MAX_EVIDENCE_BYTES, escaped
from acklast_topology.message import OddTime

DEEP: Any = None
for _ in range(500):
    DEEP = {"d": [DEEP]}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (2**70, hex(2**70)),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (Decimal("1.10"), "1.10"),
        ("ä", "ä"),
        ("a\0b", "a\\x00b"),
        ("\ud800", "\\ud800"),
        (b"\xff\x00ok", "\\xff\\x00ok"),
        (bytearray(b"ok"), "ok"),
        (datetime(2025, 6, 1, tzinfo=UTC), "2025-06-01T00:00:00+00:00"),
        ([1, b"\xff", [None]], [1, "\\xff", [None]]),
        ({"n": {b"\xff": 1}}, {"n": {"\\xff": 1}}),
    ],
)
def test_values_are_made_plain(value: Any, shown: Any) -> None:
    assert evidence(RawMessage(b"", headers={"h": value})).headers == {"h": shown}


def test_only_properties_that_were_set_are_shown() -> None:
    raw = RawMessage(b"body", message_id="m", priority=0, user_id="u", exchange="e", routing_key="r")
    assert evidence(raw).properties == {"message_id": "m", "priority": 0, "user_id": "u"}


@pytest.mark.parametrize(
    "raw",
    [
        RawMessage(b"", message_id=b"\xff", headers={"n": 1}),
        RawMessage(b"", app_id="\0", timestamp=OddTime(2**64 - 1)),
        RawMessage(b"", headers={b"\xff": "a", "\\xff": "b"}, type="t", priority=3),
        RawMessage(b"", headers={"long": "x" * 100_000, "bytes": bytearray(b"\0\1"), "d": Decimal("1.50")}),
        RawMessage(b"", headers={"when": OddTime(2**63), "deep": {"a": [{"b": b"\xfe"}] * 3}}),
    ],
)
def test_what_cannot_be_shown_whole_is_kept_as_it_was_sent(raw: RawMessage) -> None:
    octets = b64decode(evidence(raw).properties[AS_SENT])
    read = message_of(struct.pack(">HHQ", 60, 0, 0) + octets, b"", "", "", False)
    assert read == raw


def test_two_names_that_look_alike_are_both_shown() -> None:
    shown = evidence(RawMessage(b"", headers={b"\xff": "a", "\\xff": "b"})).headers
    assert shown == {"\\xff": "a", "\\xff'": "b"}


@pytest.mark.parametrize(
    "value",
    ["x" * 10_000_000, b"\xff" * 10_000_000, ["\x01" * 8000] * 1000, [None] * 1_000_000, 10**6000, DEEP],
    ids=["long text", "long binary", "many long texts", "many nulls", "a huge number", "a deep table"],
)
def test_evidence_is_bounded(value: Any) -> None:
    shown = json.dumps(evidence(RawMessage(b"", headers={"first": 1, "h": value})).headers)
    assert len(shown) < 2 * MAX_EVIDENCE_BYTES
    assert json.loads(shown)["first"] == 1


def test_escaped_text_is_kept_where_it_can_be() -> None:
    assert escaped("plain ä") == "plain ä"
    assert escaped(b"\xc3\xa4\x00") == "ä\\x00"


MESSAGE = RawMessage(b"body", headers={"job-key": "k", "n": [1, {"a": b"\xff"}]}, type="t", priority=3)


@pytest.mark.parametrize(
    "again",
    [
        replace(MESSAGE, redelivered=True),
        replace(MESSAGE, exchange="acklast.v1.route", routing_key="a.dead", expiration="5"),
        replace(
            MESSAGE,
            headers={**MESSAGE.headers, "x-death": [{"count": 1}], "X-Delivery-Count": 2, "CC": ["q"]},
        ),
        replace(MESSAGE, headers=dict(reversed(list(MESSAGE.headers.items())))),
    ],
)
def test_a_redelivery_has_the_same_digest(again: RawMessage) -> None:
    assert digest(again) == digest(MESSAGE)


@pytest.mark.parametrize(
    "other",
    [
        replace(MESSAGE, body=b"bodz"),
        replace(MESSAGE, type=None),
        replace(MESSAGE, type=b"t"),
        replace(MESSAGE, priority=None),
        replace(MESSAGE, message_id="m"),
        replace(MESSAGE, correlation_id="m"),
        replace(MESSAGE, headers={"job-key": "k"}),
        replace(MESSAGE, headers={**MESSAGE.headers, "n": [1, {"a": b"\xfe"}]}),
        replace(MESSAGE, headers={**MESSAGE.headers, "n": [[1], {"a": b"\xff"}]}),
    ],
)
def test_another_message_has_another_digest(other: RawMessage) -> None:
    assert digest(other) != digest(MESSAGE)


def test_text_does_not_move_between_properties() -> None:
    assert digest(RawMessage(b"", message_id="a")) != digest(RawMessage(b"", type="a"))
    assert digest(RawMessage(b"", headers={"a": "bc"})) != digest(RawMessage(b"", headers={"ab": "c"}))


def test_a_number_is_not_its_text() -> None:
    digests = {
        digest(RawMessage(b"", headers={"n": value})) for value in (1, True, "1", 1.0, b"1", Decimal(1))
    }
    assert len(digests) == 6


def test_depth_does_not_end_the_digest() -> None:
    assert len(digest(RawMessage(b"", headers={"d": DEEP}))) == 32
