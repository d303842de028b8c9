"""Contract v1: what any AMQP client publishes, and how acklast reads it.

``parse`` turns whatever came over the wire into a value; it never raises for bad input. A message that
breaks the contract becomes ``Malformed`` with a reason that its dead letter carries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final

from acklast_topology import cloudevents
from acklast_topology.evidence import Evidence, digest, evidence
from acklast_topology.message import (
    DEADLINE_HEADER,
    JSON,
    KEY_HEADER,
    NOT_BEFORE_HEADER,
    OWN_HEADERS,
    RUN_HEADER,
    Broken,
    Envelope,
    Malformed,
    OddTime,
    RawMessage,
    Reason,
)
from acklast_topology.wire import encode_table

__all__ = [
    "DEADLINE_HEADER",
    "JSON",
    "KEY_HEADER",
    "NOT_BEFORE_HEADER",
    "OWN_HEADERS",
    "RUN_HEADER",
    "Envelope",
    "Evidence",
    "Malformed",
    "RawMessage",
    "Reason",
    "digest",
    "evidence",
    "fingerprint",
    "parse",
]

MAX_BYTES: Final = 255
"""The longest key, run or type: what an AMQP short string holds."""

MAX_HEADERS_BYTES: Final = 65_536
"""Of a publisher's headers, encoded: half of RabbitMQ's frame, so that a retry always fits."""
BROKERS_PREFIX: Final = "x-"
"""Of headers that the broker adds, and that are never sent on."""

_UTF8_MAX: Final = 4
_ENTRY_BYTES: Final = 6
"""Of a header in the table, beside its name and text."""
_SURELY_SHORT: Final = MAX_BYTES // _UTF8_MAX
"""Characters that fit in ``MAX_BYTES`` whatever they are: no need to encode them to know."""

_TEXTS: Final = (
    "content_type",
    "content_encoding",
    "message_id",
    "type",
    "correlation_id",
    "reply_to",
    "expiration",
    "user_id",
    "app_id",
)
_texts = attrgetter(*_TEXTS)
_TEXT_TYPES: Final = {str, type(None)}
_NAME_TYPES: Final = {str}
PLAIN_ENCODINGS: Final = frozenset({"", "identity", "7bit", "8bit", "binary", "us-ascii", "utf-8", "utf8"})
"""What ``content_encoding`` may say, in any case of letters: what changes no byte.

kombu says ``binary`` of bytes that it is given with a content type, others name the text's character set.
"""
RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_MAX_SECONDS: Final = 0xFFFFFFFF
"""A timestamp above this (the year 2106) is milliseconds."""


def parse(raw: RawMessage) -> Envelope | Malformed:
    """Read a message by contract v1. Pure; never raises, whatever the message holds."""
    key: str | None = None
    try:
        _require_text(raw)
        key = _key_of_header(raw.headers)
        _require_portable(raw.headers)
        event = cloudevents.read(raw)
        if key is None:
            key = _key_of_message(raw, event)
        return _envelope(raw, key, event)
    except Broken as broken:
        return Malformed(broken.reason, broken.detail, key, raw)


def fingerprint(type: str | None, content_type: str, body: bytes) -> bytes:  # noqa: A002 - the property's name
    """SHA-256 that is the same for a repeat of a job and another for another content under its key.

    Each part goes in with its length, so that no shift of bytes from one part to the next gives the same
    hash; an absent type differs from every type.
    """
    name = b"-" if type is None else b"+" + type.encode(errors="surrogatepass")
    media = content_type.encode(errors="surrogatepass")
    lengths = b"%d,%d,%d;" % (len(name), len(media), len(body))
    return sha256(lengths + name + media + body).digest()


def _envelope(raw: RawMessage, key: str, event: cloudevents.Event | None) -> Envelope:
    content_type: str = raw.content_type or JSON  # type: ignore[assignment]  # _require_text saw to it
    type_, body = raw.type or None, raw.body
    if event is not None:
        content_type, type_, body = event.content_type, event.type, event.body
    _require_plain(raw.content_encoding)
    _require_media(content_type)
    headers = raw.headers
    name = _type(type_)
    return Envelope(
        key=key,
        type=name,
        body=body,
        content_type=content_type,
        fingerprint=fingerprint(name, content_type, body),
        run=_run(headers.get(RUN_HEADER)),
        deadline=_moment(headers.get(DEADLINE_HEADER), DEADLINE_HEADER, Reason.INVALID_DEADLINE),
        not_before=_moment(headers.get(NOT_BEFORE_HEADER), NOT_BEFORE_HEADER, Reason.INVALID_NOT_BEFORE),
        published_at=_published_at(raw.timestamp),
        raw=raw,
    )


def _require_text(raw: RawMessage) -> None:
    """Refuse a property or a header name that is not UTF-8: nothing can be said about such a message."""
    values = _texts(raw)
    if not _TEXT_TYPES.issuperset(map(type, values)):
        wrong = [n for n, v in zip(_TEXTS, values, strict=True) if type(v) not in _TEXT_TYPES]
        raise Broken(Reason.UNDECODABLE, f"not UTF-8 text: property {', '.join(wrong)}")
    if not _NAME_TYPES.issuperset(map(type, raw.headers)):
        raise Broken(Reason.UNDECODABLE, "not UTF-8 text: a header's name")


def _require_portable(headers: Mapping[Any, Any]) -> None:
    """Refuse headers that a retry could not carry: all properties of a message must fit in one frame.

    Found out after the first attempt, it would be too late: the job could neither wait nor go on.
    """
    if _surely_small(headers):
        return
    try:
        size = len(encode_table({n: v for n, v in headers.items() if not n.startswith(BROKERS_PREFIX)}))
    except (TypeError, ValueError, RecursionError) as error:
        raise Broken(Reason.INVALID_HEADERS, f"the headers cannot be sent on: {error}") from None
    if size > MAX_HEADERS_BYTES:
        raise Broken(Reason.INVALID_HEADERS, f"the headers take {size} bytes, more than {MAX_HEADERS_BYTES}")


def _surely_small(headers: Mapping[Any, Any]) -> bool:
    """Whether short texts are all there is, as in nearly every message: then nothing need be encoded."""
    try:
        characters = len("".join(headers)) + len("".join(headers.values()))
    except TypeError:
        return False
    return (characters + _ENTRY_BYTES * len(headers)) * _UTF8_MAX <= MAX_HEADERS_BYTES


def _key_of_header(headers: Mapping[Any, Any]) -> str | None:
    value = headers.get(KEY_HEADER)
    return None if value is None else _key(value, f"header {KEY_HEADER}")


def _key_of_message(raw: RawMessage, event: cloudevents.Event | None) -> str:
    if event is not None:
        return _key(event.id, "the CloudEvent's id")
    if not raw.message_id:
        raise Broken(
            Reason.MISSING_KEY, f"neither header {KEY_HEADER} nor property message_id names the job: set one"
        )
    return _key(raw.message_id, "property message_id")


def _key(value: object, what: str) -> str:
    return _printable(value, what, Reason.INVALID_KEY)


def _run(value: object) -> str | None:
    return None if value is None else _printable(value, f"header {RUN_HEADER}", Reason.INVALID_RUN)


def _printable(value: object, what: str, reason: Reason) -> str:
    """Text of 1 to 255 bytes that a person can read, log and type. This refuses NUL and surrogates too."""
    if isinstance(value, str) and 0 < len(value) <= _SURELY_SHORT and value.isprintable():
        return value
    text = _text(value, what, reason)
    if not text or not text.isprintable():
        raise Broken(reason, f"{what} must be printable text, not {_shown(text)}")
    if len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        raise Broken(reason, f"{what} must be at most {MAX_BYTES} bytes of UTF-8")
    return text


def _type(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= MAX_BYTES and value.isascii() and value.isprintable():
        return value
    text = _text(value, "type", Reason.INVALID_TYPE)
    if "\0" in text:  # Postgres text cannot hold it
        raise Broken(Reason.INVALID_TYPE, "type must not contain NUL")
    if len(text.encode()) > MAX_BYTES:
        raise Broken(Reason.INVALID_TYPE, f"type must be at most {MAX_BYTES} bytes of UTF-8")
    return text


def _text(value: object, what: str, reason: Reason) -> str:
    """Text, also where a client sent it as an AMQP byte array; nothing else is converted to text."""
    match value:
        case str():
            text = value
        case bytes() | bytearray():
            text = value.decode("utf-8", "surrogateescape")
        case _:
            raise Broken(reason, f"{what} must be text, not {type(value).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Broken(reason, f"{what} must be UTF-8 text") from None
    return text


def _moment(value: object, header: str, reason: Reason) -> datetime | None:
    """An RFC 3339 time with its offset, or an AMQP timestamp, in UTC."""
    if value is None:
        return None
    if isinstance(value, OddTime):
        raise Broken(reason, f"header {header} is out of range")
    if isinstance(value, datetime):
        moment = value
    else:
        text = _text(value, f"header {header}", reason)
        if not RFC3339.fullmatch(text):
            raise Broken(reason, f"header {header} must be RFC 3339 with an offset, not {_shown(text)}")
        moment = _iso(text, header, reason)
    if moment.tzinfo is None:
        raise Broken(reason, f"header {header} has no offset: add Z or +hh:mm")
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError):  # within a day of the years 1 and 9999
        raise Broken(reason, f"header {header} is out of range") from None


def _iso(text: str, header: str, reason: Reason) -> datetime:
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        raise Broken(reason, f"header {header} is not a time that exists: {_shown(text)}") from None


def _published_at(value: object) -> datetime | None:
    """When the publisher says that it published. A mistake here costs a figure, so it is never fatal."""
    try:
        match value:
            case bool():
                return None
            case datetime():
                aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
                return aware.astimezone(UTC)
            case int() | float():
                seconds = value / 1000 if value > _MAX_SECONDS else value
                return datetime.fromtimestamp(seconds, UTC)
            case _:
                return None
    except (OverflowError, ValueError, OSError):
        return None


def _require_plain(encoding: str | bytes | None) -> None:
    if encoding and str(encoding).lower() not in PLAIN_ENCODINGS:
        raise Broken(
            Reason.INVALID_PAYLOAD,
            f"content_encoding {_shown(str(encoding))} is not supported: send plain bytes",
        )


@lru_cache(256)
def _require_media(content_type: str) -> None:
    if not content_type.isprintable() or len(content_type.encode()) > MAX_BYTES:
        raise Broken(
            Reason.INVALID_PAYLOAD, f"the content type must be printable text, not {_shown(content_type)}"
        )


def _shown(text: str) -> str:
    return ascii(text[:80])
