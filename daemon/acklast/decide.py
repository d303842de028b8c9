"""What follows from what: every decision about a job, as functions of values.

No clock, no random number, no I/O: time and chance come in as arguments, so that a test can say them.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias, assert_never

from acklast import errors, outcome
from acklast.outcome import Bury, Complete, GiveBack, Hold, Outcome, Retry, Verdict
from acklast.policy import OnUnknown, Policy
from acklast_topology.value import value

_REASON_MAX = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:/-]+")


@value
class Attempt:
    """What is known of an attempt when its outcome is judged. ``number`` counts from 1, this one included."""

    number: int
    rate_limited: int = 0
    deadline: datetime | None = None
    ambiguous: bool = False
    stopped: bool = False
    """Its run is cancelled, and an earlier attempt may have had its effect."""
    last: str = ""
    """What the last failure was, where ``is_spent``: ``CRASHED``, or its reason. Empty: nobody knows."""


@value
class Run:
    """Start the handler."""


@value
class Reconcile:
    """Ask first whether the effect of an earlier attempt happened."""


Start: TypeAlias = Run | Reconcile | Bury | Hold
CRASHED: Final = "crashed"
EXHAUSTED: Final = "attempts_exhausted"
_RUN: Final = Run()
_ONCE: Final = Policy()


def reason_code(text: str) -> str:
    """A short code that is safe to log and to group by, whatever was given as a reason."""
    return _UNSAFE.sub("_", text.strip())[:_REASON_MAX].strip("_") or "unspecified"


def retry_after_s(value: float | str | None, now: datetime, cap_s: float) -> float | None:
    """The seconds to wait that a Retry-After asks for: delay seconds or an HTTP date (RFC 9110, 10.2.3).

    None where it asks for nothing readable; never less than 0 nor more than ``cap_s``.
    """
    if value is None:
        return None
    seconds = _delay_seconds(value)
    if seconds is None and isinstance(value, str):
        seconds = _seconds_until(value, now)
    if seconds is None or math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), cap_s)


def _delay_seconds(value: float | str) -> float | None:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _seconds_until(http_date: str, now: datetime) -> float | None:
    try:
        at = parsedate_to_datetime(http_date)
    except (ValueError, TypeError, OverflowError):
        return None
    # RFC 9110 dates are GMT whatever they forget to say.
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - now).total_seconds()


def classify(error: BaseException, *, now: datetime, retry_after_cap_s: float) -> Outcome:
    """The outcome that a handler's exception stands for.

    An exception that the handler did not classify leaves the effect uncertain: it is Unknown, and the lane's
    ``on_unknown`` decides. Its text stays out: it may carry a provider's raw response.
    """
    match error:
        case errors.RateLimited():
            wait_s = retry_after_s(error.retry_after, now, retry_after_cap_s)
            return outcome.RateLimited(wait_s, reason_code(error.reason))
        case errors.Transient():
            return outcome.Transient(reason_code(error.reason))
        case errors.Permanent():
            return outcome.Permanent(reason_code(error.reason))
        case errors.Unknown():
            return outcome.Unknown(reason_code(error.reason))
        case errors.Interrupted():
            return outcome.Interrupted(reason_code(error.reason))
        case TimeoutError():
            return outcome.Unknown("timeout")
        case _:
            return outcome.Unknown(reason_code(f"exception:{type(error).__name__}"))


def backoff_s(number: int, policy: Policy, jitter: float) -> float:
    """Capped exponential back-off with full jitter, after attempt ``number``; ``jitter`` is in [0, 1).

    Full jitter spreads the retries of jobs that failed together over the whole interval, so that they do not
    come back together.
    """
    # The exponent is bounded because 2.0 ** 1024 overflows; the cap is reached long before.
    ceiling_s = min(policy.backoff_cap_s, policy.backoff_base_s * 2.0 ** min(number - 1, 64))
    return ceiling_s * jitter


def decide_start(attempt: Attempt, policy: Policy, now: datetime, *, can_reconcile: bool) -> Start:
    """Whether a claimed job may start, and how.

    A job whose earlier attempt may have had its effect is reconciled or held first where the lane says so,
    even past its deadline: the deadline bounds the effect, not the finding out.
    """
    if attempt.ambiguous and policy.on_unknown is OnUnknown.HOLD:
        return Hold("unknown", "an earlier attempt may have had its effect")
    if attempt.ambiguous and policy.on_unknown is OnUnknown.RECONCILE:
        if attempt.number > 2 * policy.max_attempts and attempt.last in ("", CRASHED):
            # As many crashes again as attempts may be: the asking itself kills the process.
            return Hold(CRASHED, f"no verdict after {attempt.number - 1} attempts")
        if can_reconcile:
            return Reconcile()
        return Hold("no_reconcile", "an earlier attempt may have had its effect; its type has no reconcile")
    if attempt.stopped:
        return Hold("run_cancelled", "an earlier attempt may have had its effect, and its run is cancelled")
    return _may_run(attempt, policy, now)


def is_spent(attempt: Attempt, policy: Policy) -> bool:
    """Whether more attempts are spent than may be: a crash left no verdict, or more were allowed before."""
    return attempt.number > policy.max_attempts


def may_be_suspect(attempt: Attempt, policy: Policy) -> bool:
    """Whether so many attempts are spent that it matters how many of them ended in a crash."""
    return attempt.ambiguous and attempt.number > policy.max_attempts // 2


def is_suspect(crashes: int, policy: Policy) -> bool:
    """Whether a job is suspected of ending the process that runs it, and has to prove itself alone.

    A crash counts for every job that was running, and only one of them is to blame. So half of a job's
    attempts may end in one; after that the suspects go one at a time: the next crash counts for its maker.
    """
    return crashes >= max(1, policy.max_attempts // 2)


def decide_reconciled(
    happened: bool | None, result: Any, attempt: Attempt, policy: Policy, now: datetime, jitter: float
) -> Run | Verdict:
    """What follows from the answer of a job type's ``reconcile``; None means that it cannot tell."""
    if happened is True:
        return Complete(result)
    if happened is False:
        return _may_run(attempt, policy, now)
    if attempt.number >= policy.max_attempts:
        return Hold("unreconciled", f"no answer in {attempt.number} attempts")
    at = now + timedelta(seconds=backoff_s(attempt.number, policy, jitter))
    return Retry(at, "unreconciled", ambiguous=True)


def decide_found(
    happened: bool | None, result: Any, deadline: datetime | None, now: datetime, *, stopped: bool
) -> Run | Complete | Bury | None:
    """What becomes of an unresolved job whose type's ``reconcile`` was asked; None: it stays as it is.

    ``stopped``: its run is cancelled. Nobody has to be in doubt any more: attempts count from the beginning.
    """
    if happened is None:
        return None
    if happened:
        return Complete(result)
    return _may_run(Attempt(1, deadline=deadline, stopped=stopped), _ONCE, now)


def _may_run(attempt: Attempt, policy: Policy, now: datetime) -> Run | Bury:
    if attempt.stopped:
        return Bury("run_cancelled", "it had not happened when the run was cancelled")
    if is_spent(attempt, policy):
        if attempt.last == CRASHED:
            return Bury(CRASHED, f"no verdict after {attempt.number - 1} attempts")
        return Bury(attempt.last or EXHAUSTED, f"given up after {attempt.number - 1} attempts")
    if attempt.deadline is not None and now >= attempt.deadline:
        return Bury("deadline_exceeded", "the deadline had passed before the start")
    return _RUN


def decide(result: Outcome, attempt: Attempt, policy: Policy, now: datetime, jitter: float) -> Verdict:
    """The verdict that follows from an attempt's outcome. ``jitter`` is in [0, 1)."""
    match result:
        case outcome.Done():
            return Complete(result.result)
        case outcome.RateLimited():
            return _after_rate_limit(result, attempt, policy, now, jitter)
        case outcome.Transient():
            wait_s = _wait_s(result.retry_after_s, attempt.number, policy, jitter)
            return _retry(Retry(now + wait_s, result.reason), result.detail, attempt, policy)
        case outcome.Permanent():
            return Bury(result.reason, result.detail)
        case outcome.Unknown():
            return _after_unknown(result, attempt, policy, now, jitter)
        case outcome.Interrupted():
            return GiveBack(result.reason, ambiguous=attempt.ambiguous)
        case _:
            assert_never(result)


def _wait_s(asked_s: float | None, number: int, policy: Policy, jitter: float) -> timedelta:
    if asked_s is not None:
        return timedelta(seconds=min(asked_s, policy.retry_after_cap_s))
    return timedelta(seconds=backoff_s(number, policy, jitter))


def _after_rate_limit(
    result: outcome.RateLimited, attempt: Attempt, policy: Policy, now: datetime, jitter: float
) -> Verdict:
    refusals = attempt.rate_limited + 1
    if refusals >= policy.max_rate_limited:
        return Bury(result.reason, f"refused for the quota {refusals} times")
    wait_s = _wait_s(result.retry_after_s, refusals, policy, jitter)
    return _within_deadline(Retry(now + wait_s, result.reason, spends=False), attempt)


def _after_unknown(
    result: outcome.Unknown, attempt: Attempt, policy: Policy, now: datetime, jitter: float
) -> Verdict:
    if policy.on_unknown is OnUnknown.HOLD:
        return Hold(result.reason, result.detail)
    if result.cut:
        return GiveBack(result.reason, ambiguous=True)
    wait_s = _wait_s(None, attempt.number, policy, jitter)
    retry = Retry(now + wait_s, result.reason, ambiguous=True)
    if policy.on_unknown is OnUnknown.RETRY:
        return _retry(retry, result.detail, attempt, policy)
    if attempt.number >= policy.max_attempts:
        return Hold(result.reason, f"still uncertain after {attempt.number} attempts")
    # Past the deadline too: the next start only asks whether the effect happened.
    return retry


def _retry(retry: Retry, detail: str, attempt: Attempt, policy: Policy) -> Verdict:
    if attempt.number >= policy.max_attempts:
        return Bury(retry.reason, detail or f"given up after {attempt.number} attempts")
    return _within_deadline(retry, attempt)


def _within_deadline(retry: Retry, attempt: Attempt) -> Verdict:
    """A retry that would start past the deadline is buried now: waiting for it would only hide the loss."""
    if attempt.deadline is not None and retry.at >= attempt.deadline:
        return Bury("deadline_exceeded", f"no time left to retry after {retry.reason}")
    return retry
