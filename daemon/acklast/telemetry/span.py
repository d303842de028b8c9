"""A finished span, as a value: what OpenTelemetry's data model has of it, and nothing of its library."""

from __future__ import annotations

import random
from enum import IntEnum
from typing import Final, TypeAlias

from acklast.telemetry.traceparent import Parent
from acklast_topology.value import value

Attributes: TypeAlias = tuple[tuple[str, str | int | float | bool], ...]

SAMPLED: Final = 1


class Kind(IntEnum):
    """On which side of a call a span stands, by its number in OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


@value
class Span:
    """One span. ``fixed`` is what many spans have in common: the same tuple, so that it is encoded once."""

    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent_id: str | None
    remote: bool
    """The parent is another process's."""
    start_ns: int
    """Since the epoch, as the end."""
    end_ns: int
    fixed: Attributes
    attributes: Attributes
    error: str | None = None
    """A short code where the operation failed: ``error.type``."""
    link: Parent | None = None
    tracestate: str = ""


def new_span_id() -> str:
    """16 hexadecimal digits, not all zero."""
    return f"{random.getrandbits(64) or 1:016x}"
