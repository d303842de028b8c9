"""A downstream's quota as people write it: ``"50 per 1 s"``."""

from __future__ import annotations

import re
from dataclasses import dataclass

QUOTA_RULE = 'a quota like "50 per 1 s", "100 per 5 min" or "1000 per 1 h" (units s, min, h)'

_UNIT_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
_QUOTA = re.compile(r"\s*([0-9]{1,9})\s+per\s+(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*)?(s|min|h)\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Quota:
    """At most ``count`` calls in any sliding window of ``period_s`` seconds."""

    count: int
    period_s: float

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("must allow at least 1 call")
        if not self.period_s > 0:
            raise ValueError("must have a period longer than 0 s")

    def without(self, part: float) -> Quota:
        """What is left of it when ``part`` (from 0 to below 1) is for others; one call at least."""
        return Quota(max(1, int(self.count * (1 - part) + 1e-9)), self.period_s)

    def __str__(self) -> str:
        return f"{self.count} per {self.period_s:g} s"


def parse_quota(text: str) -> Quota:
    """Read ``"<count> per <period> <unit>"``; ``"50 per s"`` means ``"50 per 1 s"``.

    Raises:
        ValueError: the text is no quota; the message says what one looks like.
    """
    match = _QUOTA.fullmatch(text)
    if match is None:
        raise ValueError(f"must be {QUOTA_RULE}")
    count, period, unit = match.groups()
    return Quota(count=int(count), period_s=float(period or 1) * _UNIT_S[unit])
