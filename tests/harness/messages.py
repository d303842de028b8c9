"""Messages for tests: hostile ones by the thousand, and the way of one over AMQP's encoding."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from aiormq import spec
from hypothesis import strategies as st
from pamqp import frame
from pamqp.header import ContentHeader

from acklast_topology.contract import Envelope, Malformed, RawMessage, parse

any_text = st.text(st.characters(exclude_categories=()), max_size=40)
"""Surrogates and NUL included: JSON escapes and lenient readers bring them in."""
utf8_text = st.text(max_size=40)
_times = st.datetimes(timezones=st.none() | st.just(UTC))
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(1, 9).map(lambda n: n * 10**5000)
    | st.floats()
    | st.decimals()
    | any_text
    | st.binary(max_size=40)
    | st.binary(max_size=40).map(bytearray)
    | _times
)
_names = any_text | st.binary(max_size=20)
any_value = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=12,
)
_own_names = st.sampled_from(
    ["job-key", "deadline", "not-before", "run", "cloudEvents:id", "cloudEvents_type", "ce-id"]
)
any_headers = st.dictionaries(_names | _own_names, any_value, max_size=6)
_text_property = st.none() | any_text | st.binary(max_size=20)
_content_types = st.sampled_from(
    ["application/json", "application/cloudevents+json", "application/CloudEvents"]
)

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)
_events = _json | st.fixed_dictionaries(
    {"specversion": st.just("1.0") | _json, "id": any_text | _json, "type": any_text | _json},
    optional={"data": _json, "data_base64": _json, "datacontenttype": any_text | _json, "source": _json},
)

hostile_messages = st.builds(
    RawMessage,
    body=st.binary(max_size=60) | _events.map(lambda event: json.dumps(event).encode()),
    redelivered=st.booleans(),
    content_type=_text_property | _content_types,
    content_encoding=_text_property | st.sampled_from(["gzip", "identity"]),
    headers=any_headers,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=_text_property,
    reply_to=_text_property,
    expiration=_text_property,
    message_id=_text_property,
    timestamp=st.none() | _times | st.integers() | st.floats(),
    type=_text_property,
    user_id=_text_property,
    app_id=_text_property,
)
"""Anything that any reader could ever make of a message."""

_wire_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.integers(-(2**31), 2**31 - 1).map(lambda n: Decimal(n).scaleb(-3))
    | utf8_text
    | st.binary(max_size=20).map(lambda octets: octets + b"\xff" * _is_utf8(octets))
    | st.binary(max_size=20).map(bytearray)
    | st.integers(0, 4_000_000_000).map(lambda s: datetime.fromtimestamp(s, UTC))
)
_wire_names = st.text(min_size=1, max_size=60)
wire_headers = st.dictionaries(
    _wire_names,
    st.recursive(
        _wire_scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_wire_names, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=6,
)
"""Headers as the client library reads them from the wire."""

# Each character by itself: of whole texts most would be thrown away.
_printable = st.characters(codec="utf-8", exclude_categories=["C", "Z"], include_characters=" ")
keys = st.text(_printable, min_size=1, max_size=60)
_short = st.none() | st.text(_printable, min_size=1, max_size=30)
wire_messages = st.builds(
    RawMessage,
    body=st.binary(max_size=60),
    content_type=_short,
    headers=st.builds(lambda headers, key: {**headers, "job-key": key}, wire_headers, keys),
    priority=st.none() | st.integers(0, 255),
    correlation_id=_short,
    reply_to=_short,
    expiration=st.none() | st.just("60000"),
    message_id=_short,
    timestamp=st.none() | st.integers(0, 4_000_000_000).map(lambda s: datetime.fromtimestamp(s, UTC)),
    type=_short,
    user_id=_short,
    app_id=_short,
)
"""Messages with a good key as they come over the wire."""


def over_the_wire(properties: spec.Basic.Properties, body: bytes = b"") -> RawMessage:
    """Encode the properties as a publisher does, and read them as a consumer does."""
    header = ContentHeader(body_size=len(body), properties=properties)
    _, _, read = frame.unmarshal(frame.marshal(header, 1))
    assert isinstance(read, ContentHeader)
    values: dict[str, Any] = dict(read.properties)
    values["type"] = values.pop("message_type")
    values.pop("cluster_id")
    values["headers"] = values["headers"] or {}
    return RawMessage(body=body, **values)


def good(raw: RawMessage) -> Envelope:
    """Read a message that keeps the contract."""
    read = parse(raw)
    assert isinstance(read, Envelope), read
    return read


def bad(raw: RawMessage) -> Malformed:
    """Read a message that breaks the contract."""
    read = parse(raw)
    assert isinstance(read, Malformed), read
    return read


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
