"""A finished span, as a value: what OpenTelemetry's data model has of it, and nothing of its library."""

from __future__ import annotations

import random
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """What the spans of one operation at one destination have in common. Itself alone, as there is one of
    each: it is encoded once."""

    name: str
    """The spans' name."""
    kind: Kind
    attributes: Attributes = ()


@dataclass(slots=True, eq=False)
class Place:
    """What the spans of one delivery have in common."""

    trace_id: str
    attributes: Attributes = ()
    link: Parent | None = None
    """What those of its spans that are ``linked`` are linked to."""
    tracestate: str = ""


@value
class Span:
    """One span."""

    operation: Operation
    place: Place
    span_id: str
    parent_id: str | None
    remote: bool
    """The parent is another process's."""
    start_ns: int
    """Since the epoch, as the end."""
    end_ns: int
    attributes: Attributes = ()
    """Its own, besides those of its operation and its place."""
    error: str | None = None
    """A short code where the operation failed: ``error.type``."""
    linked: bool = False

    @property
    def all_attributes(self) -> Attributes:
        """Its own and those that it has in common with others."""
        return (*self.operation.attributes, *self.place.attributes, *self.attributes)

    @property
    def link(self) -> Parent | None:
        """The span that it is linked to."""
        return self.place.link if self.linked else None


def new_span_id() -> str:
    """16 hexadecimal digits, not all zero."""
    return f"{random.getrandbits(64) or 1:016x}"
