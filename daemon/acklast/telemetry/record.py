"""A log record as OpenTelemetry has it, made of an event: the same as its line on standard error."""

from __future__ import annotations

import json
from typing import Final

from acklast.telemetry.span import Attributes
from acklast_topology.value import value

_LONGEST: Final = 65_536
"""Characters of a text."""
SEVERITIES: Final = {"debug": 5, "info": 9, "warning": 13, "error": 17, "critical": 21}
"""By level, as the data model numbers them."""


@value
class Record:
    """One log record. ``body`` is the event's name."""

    at_ns: int
    level: str
    body: str
    attributes: Attributes
    trace_id: str = ""
    span_id: str = ""

    @property
    def severity(self) -> int:
        return SEVERITIES.get(self.level, SEVERITIES["info"])


def dumped(value: object) -> str:
    """A value as JSON, and its type where it has none: a key that is no text, a ring, a ``str()`` that fails.

    Never raises: a handler says what it has done, and its line must not make a failure of that.
    """
    try:
        return json.dumps(value, default=str)
    except Exception:
        return f'"<{type(value).__name__}>"'


def writable(value: object) -> object:
    """The same, as a value: itself where it can be written."""
    try:
        json.dumps(value, default=str)
    except Exception:
        return f"<{type(value).__name__}>"
    return value


def plain(value: object) -> str | int | float | bool:
    """A value as an attribute may have it: a number that OTLP has no room for is its digits, and a text that
    no collector would take is cut."""
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else shortened(dumped(value))
    return shortened(value if isinstance(value, str) else dumped(value))


def shortened(text: str) -> str:
    """Its beginning, where it is a document: what is too large is tried again until its time is over,
    and nothing else is sent meanwhile."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
