"""The contract's schema and the parser say the same, and what a schema cannot say is known by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from jsonschema_rs import Draft7Validator, meta

from acklast_topology.contract import MAX_HEADERS_BYTES
from acklast_topology.contract_schema import contract_schema
from harness.contract_documents import SCHEMA, documents, is_taken
from harness.drawn import drawn

FILE = Path(__file__).parents[2] / "docs" / "reference" / "contract.schema.json"
EVENT = {"specversion": "1.0", "id": "e-1", "type": "rent.due.v1", "source": "/billing"}


def job(*, properties: dict[str, Any] | None = None, **headers: Any) -> dict[str, Any]:
    """A good message with more in it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"properties": properties or {}, "headers": {"job-key": "k-1", **named}, "body": {}}


def test_the_file_is_what_the_code_makes() -> None:
    """Write it anew: acklast topology schema --out docs/reference/contract.schema.json"""
    assert json.loads(FILE.read_text(encoding="utf-8")) == contract_schema()


def test_it_is_a_schema_of_2020_12_and_its_words_are_draft_7s_too() -> None:
    schema = contract_schema()
    meta.validate(schema)
    again = {**schema, "$schema": "http://json-schema.org/draft-07/schema#"}
    meta.validate(again)
    assert Draft7Validator(again).is_valid(job())


@drawn(50, 1000)
@given(documents)
def test_what_is_valid_is_taken_and_what_is_not_is_refused(document: dict[str, Any]) -> None:
    taken = is_taken(document)
    event(f"taken: {taken}")
    assert SCHEMA.is_valid(document) == taken


@pytest.mark.parametrize(
    "document",
    [
        job(),
        job(run="2025-06", deadline="2040-01-01T00:00:00Z", not_before=None),
        {"properties": {"message_id": "k-1"}},
        {"properties": {"content_type": "application/cloudevents+json"}, "body": EVENT},
        {"headers": {f"cloudEvents:{name}": value for name, value in EVENT.items()}},
        {"headers": {f"cloudEvents_{name}": value for name, value in EVENT.items()}},
        {"headers": {f"ce-{name}": value for name, value in EVENT.items()}},
    ],
)
def test_good_ones_are_valid(document: dict[str, Any]) -> None:
    assert SCHEMA.is_valid(document)
    assert is_taken(document)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"headers": {"job-key": 4711}},
        {"headers": {"job-key": ""}, "properties": {"message_id": "k-1"}},
        job(deadline="2040-01-01T00:00:00"),
        job(properties={"content_encoding": "gzip"}),
        {"properties": {"content_type": "application/cloudevents-batch+json"}, "body": [EVENT]},
        {"headers": {"job-key": "k-1", "cloudEvents:id": "e-1"}},
    ],
)
def test_bad_ones_are_not(document: dict[str, Any]) -> None:
    assert not SCHEMA.is_valid(document)
    assert not is_taken(document)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(job(run="ä" * 128), id="lengths in bytes"),
        pytest.param(job(deadline="2025-02-30T00:00:00Z"), id="a date that exists"),
        pytest.param(job(run="a\u0378"), id="a character that Unicode has not"),
        pytest.param(job(run="a\U000e0001"), id="a format character beyond the basic plane"),
        pytest.param(job(run="a\u0890"), id="a newer format character"),
        pytest.param(job(more="x" * MAX_HEADERS_BYTES), id="all headers together"),
        pytest.param(job(more=2**64), id="a number of more than 64 bits"),
        pytest.param(
            {
                "properties": {"content_type": "application/cloudevents+json"},
                "body": {**EVENT, "data_base64": "?"},
            },
            id="base64",
        ),
    ],
)
def test_what_the_schema_cannot_say_is_checked_all_the_same(document: dict[str, Any]) -> None:
    assert SCHEMA.is_valid(document)
    assert not is_taken(document)


@pytest.mark.parametrize("properties", [{"priority": 10}, {"delivery_mode": 1}, {"expiration": "1000"}])
def test_where_the_schema_asks_more_of_a_publisher_than_the_daemon(properties: dict[str, Any]) -> None:
    assert not SCHEMA.is_valid(job(properties=properties))
    assert is_taken(job(properties=properties))
