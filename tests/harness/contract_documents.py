"""Messages as the contract's schema sees them: properties, headers and body, all JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from acklast_topology.contract import Envelope, RawMessage, parse
from acklast_topology.contract_schema import contract_schema

SCHEMA: Final = Draft202012Validator(contract_schema(), validate_formats=False)


def raw_of(document: dict[str, Any]) -> RawMessage:
    """The message that a document stands for."""
    return RawMessage(
        json.dumps(document.get("body")).encode(),
        headers=document.get("headers", {}),
        **document.get("properties", {}),
    )


def is_taken(document: dict[str, Any]) -> bool:
    """Whether the parser makes a job of it."""
    return isinstance(parse(raw_of(document)), Envelope)


_TEXT: Final = Draft202012Validator(contract_schema()["$defs"]["text"])
_UNTOLD: Final = "".join(
    character
    for character in map(chr, range(0x10000))
    if not ("\ud800" <= character <= "\udfff" or character.isprintable()) and _TEXT.is_valid(character)
)
"""Not printable to the parser, and the schema cannot say so."""

_STRUCTURED = "application/cloudevents+json"
_any_text = st.text(
    st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"], exclude_characters=_UNTOLD), max_size=60
)
_good_texts = st.sampled_from(["k-1", "2025-06:4711", "a b", "ä\u4e2d", "x" * 255])
_texts = (
    st.sampled_from(["", "k-1", "a b", "a\n", "\0", "a\u00a0b", "\u200b", "\ue000", "x" * 255, "x" * 256])
    | st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=60)
    | _any_text
)
_moments = st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
_times = (
    st.sampled_from(
        [
            "2025-06-01T12:00:00Z",
            "2025-06-01t12:00:00.5z",
            "2025-06-01 12:00:00+02:00",
            "2025-06-01T12:00:00",
            "2025-06-01",
            "2025-06-01T12:00:00+0200",
            "2025-06-01T12:00Z",
            "tomorrow",
            "",
        ]
    )
    | _moments
)
_numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
_scalars = st.none() | st.booleans() | _numbers | _any_text
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_any_text, inner, max_size=3),
    max_leaves=6,
)
_media = st.sampled_from(["application/json", "text/plain", "a\nb", "application/json; charset=utf-8"])


def _mostly(good: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One wrong part makes the whole wrong: so most parts are right."""
    return st.integers(0, 7).flatmap(lambda chance: other if chance == 7 else good)


def _event(prefix: str) -> st.SearchStrategy[dict[str, Any]]:
    """The attributes of an event, some of them missing or wrong."""
    return st.fixed_dictionaries(
        {},
        optional={
            f"{prefix}specversion": _mostly(st.just("1.0"), st.sampled_from(["0.3", 1.0, None])),
            f"{prefix}id": _mostly(_good_texts, _texts | _scalars),
            f"{prefix}type": _mostly(_good_texts, _texts | _scalars),
            f"{prefix}source": st.just("/billing"),
        },
    )


_own_headers = st.fixed_dictionaries(
    {},
    optional={
        "job-key": _mostly(_good_texts, _texts | _values),
        "run": _mostly(_good_texts, _texts | _values),
        "deadline": _mostly(_moments, _times | _values),
        "not-before": _mostly(_moments, _times | _values),
        "traceparent": _values,
        "x-death": _values,
    },
)
_headers = st.builds(
    lambda *parts: {name: value for part in parts for name, value in part.items()},
    st.dictionaries(st.text(st.characters(codec="ascii"), max_size=10), _values, max_size=2),
    _own_headers,
    st.just({}) | st.just({}) | _event("cloudEvents:") | _event("cloudEvents_") | _event("ce-"),
)
_properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": _mostly(
            st.sampled_from(["application/json", "text/plain", "", _STRUCTURED, _STRUCTURED.upper()]),
            st.sampled_from([f"{_STRUCTURED} ; charset=utf-8", f"{_STRUCTURED}x", "application/cloudevents"])
            | _texts,
        ),
        "content_encoding": _mostly(st.sampled_from(["", "identity", "UTF-8", "utf8"]), st.just("gzip")),
        "delivery_mode": st.just(2),
        "priority": st.integers(0, 9),
        "message_id": _mostly(_good_texts, _texts),
        "timestamp": st.integers(0, 2**64 - 1),
        "type": _mostly(_good_texts, _texts),
        "correlation_id": _any_text,
    },
)
_data = st.fixed_dictionaries(
    {},
    optional={
        "data": _values,
        "data_base64": _mostly(st.just("YQ=="), st.none()),
        "datacontenttype": _mostly(st.just("application/json"), _media | _values),
    },
)
_bodies = _values | st.builds(lambda event, data: {**event, **data}, _event(""), _data)

documents = st.fixed_dictionaries({"properties": _properties, "headers": _headers, "body": _bodies})
"""Of every kind and mode, right and wrong; nothing in them that a schema cannot say."""
