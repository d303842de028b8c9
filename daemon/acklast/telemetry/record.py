"""A log record as OpenTelemetry has it, made of an event: the same as its line on standard error."""

from __future__ import annotations

from typing import Final

from acklast.telemetry.span import Attributes
from acklast_topology.value import value

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
