"""What an HTTP answer means for the job: a status and its headers become an outcome.

The defaults follow what RFC 9110 and RFC 6585 say of each status, and every one of them can be configured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

from acklast import errors
from acklast.decide import retry_after_s
from acklast.http.pace import Headers, pace_hint
from acklast.outcome import Done, Interrupted, Outcome, Permanent, RateLimited, Transient, Unknown
from acklast_topology.contract import Reason


class Meaning(StrEnum):
    """What a status can mean."""

    DONE = "done"
    RATE_LIMITED = "rate_limited"
    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


DEFAULTS: Final[Mapping[str, Meaning]] = {
    "2xx": Meaning.DONE,
    "3xx": Meaning.PERMANENT,  # it did not happen here, and no redirect is followed unless asked for
    "4xx": Meaning.PERMANENT,
    "5xx": Meaning.TRANSIENT,
    "408": Meaning.TRANSIENT,
    "425": Meaning.TRANSIENT,
    "429": Meaning.RATE_LIMITED,
    "501": Meaning.PERMANENT,
    "505": Meaning.PERMANENT,
}
"""503 is transient, and rate limited where it carries a Retry-After that can be read."""

_KEY: Final = re.compile(r"[1-5](?:[0-9]{2}|xx)\Z")
_SAYS_WHEN: Final = 503
_TOO_MANY: Final = 429
_DOWN: Final = re.compile(r"http_5[0-9]{2}\Z|not_sent:|cut_off:|timeout\Z")


def status_key(text: str) -> str:
    """A key of the status rules: a number or a class.

    Raises:
        ValueError: it is neither.
    """
    if _KEY.match(text) is None:
        raise ValueError('must be a status such as 409, or a class of them: "2xx", "3xx", "4xx" or "5xx"')
    return text


@dataclass(frozen=True, slots=True)
class StatusRules:
    """What each status means: what is named here, before the defaults.

    A number comes before a class. A class leaves 429, and a 503 that says when to come back, rate limited:
    who means those says so by number.
    """

    named: Mapping[str, Meaning] = field(default_factory=dict)

    @classmethod
    def of(cls, named: Mapping[int | str, str]) -> StatusRules:
        """From plain values: ``{409: "done", "5xx": "unknown"}``.

        Raises:
            ValueError: a key is no status, or a value no meaning.
        """
        return cls({status_key(str(key)): Meaning(value) for key, value in named.items()})

    def meaning(self, status: int, *, says_when: bool) -> Meaning:
        """What ``status`` means; ``says_when``: it came with a Retry-After that can be read."""
        if found := self.named.get(str(status)):
            return found
        if status == _TOO_MANY or (status == _SAYS_WHEN and says_when):
            return Meaning.RATE_LIMITED
        family = f"{status // 100}xx"
        found = self.named.get(family) or DEFAULTS.get(str(status)) or DEFAULTS.get(family)
        # Nothing that is known of: it may have happened.
        return found or Meaning.UNKNOWN


NO_RULES: Final = StatusRules()


def classify(status: int, headers: Headers, rules: StatusRules, now: datetime) -> Outcome:
    """The outcome that an answer stands for. Its reason is ``http_`` and the status.

    A rate limit without Retry-After waits for the reset that the RateLimit headers tell, if they do.
    """
    wait_s = retry_after_s(first(headers, "retry-after"), now, math.inf)
    reason = f"http_{status}"
    match meaning := rules.meaning(status, says_when=wait_s is not None):
        case Meaning.DONE:
            return Done({"status": status})
        case Meaning.RATE_LIMITED:
            return RateLimited(wait_s if wait_s is not None else _reset_s(headers, now), reason)
        case Meaning.TRANSIENT:
            return Transient(reason, retry_after_s=wait_s)
        case Meaning.PERMANENT:
            return Permanent(reason)
        case Meaning.UNKNOWN:
            return Unknown(reason)
        case _:
            assert_never(meaning)


def status_of(response: object) -> int:
    """The status of any client library's response.

    Raises:
        TypeError: it has none.
    """
    for name in ("status_code", "status"):
        if isinstance(status := getattr(response, name, None), int):
            return int(status)  # an enumeration's member too
    raise TypeError(f"{type(response).__name__} is no response: it has neither status_code nor status")


def _reset_s(headers: Headers, now: datetime) -> float | None:
    hint = pace_hint(headers, now)
    return hint.reset_s if hint is not None and hint.remaining == 0 else None


def first(headers: Headers, name: str) -> str | None:
    """The first value of a header, whatever the case of its name."""
    return next((value for key, value in headers.items() if key.lower() == name), None)


def error_for(outcome: Outcome) -> errors.JobError | None:
    """The exception by which a handler says this outcome; None where it returns."""
    match outcome:
        case Done():
            return None
        case RateLimited():
            return errors.RateLimited(outcome.retry_after_s, outcome.reason)
        case Transient():
            return errors.Transient(outcome.reason)
        case Permanent():
            return errors.Permanent(outcome.reason)
        case Unknown():
            return errors.Unknown(outcome.reason)
        case Interrupted():
            return errors.Interrupted(outcome.reason)
        case _:
            assert_never(outcome)


def saw_up(outcome: Outcome) -> bool | None:
    """What an attempt saw of its downstream, for a circuit breaker: up, down, or None: it cannot tell.

    Down is a 5xx, a connection that could not be made or broke off, and a call without an answer; what the
    downstream answered and this job alone is refused for is up.
    """
    match outcome:
        case Done() | RateLimited():
            return True
        case Permanent():
            return None if outcome.reason == Reason.INVALID_PAYLOAD else True  # it was never asked
        case Transient() | Unknown():
            return False if _DOWN.match(outcome.reason) else None
        case Interrupted():
            return None
        case _:
            assert_never(outcome)
