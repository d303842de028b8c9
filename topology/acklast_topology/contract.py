"""Contract v1: what any AMQP client publishes, and how acklast reads it.

``parse`` turns whatever came over the wire into a value; it never raises for bad input. A message that
breaks the contract becomes ``Malformed`` with a reason that its dead letter carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class RawMessage:
    """One AMQP message as it came, before anything of it is believed.

    A text property whose bytes are not UTF-8 is kept as ``bytes``. ``timestamp`` is as the library made it:
    a datetime, a number, or None.
    """

    body: bytes
    exchange: str = ""
    routing_key: str = ""
    redelivered: bool = False
    content_type: str | bytes | None = None
    content_encoding: str | bytes | None = None
    headers: Mapping[Any, Any] = field(default_factory=dict)
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | bytes | None = None
    reply_to: str | bytes | None = None
    expiration: str | bytes | None = None
    message_id: str | bytes | None = None
    timestamp: datetime | int | float | None = None
    type: str | bytes | None = None
    user_id: str | bytes | None = None
    app_id: str | bytes | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message that keeps the contract. Times are aware, UTC."""

    key: str
    type: str | None
    body: bytes
    """The handler's payload: the message body, or the data of a CloudEvent."""
    content_type: str
    fingerprint: bytes
    """SHA-256 over type, content type and body: tells a repeat from a conflict."""
    run: str | None
    deadline: datetime | None
    not_before: datetime | None
    published_at: datetime | None
    raw: RawMessage


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that breaks the contract: its dead letter's reason and a sentence for people."""

    reason: str
    detail: str
    key: str | None
    raw: RawMessage
