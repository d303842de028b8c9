"""What a downstream says of its quota in its headers, as a value. It may slow a budget, never speed it up.

Read are the ``RateLimit`` field of draft-ietf-httpapi-ratelimit-headers in its present form
(``"default";r=50;t=30``) and in the older one (``limit=100, remaining=50, reset=5``), the three fields of
the first drafts (``RateLimit-Remaining`` and its like), and the same three with ``X-`` as many providers send
them. What cannot be read is ignored: a hint is no contract.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

_FAMILIES: Final = ("ratelimit", "x-ratelimit", "x-rate-limit")
_MEMBERS: Final = re.compile(r"""((?:[^",]|"(?:[^"\\]|\\.)*")+)""")
_PARAMETERS: Final = re.compile(r"""((?:[^";]|"(?:[^"\\]|\\.)*")+)""")
_EPOCH_S: Final = 1e9
"""A reset above this is a moment: as a duration it would be 31 years."""
_EPOCH_MS: Final = 1e12
_LONGEST_S: Final = 86_400.0 * 31
"""A longer reset is taken for a slip: no provider's window is that long."""


class Headers(Protocol):
    """The headers of any client library's response."""

    def items(self) -> Iterable[tuple[str, str]]: ...


@dataclass(frozen=True, slots=True)
class PaceHint:
    """Calls that are left, and the seconds until there are more of them.

    ``limit`` and ``window_s`` are the quota itself, where it was told.
    """

    remaining: int
    reset_s: float
    limit: int | None = None
    window_s: float | None = None

    @property
    def pace_per_s(self) -> float:
        """The rate that uses what is left evenly until the reset; infinite where the reset is now."""
        return self.remaining / self.reset_s if self.reset_s else math.inf


def pace_hint(headers: Headers, now: datetime) -> PaceHint | None:
    """What the headers of a response say of the quota; of several statements the tightest. ``now`` is aware.

    None where they say nothing, or nothing that can be read.
    """
    fields = _fields(headers)
    policies = dict(_policies(fields.get("ratelimit-policy", "")))
    hints = [*_current(fields.get("ratelimit", ""), policies)]
    if older := _older(fields.get("ratelimit", ""), policies):
        hints.append(older)
    hints += [hint for family in _FAMILIES if (hint := _separate(family, fields, policies, now))]
    return min(hints, key=lambda hint: (hint.pace_per_s, -hint.reset_s), default=None)


def _fields(headers: Headers) -> dict[str, str]:
    """Header fields by lower-case name; those that repeat are one list (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        if key.startswith(("ratelimit", "x-rate")):
            found[key] = f"{found[key]}, {value}" if key in found else value
    return found


# --- the present form: "name";r=50;t=30 ---------------------------------------------------------------


def _current(field: str, policies: Mapping[str, tuple[int | None, float | None]]) -> Iterator[PaceHint]:
    for name, parameters in _members(field):
        remaining, reset_s = _count(parameters.get("r")), _number(parameters.get("t"))
        if remaining is None:
            continue
        limit, window_s = policies.get(name, (None, None))
        if reset_s is None:
            reset_s = window_s
        if reset_s is not None and 0 <= reset_s <= _LONGEST_S:
            yield PaceHint(remaining, reset_s, limit, window_s)


def _policies(field: str) -> Iterator[tuple[str, tuple[int | None, float | None]]]:
    """``"name";q=100;w=60``, or ``100;w=60`` as the older drafts have it."""
    for name, parameters in _members(field):
        yield name, (_count(parameters.get("q", name)), _number(parameters.get("w")))


def _members(field: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The members of a structured list: each its name and its parameters. None of one that is broken."""
    members = _MEMBERS.findall(field)
    if ",".join(members) != field:  # a quote that never ends
        return
    for member in members:
        head, *parameters = _PARAMETERS.findall(member) or [""]
        pairs = (parameter.partition("=") for parameter in parameters)
        yield head.strip().strip('"'), {key.strip().lower(): value.strip() for key, _, value in pairs}


# --- the older form: limit=100, remaining=50, reset=5 --------------------------------------------------


def _older(field: str, policies: Mapping[str, tuple[int | None, float | None]]) -> PaceHint | None:
    pairs = (member.partition(";")[0].partition("=") for member in field.split(","))
    said = {key.strip().lower(): value.strip() for key, separator, value in pairs if separator}
    return _hint(said.get("remaining"), _number(said.get("reset")), said.get("limit"), policies)


# --- three fields ------------------------------------------------------------------------------------


def _separate(
    family: str,
    fields: Mapping[str, str],
    policies: Mapping[str, tuple[int | None, float | None]],
    now: datetime,
) -> PaceHint | None:
    after_s = _number(fields.get(f"{family}-reset-after"))
    reset_s = after_s if after_s is not None else _reset_s(fields.get(f"{family}-reset"), now)
    return _hint(fields.get(f"{family}-remaining"), reset_s, fields.get(f"{family}-limit"), policies)


def _reset_s(text: str | None, now: datetime) -> float | None:
    """Seconds until the reset: a duration, or a moment as seconds or milliseconds since 1970, or RFC 3339."""
    number = _number(text)
    if number is None:
        return _until_s(text, now) if text else None
    if number < _EPOCH_S:
        return number
    moment_s = number / 1000 if number >= _EPOCH_MS else number
    return max(0.0, moment_s - now.timestamp())


def _until_s(text: str, now: datetime) -> float | None:
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())


def _hint(
    remaining: str | None,
    reset_s: float | None,
    limit: str | None,
    policies: Mapping[str, tuple[int | None, float | None]],
) -> PaceHint | None:
    count = _count(remaining)
    if count is None or reset_s is None or not 0 <= reset_s <= _LONGEST_S:
        return None
    quota = _count(limit.partition(",")[0]) if limit else None  # 100, 100;w=60: the first is the one in force
    window_s = next((w for q, w in policies.values() if w is not None and q == quota), None)
    return PaceHint(count, reset_s, quota, window_s)


# --- numbers -----------------------------------------------------------------------------------------


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _count(text: str | None) -> int | None:
    number = _number(text)
    return int(number) if number is not None and number >= 0 else None
