"""One job to publish, checked when it is made, by the same parser that the daemon reads it with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Self, TypedDict, Unpack

from acklast_topology.contract import (
    DEADLINE_HEADER,
    JSON,
    KEY_HEADER,
    NOT_BEFORE_HEADER,
    OWN_HEADERS,
    RUN_HEADER,
    Envelope,
    Malformed,
    RawMessage,
    parse,
)
from acklast_topology.message import MAX_PRIORITY
from acklast_topology.names import NAME_RULE, valid_name
from acklast_topology.wire import Properties, encode_properties, encode_table

MAX_ROUTING_KEY_BYTES = 255
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
MAX_HEADER_NAME_BYTES = 128


class JobFields(TypedDict, total=False):
    """What ``Job.json`` takes besides lane, key and payload."""

    type: str | None
    content_type: str
    run: str | None
    deadline: datetime | None
    not_before: datetime | None
    priority: int | None
    headers: Mapping[str, Any]
    routing_suffix: str


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work under its business key.

    ``key`` names the job, never the attempt: publishing the same key again is safe, and has one effect.
    ``deadline`` and ``not_before`` are aware. ``priority`` is 0 to 9 or unset. ``headers`` are further ones,
    which the handler sees. ``routing_suffix`` is added to the lane in the routing key, for people's bindings.

    Raises:
        ValueError: something breaks the contract; the message says what and what is valid.
    """

    lane: str
    key: str
    payload: bytes
    type: str | None = None
    content_type: str = JSON
    run: str | None = None
    deadline: datetime | None = None
    not_before: datetime | None = None
    priority: int | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    routing_suffix: str = ""
    fingerprint: bytes = field(init=False, repr=False, compare=False)
    """What the ledger will tell a repeat from a conflict by."""

    def __post_init__(self) -> None:
        _require_lane(self.lane, self.routing_key)
        _require_values(self)
        if self.headers:
            _require_headers(self.headers)
        match parse(self.raw()):
            case Malformed(reason, detail):
                raise ValueError(f"job {self.key!r} breaks the contract ({reason}): {detail}")
            case Envelope(fingerprint=fingerprint):
                object.__setattr__(self, "fingerprint", fingerprint)

    @classmethod
    def json(cls, lane: str, key: str, payload: Any, **more: Unpack[JobFields]) -> Self:
        """A job whose payload is a JSON value. The same value always gives the same bytes.

        That matters: a repeat with other bytes under the same key is a conflict, not a repeat.

        Raises:
            ValueError: as for ``Job``, or the value is not JSON (make dates and decimals text first).
        """
        try:
            body = _JSON.encode(payload).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"the payload of job {key!r} is not JSON: {error}. Make its values text first"
            ) from error
        return cls(lane, key, body, **more)

    @property
    def routing_key(self) -> str:
        return f"{self.lane}.{self.routing_suffix}" if self.routing_suffix else self.lane

    def raw(self) -> RawMessage:
        """The message as a consumer will see it."""
        return RawMessage(
            body=self.payload,
            routing_key=self.routing_key,
            content_type=self.content_type,
            headers=self._all_headers(),
            priority=self.priority,
            type=self.type,
        )

    def properties(self, now: datetime) -> Properties:
        """The AMQP properties, with ``now`` as the time of publishing."""
        return Properties(
            content_type=self.content_type,
            headers=self._all_headers(),
            priority=self.priority,
            timestamp=now,
            message_type=self.type,
        )

    def encoded(self, message_id: str, timestamp_s: int) -> bytes:
        """The same properties, persistent, as they stand in a content header.

        Raises:
            TypeError, ValueError: something of the job cannot be sent.
        """
        return encode_properties(
            content_type=self.content_type,
            headers=self._all_headers(),
            message_id=message_id,
            timestamp_s=timestamp_s,
            message_type=self.type,
            priority=self.priority,
        )

    def _all_headers(self) -> dict[str, Any]:
        headers = {**self.headers, KEY_HEADER: self.key}
        if self.run is not None:
            headers[RUN_HEADER] = self.run
        if self.deadline is not None:
            headers[DEADLINE_HEADER] = _rfc3339(self.deadline)
        if self.not_before is not None:
            headers[NOT_BEFORE_HEADER] = _rfc3339(self.not_before)
        return headers


@lru_cache(64)
def _rfc3339(moment: datetime) -> str:
    """Jobs that are made together mostly have the same deadline."""
    return moment.astimezone(UTC).isoformat()


@lru_cache(256)
def _require_lane(lane: str, routing_key: str) -> None:
    if not valid_name(lane):
        raise ValueError(f"lane {lane!r} is not valid: use {NAME_RULE}")
    if len(routing_key.encode()) > MAX_ROUTING_KEY_BYTES:
        raise ValueError(
            f"routing key {routing_key!r} is too long: use at most {MAX_ROUTING_KEY_BYTES} bytes in all"
        )


def _require_values(job: Job) -> None:
    if not isinstance(job.payload, bytes):
        raise ValueError(f"the payload of job {job.key!r} must be bytes: encode it, or use Job.json")
    if not job.content_type:
        raise ValueError(f"job {job.key!r} has no content type: leave it out for {JSON}")
    if job.priority is not None and not 0 <= job.priority <= MAX_PRIORITY:
        raise ValueError(
            f"priority {job.priority} of job {job.key!r} is not valid: use 0 to {MAX_PRIORITY}, or None"
        )
    for name, moment in (("deadline", job.deadline), ("not_before", job.not_before)):
        if moment is None:
            continue
        if moment.tzinfo is None:
            raise ValueError(f"{name} of job {job.key!r} has no time zone: use an aware datetime")
        try:
            moment.astimezone(UTC)
        except OverflowError:  # within a day of the years 1 and 9999
            raise ValueError(f"{name} of job {job.key!r} is out of range: {moment.isoformat()}") from None


def _require_headers(headers: Mapping[str, Any]) -> None:
    for name in headers:
        if name in OWN_HEADERS:
            raise ValueError(f"header {name!r} is set by the job's own field of that name: use that")
        if name.lower() in ("cc", "bcc") or name.lower().startswith("x-"):
            raise ValueError(f"header {name!r} would not survive a retry: use another name")
        if not 0 < len(name.encode()) <= MAX_HEADER_NAME_BYTES:
            raise ValueError(f"header name {name!r} is not valid: use 1 to {MAX_HEADER_NAME_BYTES} bytes")
    try:
        encode_table(headers)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the headers cannot be sent: {error}") from error
