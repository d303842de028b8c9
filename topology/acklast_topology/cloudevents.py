"""CloudEvents 1.0 over AMQP, in both content modes, read into what the contract needs of them.

Structured mode is one JSON object in the body; binary mode keeps the data in the body and the attributes in
headers named ``cloudEvents:...`` or ``cloudEvents_...``, by the binding for AMQP 1.0, or ``ce-...``, by the
one for RabbitMQ.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from acklast_topology.message import JSON, Broken, RawMessage, Reason

STRUCTURED: Final = "application/cloudevents+json"
FAMILY: Final = "application/cloudevents"
PREFIXES: Final = ("cloudEvents:", "cloudEvents_", "ce-")
MARKS: Final = ("specversion", "id", "type", "source")
"""Attributes that every event has: a header of one of these names makes a message an event."""
_MARKED: Final = frozenset(prefix + mark for prefix in PREFIXES for mark in MARKS)
VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True)
class Event:
    """What the contract takes from a CloudEvent. ``id`` and ``type`` are text, not yet checked further."""

    id: str
    type: str
    content_type: str
    body: bytes


def read(raw: RawMessage) -> Event | None:
    """The event that the message carries, or None where it is a plain message.

    Raises:
        Broken: the message says that it is a CloudEvent and is not a valid one.
    """
    content_type = raw.content_type
    if isinstance(content_type, str) and content_type[: len(FAMILY)].lower() == FAMILY:
        return _structured(content_type, raw.body)
    if _MARKED.isdisjoint(raw.headers):  # every delivery comes by here, and hardly any is an event
        return None
    return _binary(raw, next(p for p in PREFIXES if any(p + mark in raw.headers for mark in MARKS)))


def _structured(content_type: str, body: bytes) -> Event:
    if content_type.split(";", 1)[0].strip().lower() != STRUCTURED:
        _refuse(f"of the CloudEvents formats only {STRUCTURED} is supported")
    event = _json_object(body)
    _require_version(event.get("specversion"))
    media = event.get("datacontenttype")
    if media is not None and not isinstance(media, str):
        _refuse("datacontenttype must be text")
    content_type = media or JSON
    return Event(_attribute(event, "id"), _attribute(event, "type"), content_type, _data(event, content_type))


def _binary(raw: RawMessage, prefix: str) -> Event:
    attributes = {mark: _text(raw.headers.get(prefix + mark)) for mark in MARKS}
    _require_version(attributes["specversion"])
    content_type = raw.content_type if isinstance(raw.content_type, str) else None
    return Event(
        _attribute(attributes, "id"), _attribute(attributes, "type"), content_type or JSON, bytes(raw.body)
    )


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        event = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # ValueError holds bad JSON, bad UTF-8 and numbers without measure
        _refuse("the body is not the JSON object of a CloudEvent")
    if not isinstance(event, dict):
        _refuse("the body is not the JSON object of a CloudEvent")
    return event


def _data(event: dict[str, Any], content_type: str) -> bytes:
    """The payload. An event without data has an empty one: that is legal, and the handler's to judge."""
    if "data_base64" in event:
        if "data" in event:
            _refuse("it has both data and data_base64")
        return _base64(event["data_base64"])
    if "data" not in event:
        return b""
    data = event["data"]
    try:
        if isinstance(data, str) and not _is_json(content_type):
            return data.encode()  # text of another format stands in a JSON string
        # Sorted and compact: the same event gives the same bytes, so a repeat is not taken for a conflict.
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):
        _refuse("its data cannot be written as JSON")


def _base64(value: object) -> bytes:
    try:
        return b64decode(value, validate=True)  # type: ignore[arg-type]  # a wrong type raises TypeError
    except (TypeError, ValueError):
        _refuse("data_base64 is not base64")


def _is_json(content_type: str) -> bool:
    media = content_type.split(";", 1)[0].strip().lower()
    return media in (JSON, "text/json") or media.endswith("+json")


def _require_version(value: object) -> None:
    if value != VERSION:
        _refuse(f"specversion must be {VERSION}")


def _text(value: Any) -> Any:
    """Text that a client sent as an AMQP byte array, as text; all else as it is."""
    try:
        return value.decode() if isinstance(value, bytearray) else value
    except UnicodeDecodeError:
        return value


def _attribute(attributes: Mapping[str, Any], name: str) -> str:
    value = attributes.get(name)
    if not isinstance(value, str) or not value:
        _refuse(f"{name} must be text and not empty")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _refuse(detail: str) -> NoReturn:
    raise Broken(Reason.INVALID_PAYLOAD, f"not a valid CloudEvent: {detail}")
