"""A job to publish is checked when it is made, and read back as what it was."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast_topology import Job, Publisher
from acklast_topology.job import MAX_HEADER_NAME_BYTES
from harness.messages import good, keys, over_the_wire, wire_headers

NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
_PLUS_2 = timezone(timedelta(hours=2))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_a_job_is_read_as_it_was_made() -> None:
    job = Job(
        "reminders",
        "2025-06:4711",
        b"{}",
        type="rent.reminder.v1",
        run="2025-06",
        deadline=datetime(2025, 6, 30, 2, tzinfo=_PLUS_2),
        not_before=NOW,
        priority=0,
        headers={"traceparent": "00-1-2-01"},
        routing_suffix="north.7",
    )
    read = good(over_the_wire(job.properties(NOW), job.payload))
    assert (read.key, read.type, read.run, read.body) == (
        "2025-06:4711",
        "rent.reminder.v1",
        "2025-06",
        b"{}",
    )
    assert (read.deadline, read.not_before) == (datetime(2025, 6, 30, tzinfo=UTC), NOW)
    assert (read.published_at, read.raw.priority) == (NOW, 0)
    assert read.raw.headers["traceparent"] == "00-1-2-01"
    assert (job.routing_key, job.fingerprint) == ("reminders.north.7", read.fingerprint)


def test_the_least_that_a_job_needs() -> None:
    job = Job("reminders", "k", b"")
    read = over_the_wire(job.properties(NOW))
    assert (job.routing_key, read.priority, read.type, read.headers) == (
        "reminders",
        None,
        None,
        {"job-key": "k"},
    )


def test_the_same_value_is_the_same_bytes() -> None:
    one = Job.json("a", "k", {"b": [1, "ä"], "a": None}, type="t")
    two = Job.json("a", "k", {"a": None, "b": [1, "ä"]}, type="t")
    assert one.payload == two.payload == '{"a":null,"b":[1,"ä"]}'.encode()
    assert one.fingerprint == two.fingerprint


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"lane": "Reminders"}, "use 1 to 64 of a-z"),
        ({"lane": "a.b"}, "use 1 to 64 of a-z"),
        ({"key": ""}, "printable"),
        ({"key": "k" * 256}, "at most 255 bytes"),
        ({"key": "a\0b"}, "printable"),
        ({"key": 4711}, "must be text"),
        ({"payload": "text"}, "use Job.json"),
        ({"type": "a\0b"}, "NUL"),
        ({"content_type": ""}, "leave it out"),
        ({"content_type": "a\0b"}, "printable"),
        ({"content_type": "application/cloudevents+json"}, "CloudEvent"),
        ({"run": ""}, "printable"),
        ({"deadline": datetime(2025, 6, 1)}, "aware"),  # noqa: DTZ001 - naive on purpose
        ({"not_before": datetime(2025, 6, 1)}, "aware"),  # noqa: DTZ001 - naive on purpose
        ({"priority": 10}, "use 0 to 9"),
        ({"priority": -1}, "use 0 to 9"),
        ({"headers": {"job-key": "k"}}, "own field"),
        ({"headers": {"deadline": "soon"}}, "own field"),
        ({"headers": {"X-Tenant": "t"}}, "another name"),
        ({"headers": {"cc": ["q"]}}, "another name"),
        ({"headers": {"n" * 129: 1}}, "128 bytes"),
        ({"headers": {"": 1}}, "128 bytes"),
        ({"headers": {"n": 2**64}}, "64 bits"),
        ({"headers": {"n": object()}}, "no type"),
        ({"routing_suffix": "s" * 250}, "at most 255 bytes"),
    ],
)
def test_what_breaks_the_contract_is_not_made(changes: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ValueError, match=re.escape(remedy)):
        Job(**{"lane": "reminders", "key": "k", "payload": b"", **changes})


@pytest.mark.parametrize("value", [object(), float("nan"), {1j: 1}, b"bytes", NOW, "\ud800"])
def test_a_payload_that_is_not_json(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        Job.json("a", "k", value)


@given(keys, json_values, st.none() | st.integers(0, 9), wire_headers)
def test_whatever_could_be_made_is_read_the_same(
    key: str, value: Any, priority: int | None, headers: dict[str, Any]
) -> None:
    try:
        job = Job.json("a", key, value, priority=priority, headers=headers)
    except ValueError:
        assert any(
            n.lower() in ("cc", "bcc", "job-key", "deadline", "not-before", "run")
            or n[:2].lower() == "x-"
            or len(n.encode()) > MAX_HEADER_NAME_BYTES
            for n in headers
        )
        return
    read = good(over_the_wire(job.properties(NOW), job.payload))
    assert (read.key, read.body, read.fingerprint) == (key, job.payload, job.fingerprint)
    assert read.raw.priority == priority
    assert read.raw.headers == {**headers, "job-key": key}


@pytest.mark.parametrize(
    ("urls", "more"),
    [
        ([], {}),
        ("localhost", {}),
        (["amqp://a/", "http://b/"], {}),
        ("amqp://a/", {"in_flight": 0}),
        ("amqp://a/", {"timeout_s": 0}),
        ("amqp://a/", {"retries": -1}),
    ],
)
def test_a_publisher_that_cannot_be(urls: Any, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="URL"):
        Publisher.connect(urls, **more)
