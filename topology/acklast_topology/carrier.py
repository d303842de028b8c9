"""The message that carries a job on: what the daemon publishes when a job must wait and come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from acklast_topology.message import KEY_HEADER, PERSISTENT, RawMessage
from acklast_topology.wire import Properties

_DROPPED: Final = frozenset({"cc", "bcc"})
_DROPPED_PREFIX: Final = "x-"


def carrier_properties(raw: RawMessage, key: str) -> Properties:
    """The properties by which a job travels on: as they came, with the key in its header.

    Dropped are ``user_id`` (the broker refuses a user other than the connection's), ``reply_to``,
    ``expiration`` (a silent loss), the headers ``CC`` and ``BCC`` (they would multiply the job) and ``x-*``
    (an ``x-death`` that is published again makes RabbitMQ 3.13 drop the message as a cycle). The message id
    is fresh: the client library matches returns by it, so two messages in flight may never share one.
    """
    return Properties(
        content_type=raw.content_type,  # type: ignore[arg-type]  # bytes are encoded as they came
        content_encoding=raw.content_encoding,  # type: ignore[arg-type]
        headers=_headers(raw.headers, key),
        delivery_mode=PERSISTENT,
        priority=raw.priority,
        correlation_id=raw.correlation_id,  # type: ignore[arg-type]
        message_id=uuid4().hex,
        timestamp=raw.timestamp,  # type: ignore[arg-type]  # a number is encoded as it came
        message_type=raw.type,  # type: ignore[arg-type]
        app_id=raw.app_id,  # type: ignore[arg-type]
    )


def _headers(headers: Mapping[Any, Any], key: str) -> dict[str, Any]:
    kept = {name: value for name, value in headers.items() if not _dropped(name)}
    kept[KEY_HEADER] = key
    return kept


def _dropped(name: object) -> bool:
    text = name if isinstance(name, str) else bytes(name).decode("latin-1") if isinstance(name, bytes) else ""
    lowered = text.lower()
    return lowered in _DROPPED or lowered.startswith(_DROPPED_PREFIX)
