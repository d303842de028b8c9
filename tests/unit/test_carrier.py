"""What a job travels on by: the same job to whoever reads it, whatever it holds."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from acklast_topology.carrier import carrier_properties
from acklast_topology.contract import RawMessage
from acklast_topology.wire import Properties, encode_table
from harness.messages import good, hostile_messages, over_the_wire, wire_messages

MESSAGE = RawMessage(
    b"body",
    content_type="text/plain",
    content_encoding="utf-8",
    headers={
        "traceparent": "00-1-2-01",
        "tenant": b"\xff",
        "CC": ["other"],
        "bcc": ["other"],
        "x-death": [{"count": 1}],
        "X-Delivery-Count": 3,
    },
    delivery_mode=1,
    priority=4,
    correlation_id="c-1",
    reply_to="replies",
    expiration="5000",
    message_id="m-1",
    timestamp=datetime(2025, 6, 1, tzinfo=UTC),
    type="rent.reminder.v1",
    user_id="guest",
    app_id="billing",
)


def test_what_goes_along_and_what_does_not() -> None:
    sent = over_the_wire(carrier_properties(MESSAGE, "k-1"), MESSAGE.body)
    assert sent.message_id not in (None, "", "m-1")
    assert sent == RawMessage(
        b"body",
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"job-key": "k-1", "traceparent": "00-1-2-01", "tenant": b"\xff"},
        delivery_mode=2,
        priority=4,
        correlation_id="c-1",
        message_id=sent.message_id,
        timestamp=datetime(2025, 6, 1, tzinfo=UTC),
        type="rent.reminder.v1",
        app_id="billing",
    )


def test_each_carrier_has_a_message_id_of_its_own() -> None:
    assert len({carrier_properties(MESSAGE, "k").message_id for _ in range(100)}) == 100


@pytest.mark.parametrize("priority", [None, 0, 9, 255])
def test_priority_stays_as_it_came_unset_included(priority: int | None) -> None:
    sent = over_the_wire(carrier_properties(RawMessage(b"", priority=priority), "k"))
    assert sent.priority == priority


def test_what_was_not_set_is_not_set() -> None:
    sent = over_the_wire(carrier_properties(RawMessage(b""), "k"))
    assert sent == RawMessage(b"", headers={"job-key": "k"}, delivery_mode=2, message_id=sent.message_id)


@pytest.mark.parametrize(
    "value",
    [
        0.1,
        1e300,
        math.inf,
        b"\xff\xfe",
        bytearray(b"\xff"),
        Decimal("1.25"),
        2**40,
        -(2**63),
        [{"deep": [None, True, b"\xff"]}],
        datetime(2025, 6, 1, tzinfo=UTC),
    ],
    ids=repr,
)
def test_header_values_are_not_changed_on_the_way(value: Any) -> None:
    sent = over_the_wire(carrier_properties(RawMessage(b"", headers={"h": value}), "k")).headers["h"]
    assert sent == value
    assert type(sent) is type(value)


def test_long_header_names_are_not_cut() -> None:
    headers = {"n" * 200 + str(i): i for i in range(3)}
    assert over_the_wire(carrier_properties(RawMessage(b"", headers=headers), "k")).headers == {
        **headers,
        "job-key": "k",
    }


@pytest.mark.parametrize("seconds", [0, 1748736000, 1748736000000])
def test_a_timestamp_that_came_as_a_number_goes_on_as_it_is(seconds: int) -> None:
    encoded = carrier_properties(RawMessage(b"", timestamp=seconds), "k").marshal()
    assert seconds.to_bytes(8, "big") in encoded


def test_what_we_add_is_small() -> None:
    longest = "k" * 255
    bare = len(Properties(headers={}).marshal())
    assert len(carrier_properties(RawMessage(b""), longest).marshal()) - bare < 4096


@given(wire_messages)
def test_the_job_that_comes_back_is_the_job_that_left(raw: RawMessage) -> None:
    job = good(raw)
    again = good(over_the_wire(carrier_properties(raw, job.key), raw.body))
    assert (again.key, again.type, again.body, again.content_type) == (
        job.key,
        job.type,
        job.body,
        job.content_type,
    )
    assert (again.fingerprint, again.published_at) == (job.fingerprint, job.published_at)
    assert again.raw.priority == raw.priority
    kept = {
        n: v
        for n, v in raw.headers.items()
        if n.lower() not in ("cc", "bcc") and not n.lower().startswith("x-")
    }
    assert again.raw.headers == kept


@given(wire_messages)
def test_carrying_twice_changes_nothing_more(raw: RawMessage) -> None:
    once = over_the_wire(carrier_properties(raw, "k"))
    twice = over_the_wire(carrier_properties(once, "k"))
    assert twice.headers == once.headers
    assert (twice.timestamp, twice.priority, twice.type) == (once.timestamp, once.priority, once.type)


@given(hostile_messages)
def test_a_carrier_is_made_of_anything(raw: RawMessage) -> None:
    properties = carrier_properties(raw, "k")
    assert properties.headers is not None
    assert properties.headers["job-key"] == "k"


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, object(), {1: 2}, datetime(1969, 1, 1, tzinfo=UTC), "\ud800"]
)
def test_what_amqp_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_table({"h": value})
