"""By what a lane is fair: what its jobs are told apart by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from acklast_topology.contract import RUN_HEADER, RawMessage

FAIR_RULE: Final = '"run", "type", "priority" or "header:NAME"'

_HEADER: Final = re.compile(r"header:(?P<name>[!-~]{1,127})\Z")
_NOTHING: Final = ""


@dataclass(frozen=True, slots=True)
class FairBy:
    """Jobs with the same value of this are one flow; those that have none are one flow too."""

    type: bool = False
    header: str | None = None

    def key(self, raw: RawMessage) -> str:
        """What a message is told apart by, as it came; never raises."""
        if self.type:
            return _text(raw.type)
        return _text(raw.headers.get(self.header)) if self.header is not None else _NOTHING


def parse_fair_by(text: str) -> FairBy:
    """Read ``fair_by``.

    Raises:
        ValueError: it is none of the valid ones; says which those are.
    """
    match text:
        case "run":
            return FairBy(header=RUN_HEADER)
        case "type":
            return FairBy(type=True)
        case "priority":
            return FairBy()
        case _:
            found = _HEADER.match(text)
            if found is None:
                raise ValueError(f"must be {FAIR_RULE}")
            return FairBy(header=found["name"])


def _text(value: object) -> str:
    match value:
        case None:
            return _NOTHING
        case str():
            return value
        case bytes() | bytearray():
            return value.decode("utf-8", "surrogateescape")
        case _:
            return repr(value)
