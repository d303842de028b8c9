"""W3C Trace Context as messages carry it: whose trace a job belongs to. Pure, and needs no library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from acklast_topology.value import value

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"
_SAMPLED: Final = 1
_LONGEST: Final = 512
"""A later version may say more than today's 55 characters; what is far longer is not kept in memory."""
_TRACEPARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII
)


@value
class Parent:
    """The span that a message was published in."""

    trace_id: str
    span_id: str
    flags: int

    @property
    def sampled(self) -> bool:
        return bool(self.flags & _SAMPLED)


def parent_of(headers: Mapping[Any, Any]) -> Parent | None:
    """Where a message comes from; None where it does not say, or nothing that can be read."""
    text = headers.get(TRACEPARENT)
    if text is None:
        return None
    if isinstance(text, bytes | bytearray):
        text = text.decode("latin-1")
    return _read(text) if isinstance(text, str) and len(text) <= _LONGEST else None


def trace_id(headers: Mapping[Any, Any]) -> str | None:
    """The trace that a message belongs to, by its W3C ``traceparent``."""
    parent = parent_of(headers)
    return parent.trace_id if parent else None


@lru_cache(256)
def _read(text: str) -> Parent | None:
    """Jobs that are published together often have the same parent."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None or (match[1] == "00" and match[5]):
        return None  # only a later version may have more behind it
    return Parent(match[2], match[3], int(match[4], 16))
