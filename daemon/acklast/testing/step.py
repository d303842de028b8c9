"""The side effects of a simulated daemon, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Step:
    """One side effect of a process: on the ledger, on the broker, or on whatever its handlers call."""

    on: Literal["ledger", "broker", "downstream"]
    verb: str
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.subject}".strip()
