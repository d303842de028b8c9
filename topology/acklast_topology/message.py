"""The values of the contract: a message as it came, what it says, and why it cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from acklast_topology.value import value

KEY_HEADER: Final = "job-key"
DEADLINE_HEADER: Final = "deadline"
NOT_BEFORE_HEADER: Final = "not-before"
RUN_HEADER: Final = "run"
OWN_HEADERS: Final = frozenset({KEY_HEADER, DEADLINE_HEADER, NOT_BEFORE_HEADER, RUN_HEADER})

JSON: Final = "application/json"
"""The content type of a message that does not say."""
MAX_PRIORITY: Final = 9
UNSET_PRIORITY: Final = 4
"""The priority of a message that has none, as RabbitMQ's quorum queues have it."""
PERSISTENT: Final = 2
"""The ``delivery_mode`` of a message that a broker keeps through its own restart."""


class Reason(StrEnum):
    """Why a message became a dead letter. Short, stable, safe to log and to group by."""

    MISSING_KEY = "missing_key"
    INVALID_KEY = "invalid_key"
    UNKNOWN_TYPE = "unknown_type"
    INVALID_TYPE = "invalid_type"
    INVALID_PAYLOAD = "invalid_payload"
    INVALID_HEADERS = "invalid_headers"
    INVALID_DEADLINE = "invalid_deadline"
    INVALID_NOT_BEFORE = "invalid_not_before"
    INVALID_RUN = "invalid_run"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    KEY_CONFLICT = "key_conflict"
    UNDECODABLE = "undecodable"
    # No fault of the message: the broker could not keep it where it was, or knew no lane for it.
    UNROUTED = "unrouted"
    BROKER_DELIVERY_LIMIT = "broker_delivery_limit"
    BROKER_EXPIRED = "broker_expired"
    BROKER_MAXLEN = "broker_maxlen"
    BROKER_REJECTED = "broker_rejected"
    BROKER_DEAD_LETTER = "broker_dead_letter"


def priority_class(priority: int | None) -> str:
    """``high`` above what a message without a priority has, ``low`` below it, or ``normal``."""
    if priority is None or priority == UNSET_PRIORITY:
        return "normal"
    return "high" if priority > UNSET_PRIORITY else "low"


class OddTime(int):
    """The seconds of an AMQP timestamp that no calendar holds: milliseconds, or nonsense."""

    __slots__ = ()


@value
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


@value
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
    """A message that breaks the contract: its dead letter's reason and a sentence for people.

    ``key`` is set where it could be read.
    """

    reason: Reason
    detail: str
    key: str | None
    raw: RawMessage


class Broken(Exception):  # noqa: N818 - says what the message is; never leaves contract.parse
    """A rule of the contract is broken. Internal to the parser."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
