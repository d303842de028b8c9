"""Spans of time and moments, as people type and read them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from acklast.pacing.controls import Refused

_UNIT_S: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_SPAN: Final = re.compile(r"\s*([0-9]{1,6})\s*(s|m|min|h|d)\s*", re.ASCII)
_SPAN_RULE: Final = 'Give a span like "90s", "30m", "2h" or "1d"'


def parse_span(text: str) -> timedelta:
    """
    Raises:
        Refused: it is none.
    """
    match = _SPAN.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise Refused(f"{text!r} is no span of time", _SPAN_RULE)
    return timedelta(seconds=int(match[1]) * _UNIT_S[match[2]])


def parse_moment(text: str) -> datetime:
    """A moment in RFC 3339, with its offset.

    Raises:
        Refused: it is none, or says nothing of its offset.
    """
    remedy = 'Give RFC 3339 with an offset, like "2030-01-31T03:00:00Z"'
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise Refused(f"{text!r} has no offset", remedy)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):  # the second within a day of the years 1 and 9999
        raise Refused(f"{text!r} is no time", remedy) from None


def moment(at: datetime, now: datetime) -> str:
    """A moment in UTC; with its date where that is not today's."""
    there, here = at.astimezone(UTC), now.astimezone(UTC)
    return f"{there:%H:%M:%SZ}" if there.date() == here.date() else f"{there:%Y-%m-%d %H:%M:%SZ}"


def span(seconds: float, whole: Callable[[float], int] = round) -> str:
    """About how long, in the largest unit that fits; ``whole`` says to which side it is rounded."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{whole(seconds / size)} {unit}"
    return f"{whole(seconds)} s"
