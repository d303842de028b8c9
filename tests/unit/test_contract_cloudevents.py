"""CloudEvents in structured and binary mode."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from acklast_topology.contract import RawMessage, Reason
from harness.messages import bad, good

EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/billing",
    "type": "rent.due.v1",
    "data": {"b": 1, "a": "ä"},
}
STRUCTURED = "application/cloudevents+json"
BINARY = {"specversion": "1.0", "id": "e-1", "source": "/billing", "type": "rent.due.v1"}


def structured(
    body: bytes | None = None,
    content_type: str = STRUCTURED,
    headers: dict[str, Any] | None = None,
    **changes: Any,
) -> RawMessage:
    event = {name: value for name, value in {**EVENT, **changes}.items() if value is not ...}
    return RawMessage(
        json.dumps(event).encode() if body is None else body,
        content_type=content_type,
        message_id="m-1",
        type="not.this.one",
        headers=headers or {},
    )


def binary(prefix: str = "cloudEvents:", **changes: Any) -> RawMessage:
    attributes = {**BINARY, **changes}
    headers = {prefix + name: value for name, value in attributes.items() if value is not ...}
    return RawMessage(b'{"a":1}', content_type="application/json", message_id="m-1", headers=headers)


def test_a_structured_event() -> None:
    job = good(structured())
    assert (job.key, job.type, job.content_type) == ("e-1", "rent.due.v1", "application/json")
    assert json.loads(job.body) == EVENT["data"]


@pytest.mark.parametrize("content_type", [STRUCTURED, STRUCTURED.upper(), STRUCTURED + "; charset=utf-8"])
def test_the_content_type_with_its_variants(content_type: str) -> None:
    assert good(structured(content_type=content_type)).key == "e-1"


def test_attributes_may_come_as_byte_arrays() -> None:
    job = good(binary(id=bytearray("e-ä".encode()), specversion=bytearray(b"1.0")))
    assert (job.key, job.type) == ("e-ä", "rent.due.v1")
    bad(binary(id=bytearray(b"\xff")))


def test_the_header_wins_over_the_event_id() -> None:
    assert good(structured(headers={"job-key": "k-1"})).key == "k-1"


def test_another_order_of_names_is_a_repeat() -> None:
    one = good(structured(data={"a": 1, "b": 2}, time="2025-06-01T00:00:00Z"))
    two = good(structured(data={"b": 2, "a": 1}))
    assert one.body == two.body
    assert one.fingerprint == two.fingerprint


def test_other_data_is_no_repeat() -> None:
    assert good(structured(data=1)).fingerprint != good(structured(data=2)).fingerprint


def test_binary_data() -> None:
    content = b"\x00\xff"
    job = good(structured(data=..., data_base64=b64encode(content).decode(), datacontenttype="image/png"))
    assert (job.body, job.content_type) == (content, "image/png")


@pytest.mark.parametrize(
    ("data", "datacontenttype", "body"),
    [
        (..., ..., b""),
        (None, ..., b"null"),
        ("<due/>", "text/xml", b"<due/>"),
        ("text", "application/json", b'"text"'),
        ("text", "application/vnd.due+json", b'"text"'),
        ({"a": 1}, "text/xml", b'{"a":1}'),
        ("\ud800", ..., b'"\\ud800"'),
    ],
)
def test_data_by_its_content_type(data: Any, datacontenttype: Any, body: bytes) -> None:
    assert good(structured(data=data, datacontenttype=datacontenttype)).body == body


@pytest.mark.parametrize(
    "changes",
    [
        {"specversion": ...},
        {"specversion": "0.3"},
        {"specversion": 1.0},
        {"id": ...},
        {"id": ""},
        {"id": 7},
        {"type": ...},
        {"type": None},
        {"datacontenttype": 7},
        {"data_base64": "AA=="},  # beside data
        {"data": ..., "data_base64": "not base64"},
        {"data": ..., "data_base64": 7},
        {"data": "\ud800", "datacontenttype": "text/plain"},
        {"datacontenttype": "a\0b"},
    ],
)
def test_broken_structured_events(changes: dict[str, Any]) -> None:
    assert bad(structured(**changes)).reason is Reason.INVALID_PAYLOAD


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b"\xff",
        b'{"data": NaN}',
        b"[" * 100_000,
        b'{"data": ' + b"1" * 10_000 + b"}",
        json.dumps(EVENT).replace('"a"', '"n": 1e400, "a"').encode(),
    ],
    ids=[
        "empty",
        "array",
        "number",
        "cut",
        "not UTF-8",
        "NaN",
        "deep",
        "huge number",
        "number beyond floats",
    ],
)
def test_bodies_that_are_no_event(body: bytes) -> None:
    assert bad(structured(body)).reason is Reason.INVALID_PAYLOAD


@pytest.mark.parametrize(
    "content_type", ["application/cloudevents-batch+json", "application/cloudevents+avro"]
)
def test_other_event_formats_are_refused(content_type: str) -> None:
    assert bad(structured(content_type=content_type)).reason is Reason.INVALID_PAYLOAD


def test_an_id_that_cannot_be_a_key() -> None:
    assert bad(structured(id="a\nb")).reason is Reason.INVALID_KEY


def test_a_type_that_postgres_cannot_hold() -> None:
    broken = bad(structured(type="a\0b"))
    assert (broken.reason, broken.key) == (Reason.INVALID_TYPE, "e-1")


def test_a_broken_event_keeps_the_key_of_its_header() -> None:
    assert bad(structured(b"", headers={"job-key": "k-1"})).key == "k-1"


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_", "ce-"])
def test_a_binary_event(prefix: str) -> None:
    job = good(binary(prefix))
    assert (job.key, job.type, job.body, job.content_type) == (
        "e-1",
        "rent.due.v1",
        b'{"a":1}',
        "application/json",
    )


@pytest.mark.parametrize(
    "changes", [{"specversion": ...}, {"id": ...}, {"id": 7}, {"type": ...}, {"type": ""}]
)
def test_broken_binary_events(changes: dict[str, Any]) -> None:
    assert bad(binary(**changes)).reason is Reason.INVALID_PAYLOAD
