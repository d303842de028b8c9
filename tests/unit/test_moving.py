"""A message that moves to another queue means there what it meant before."""

from __future__ import annotations

from typing import Any

import pytest

from acklast.moving import moved_properties
from acklast.ways import Way, ways_of
from acklast_topology import contract
from acklast_topology.contract import Envelope, Malformed, RawMessage, Reason
from acklast_topology.names import Names

NAMES = Names()
EVENT = b'{"specversion":"1.0","id":"event-7","source":"/s","type":"t","data":{"a":1}}'


def moved(raw: RawMessage) -> RawMessage:
    """As it comes out of the other queue: with the fresh message id that the sender gives it."""
    properties = moved_properties(raw)
    given = {name: getattr(properties, name) for name in ("content_type", "headers", "priority")}
    return RawMessage(raw.body, message_id="fresh", type=properties.message_type, **given)


@pytest.mark.parametrize(
    "raw",
    [
        RawMessage(
            b"{}", headers={"job-key": "k", "n": b"\xff", "x-death": [{}]}, message_id="m", priority=0
        ),
        RawMessage(b"{}", message_id="m", type="t.v1"),
        RawMessage(EVENT, message_id="m", content_type="application/cloudevents+json"),
    ],
)
def test_a_job_keeps_its_key_and_its_content(raw: RawMessage) -> None:
    before, after = contract.parse(raw), contract.parse(moved(raw))
    assert isinstance(before, Envelope)
    assert isinstance(after, Envelope)
    assert (after.key, after.fingerprint, after.type) == (before.key, before.fingerprint, before.type)
    assert after.raw.priority == before.raw.priority
    assert not any(str(name).startswith("x-") for name in after.raw.headers)


@pytest.mark.parametrize(
    ("headers", "message_id"),
    [({}, None), ({"job-key": ""}, "m"), ({"job-key": 4711}, "m"), ({}, "a\0b"), ({}, b"\xff")],
)
def test_what_had_no_key_gets_none(headers: dict[str, Any], message_id: str | bytes | None) -> None:
    raw = RawMessage(b"{}", headers=headers, message_id=message_id)
    assert isinstance(contract.parse(raw), Malformed)
    assert isinstance(contract.parse(moved(raw)), Malformed)


def test_what_is_broken_otherwise_is_broken_in_the_same_way() -> None:
    raw = RawMessage(b"{}", headers={"job-key": "k", "deadline": "tomorrow"})
    after = contract.parse(moved(raw))
    assert isinstance(after, Malformed)
    assert (after.reason, after.key) == (Reason.INVALID_DEADLINE, "k")


def test_the_ways_into_a_queue_are_its_own_and_what_others_made() -> None:
    work = NAMES.work("rent")

    def row(source: str, key: str, target: str = work, kind: str = "queue") -> dict[str, Any]:
        return {
            "source": source,
            "routing_key": key,
            "destination": target,
            "destination_type": kind,
            "arguments": {"a": 1} if source == "theirs" else {},
        }

    rows = [
        row(NAMES.ingress, "rent"),
        row("", work),
        row("theirs", "#"),
        row("others", "x", NAMES.moving(work)),
        row("theirs", "#", "elsewhere"),
        row("theirs", "#", work, "exchange"),
    ]
    assert ways_of(NAMES, work, rows) == [
        Way(NAMES.ingress, "rent"),
        Way(NAMES.ingress, "rent.#"),
        Way(NAMES.route, "rent.work"),
        Way("theirs", "#", {"a": 1}),
        Way("others", "x"),
    ]
