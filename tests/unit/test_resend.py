"""A message comes back from its dead letter as it was sent, whatever it holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from acklast import frames
from acklast.custody import raw_of
from acklast.ledger.dead import Entry, Whole
from acklast.resend import again, raw_of_letter
from acklast_topology import contract
from acklast_topology.carrier import carrier_properties
from acklast_topology.evidence import evidence
from acklast_topology.message import Envelope, OddTime, RawMessage
from harness.raw_messages import Draft, drafts

AT = datetime(2025, 6, 1, 12, tzinfo=UTC)
ENTRY = Entry(1, "l", "k", None, None, "r", "", "f", 1, AT, AT, 1, "w", "1", None, None, 4)


def as_jsonb(number: str) -> Any:
    """Postgres keeps no exponents."""
    return json.loads(format(Decimal(number), "f"))


def letter_of(raw: RawMessage, payload: bytes | None) -> Whole:
    """As it is read from the ledger, which has numbers without exponents."""
    seen = evidence(raw)
    headers = json.loads(json.dumps(seen.headers), parse_float=as_jsonb)
    properties = json.loads(json.dumps(seen.properties))
    return Whole(ENTRY, raw.exchange, raw.routing_key, headers, properties, payload)


@pytest.mark.parametrize(
    "raw",
    [
        RawMessage(b"body", exchange="e", routing_key="l.a", content_type="application/json", type="t.v1"),
        RawMessage(b"\xff\0", headers={"job-key": "k", "n": {"deep": [1, None, True, "ä"]}, "f": 1.5}),
        RawMessage(b"", message_id="m", timestamp=AT, priority=0, correlation_id="c", app_id="a"),
        RawMessage(b"", timestamp=1_748_779_200, delivery_mode=2),
        RawMessage(b"", timestamp=OddTime(2**64 - 1)),
        RawMessage(b"", headers={"binary": bytearray(b"\0\xff"), "text": b"\xff", "amount": Decimal("1.50")}),
        RawMessage(b"", headers={"at": AT}),
        RawMessage(b"", headers={"at": OddTime(253_402_300_800)}),
        RawMessage(b"", headers={"large": 1e300, "small": 1e-7, "zero": -0.0}),
        RawMessage(b"", headers={"long": "x" * 100_000}, type="t"),
    ],
)
def test_a_message_comes_back_as_it_was(raw: RawMessage) -> None:
    back = raw_of_letter(letter_of(raw, raw.body))
    assert back == raw
    sent, resent = (carrier_properties(one, "k") for one in (raw, back))
    sent.message_id = resent.message_id = "the same"
    assert resent.marshal() == sent.marshal()


def test_of_content_that_is_gone_nothing_comes_back() -> None:
    assert raw_of_letter(letter_of(RawMessage(b"body"), None)) is None


def carried(raw: RawMessage, key: str) -> bytes:
    """What a carrier of a message is, but for the id that each has of its own."""
    properties = carrier_properties(raw, key)
    properties.message_id = "the same"
    return properties.marshal() + raw.body


@settings(deadline=None)
@given(drafts())
def test_whatever_was_a_job_is_the_same_job_again(draft: Draft) -> None:
    made = draft.keyed(b"a key")
    raw = frames.message_of(bytes(12) + made.properties, made.body, "e", "r", False)
    envelope = contract.parse(raw)
    found = again(letter_of(raw, raw.body), "a key")
    if not isinstance(envelope, Envelope):
        assert found is None
        return
    assert found is not None
    kept, read = found
    assert carried(raw_of(kept), "a key") == carried(raw, "a key")
    assert (read.key, read.type, read.fingerprint) == ("a key", envelope.type, envelope.fingerprint)
    assert (read.deadline, read.run, read.raw.priority) == (envelope.deadline, envelope.run, raw.priority)


@pytest.mark.parametrize(
    ("headers", "properties"),
    [
        ({}, {"…": "cut"}),
        ({"a": {"…": "cut"}}, {}),
        ({"a": [1, {"b": [2, "…"]}]}, {}),
        ({"a": "x" * 8_192 + "…"}, {}),
        ({}, {"invented": 1}),
        ({}, {"timestamp": "yesterday"}),
        ({}, {"as_sent_base64": "!"}),
        ({}, {"as_sent_base64": "gAA="}),
        ({"deadline": "soon"}, {}),
    ],
)
def test_what_is_not_all_there_is_not_sent_again(headers: Any, properties: Any) -> None:
    assert again(Whole(ENTRY, "", "", headers, properties, b"{}"), "k") is None


def test_text_that_ends_in_dots_is_no_cut_one() -> None:
    headers = {"job-key": "k", "a": "and so on…", "b": ["…", 1], "…": "more"}
    assert again(letter_of(RawMessage(b"{}", headers=headers), b"{}"), "k") is not None
