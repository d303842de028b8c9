"""What is kept of texts that others wrote."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.ledger.evidence import clean, storable_json
from acklast.telemetry.traceparent import trace_id

ANY_TEXT = st.text(st.characters() | st.sampled_from("\x00\ud800\udfff\\u0"))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=20,
)


def is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.items() for part in item for text in strings(part)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


@given(ANY_TEXT, st.integers(1, 50))
def test_cleaned_text_is_storable_and_bounded(text: str, limit: int) -> None:
    cleaned = clean(text, limit)
    assert is_storable(cleaned)
    assert len(cleaned) == min(len(text), limit)
    if is_storable(text) and len(text) <= limit:
        assert cleaned == text


@given(ANY_JSON)
def test_any_value_becomes_storable_json(value: object) -> None:
    text = storable_json(value)
    assert is_storable(text)
    assert all(is_storable(part) for part in strings(json.loads(text)))


@given(st.recursive(st.integers() | st.text("ab\\u0ü"), st.lists, max_leaves=9))
def test_what_is_storable_already_is_left_alone(value: object) -> None:
    assert json.loads(storable_json(value)) == value


def test_what_json_does_not_know_becomes_text() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    value = {"at": at, UUID(int=1): [{"a"}, (1, 2)], "share": float("inf")}
    assert json.loads(storable_json(value)) == {
        "at": str(at),
        str(UUID(int=1)): [["a"], [1, 2]],
        "share": "inf",
    }


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        ({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}, "a" * 32),
        ({"traceparent": f"00-{'a' * 31}-{'b' * 16}-01"}, None),
        ({"traceparent": 5}, None),
        ({}, None),
    ],
)
def test_the_trace_is_read_from_the_headers(headers: dict[str, object], trace: str | None) -> None:
    assert trace_id(headers) == trace
