"""Contract v1 as a JSON Schema: what a publisher in any language can check a message with before it sends it.

Made from what the parser itself goes by. The keywords are those that JSON Schema 2020-12, draft 7 and
AsyncAPI share, and the patterns are read alike by every dialect of regular expressions.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any, Final

from acklast_topology import cloudevents
from acklast_topology.contract import MAX_BYTES, PLAIN_ENCODINGS, RFC3339
from acklast_topology.message import (
    DEADLINE_HEADER,
    KEY_HEADER,
    MAX_PRIORITY,
    NOT_BEFORE_HEADER,
    PERSISTENT,
    RUN_HEADER,
)

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DEFS: Final = "#/$defs/"
"""Where the document keeps what several of its parts refer to."""

_DESCRIPTION: Final = (
    "One message as a publisher sends it: its AMQP properties, its headers and, where it is JSON, its body."
    " A header that AMQP sends as a byte array counts as its text, an AMQP timestamp as RFC 3339."
    " acklast takes what is valid here. Not said here, and checked all the same: lengths count in bytes of"
    " UTF-8; times must exist; characters that Unicode has no name for, and format characters that are newer"
    " than Unicode 3.2 or beyond the basic plane, are not printable; data_base64 must be base64; all headers"
    " together have a limit, and their numbers 64 bits; the body must suit the handler. Stricter than the"
    " daemon, which takes others too: priority, delivery_mode, expiration."
)
_TRACE: Final = ("traceparent", "tracestate", "baggage")
_BASIC_PLANE: Final = range(0x10000)


def contract_schema() -> Schema:
    """The whole document, JSON Schema 2020-12."""
    return {
        "$schema": DIALECT,
        "$id": "urn:acklast:contract:v1",
        "title": "A job by acklast's contract, version 1",
        "description": _DESCRIPTION,
        "type": "object",
        "properties": {
            "properties": _properties(),
            "headers": headers_schema(DEFS),
            "body": {"description": "Looked at for a CloudEvent in structured mode alone."},
        },
        **_by_mode(),
        "$defs": definitions(),
    }


def definitions() -> dict[str, Schema]:
    """What the parts of the contract refer to, by name."""
    return {
        "text": {
            "description": f"Printable text of 1 to {MAX_BYTES} bytes of UTF-8.",
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_BYTES,
            "not": {"pattern": _unprintable()},
        },
        "type": {
            "description": f"At most {MAX_BYTES} bytes of UTF-8, without NUL.",
            "type": "string",
            "maxLength": MAX_BYTES,
            "not": {"pattern": "\0"},
        },
        "mediaType": {
            "description": f"Printable text of at most {MAX_BYTES} bytes of UTF-8.",
            "type": "string",
            "maxLength": MAX_BYTES,
            "not": {"pattern": _unprintable()},
        },
        "time": {
            "description": "RFC 3339 with an offset, or an AMQP timestamp.",
            "type": "string",
            "format": "date-time",
            "pattern": f"^(?:{RFC3339.pattern})$",
        },
    }


def headers_schema(prefix: str) -> Schema:
    """The headers; ``prefix`` is where ``definitions`` are kept, such as ``#/$defs/``."""
    return {
        "description": "Others reach the handler; what starts with x-, CC and BCC not after a retry.",
        "type": "object",
        "properties": {
            KEY_HEADER: _optional(prefix, "text", "The job's key. Without it the property message_id is."),
            RUN_HEADER: _optional(prefix, "text", "The id of the run that the job belongs to."),
            DEADLINE_HEADER: _optional(prefix, "time", "The job is not started after it."),
            NOT_BEFORE_HEADER: _optional(prefix, "time", "The job waits until then."),
            **{name: {"description": "W3C trace context."} for name in _TRACE},
        },
    }


def _optional(prefix: str, name: str, description: str) -> Schema:
    return {"description": description, "anyOf": [{"$ref": prefix + name}, {"type": "null"}]}


def _properties() -> Schema:
    text: Schema = {"type": "string"}
    return {
        "description": "Of AMQP's basic class, by their names there.",
        "type": "object",
        "properties": {
            "content_type": {**text, "description": "application/json where it is left out."},
            "content_encoding": {
                **text,
                "description": "Compressed bodies are not read.",
                "pattern": f"^(?:{'|'.join(map(_any_case, sorted(PLAIN_ENCODINGS)))})$",
            },
            "delivery_mode": {"description": "Persistent.", "const": PERSISTENT},
            "priority": {"type": "integer", "minimum": 0, "maximum": MAX_PRIORITY},
            "correlation_id": text,
            "message_id": {**text, "description": f"The key of a job without the header {KEY_HEADER}."},
            "timestamp": {"description": "When it was published, in seconds.", "type": "integer"},
            "type": {
                **text,
                "description": "May be left out where the lane has one handler.",
            },
            "app_id": text,
        },
        # Expires without a word, or is not sent on.
        "not": {"required": ["expiration"]},
    }


def _by_mode() -> Schema:
    """A message says by its content type or its headers whether it is a CloudEvent; else it is plain."""
    otherwise = _plain()
    for prefix in reversed(cloudevents.PREFIXES):
        marked = {"anyOf": [_has_header(prefix + mark) for mark in cloudevents.MARKS]}
        otherwise = {"if": marked, "then": _binary_event(prefix), "else": otherwise}
    family = f"^{_any_case(cloudevents.FAMILY)}"
    return {
        "if": _within("properties", {"content_type": {"type": "string", "pattern": family}}),
        "then": _structured_event(),
        "else": otherwise,
    }


def _plain() -> Schema:
    kept = {"content_type": _ref("mediaType"), "type": _ref("type")}
    return {
        "properties": {"properties": {"properties": kept}},
        "anyOf": [_keyed(), _within("properties", {"message_id": _ref("text")})],
    }


def _binary_event(prefix: str) -> Schema:
    attributes = {prefix + name: rule for name, rule in _event().items()}
    return {
        **_within("headers", attributes),
        "allOf": [{"properties": {"properties": {"properties": {"content_type": _ref("mediaType")}}}}],
        "anyOf": [_keyed(), _within("headers", {f"{prefix}id": _ref("text")})],
    }


def _structured_event() -> Schema:
    json_format = rf"^{_any_case(cloudevents.STRUCTURED)}[\t\n\v\f\r ]*(?:;|$)"
    body = {
        "type": "object",
        "required": list(_event()),
        "properties": {
            **_event(),
            "datacontenttype": {"anyOf": [_ref("mediaType"), {"type": "null"}]},
            "data_base64": {"type": "string", "contentEncoding": "base64"},
        },
        "not": {"required": ["data", "data_base64"]},
    }
    return {
        **_within("properties", {"content_type": {"pattern": json_format}}),
        "allOf": [{"properties": {"body": body}}],
        "anyOf": [_keyed(), {"properties": {"body": {"properties": {"id": _ref("text")}}}}],
    }


def _event() -> dict[str, Schema]:
    """The attributes that the contract reads of an event."""
    return {
        "specversion": {"const": cloudevents.VERSION},
        "id": {"type": "string", "minLength": 1},
        "type": {"allOf": [_ref("type"), {"minLength": 1}]},
    }


def _keyed() -> Schema:
    return _within("headers", {KEY_HEADER: {"type": "string"}})


def _has_header(name: str) -> Schema:
    return {"required": ["headers"], "properties": {"headers": {"required": [name]}}}


def _within(part: str, rules: dict[str, Schema]) -> Schema:
    """These are there, each by its rule."""
    return {"required": [part], "properties": {part: {"required": list(rules), "properties": rules}}}


def _ref(name: str) -> Schema:
    return {"$ref": DEFS + name}


def _any_case(text: str) -> str:
    """A pattern for ``text`` in any case of letters, without a flag that a schema cannot give."""
    return "".join(f"[{c.upper()}{c.lower()}]" if c.isalpha() else f"\\{c}" if c in ".+" else c for c in text)


@cache
def _unprintable() -> str:
    """A class of the characters that the parser does not take for printable.

    Of Unicode 3.2, whose tables never change: the document must not depend on who makes it.
    """
    told = unicodedata.ucd_3_2_0.category
    points = [n for n in _BASIC_PLANE if told(chr(n)) not in ("Cn", "Cs") and not chr(n).isprintable()]
    ranges: list[tuple[int, int]] = []
    for point in points:
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1] = (ranges[-1][0], point)
        else:
            ranges.append((point, point))
    return "[" + "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in ranges) + "]"
