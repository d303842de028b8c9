"""What follows from what: the table of verdicts, and the Retry-After that a downstream asks for."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from acklast import errors, outcome
from acklast.decide import (
    CRASHED,
    Attempt,
    Reconcile,
    Run,
    backoff_s,
    classify,
    decide,
    decide_found,
    decide_reconciled,
    decide_start,
    retry_after_s,
)
from acklast.outcome import Bury, Complete, GiveBack, Hold, Outcome, Retry, Verdict
from acklast.policy import OnUnknown, Policy

NOW = datetime(2025, 6, 1, 12, 0, tzinfo=UTC)
POLICY = Policy(
    max_attempts=3, max_rate_limited=5, backoff_base_s=4.0, backoff_cap_s=60.0, retry_after_cap_s=90
)
HALF = 0.5


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def on_unknown(choice: OnUnknown) -> Policy:
    return Policy(max_attempts=3, backoff_base_s=4.0, backoff_cap_s=60.0, on_unknown=choice)


FIRST = Attempt(1)
LAST = Attempt(3)
SOON = Attempt(1, deadline=after(1))
CUT = outcome.Unknown("drain_cut", "cut", cut=True)


@pytest.mark.parametrize(
    ("result", "attempt", "expected"),
    [
        (outcome.Done({"sent": 1}), FIRST, Complete({"sent": 1})),
        (outcome.Done(), Attempt(9, 9, after(-9), ambiguous=True), Complete()),
        (outcome.Transient("busy"), FIRST, Retry(after(2), "busy")),
        (outcome.Transient("busy"), Attempt(2), Retry(after(4), "busy")),
        (outcome.Transient("busy", retry_after_s=7), FIRST, Retry(after(7), "busy")),
        (outcome.Transient("busy", retry_after_s=7e9), FIRST, Retry(after(90), "busy")),
        (outcome.Transient("busy"), LAST, Bury("busy", "given up after 3 attempts")),
        (outcome.Transient("busy", "at x.py:1"), LAST, Bury("busy", "at x.py:1")),
        (outcome.Transient("busy"), SOON, Bury("deadline_exceeded", "no time left to retry after busy")),
        (outcome.Permanent("refused", "410"), FIRST, Bury("refused", "410")),
        (outcome.RateLimited(7.0, "quota"), FIRST, Retry(after(7), "quota", spends=False)),
        (outcome.RateLimited(7.0, "quota"), LAST, Retry(after(7), "quota", spends=False)),
        (outcome.RateLimited(None, "quota"), Attempt(1, 1), Retry(after(4), "quota", spends=False)),
        (outcome.RateLimited(7.0, "quota"), Attempt(1, 4), Bury("quota", "refused for the quota 5 times")),
        (
            outcome.RateLimited(7.0, "quota"),
            SOON,
            Bury("deadline_exceeded", "no time left to retry after quota"),
        ),
        (outcome.Interrupted("drain"), LAST, GiveBack("drain")),
        (outcome.Interrupted("drain"), Attempt(1, ambiguous=True), GiveBack("drain", ambiguous=True)),
    ],
)
def test_a_certain_outcome_has_one_verdict_under_every_policy(
    result: Outcome, attempt: Attempt, expected: Verdict
) -> None:
    for choice in OnUnknown:
        policy = Policy(3, 5, 4.0, 60.0, 90.0, choice)
        assert decide(result, attempt, policy, NOW, HALF) == expected


@pytest.mark.parametrize(
    ("choice", "result", "attempt", "expected"),
    [
        ("retry", outcome.Unknown("lost"), FIRST, Retry(after(2), "lost", ambiguous=True)),
        ("retry", outcome.Unknown("lost"), LAST, Bury("lost", "given up after 3 attempts")),
        (
            "retry",
            outcome.Unknown("lost"),
            SOON,
            Bury("deadline_exceeded", "no time left to retry after lost"),
        ),
        ("retry", CUT, LAST, GiveBack("drain_cut", ambiguous=True)),
        ("reconcile", outcome.Unknown("lost"), FIRST, Retry(after(2), "lost", ambiguous=True)),
        ("reconcile", outcome.Unknown("lost"), SOON, Retry(after(2), "lost", ambiguous=True)),
        ("reconcile", outcome.Unknown("lost"), LAST, Hold("lost", "still uncertain after 3 attempts")),
        ("reconcile", CUT, LAST, GiveBack("drain_cut", ambiguous=True)),
        ("hold", outcome.Unknown("lost", "timeout"), FIRST, Hold("lost", "timeout")),
        ("hold", CUT, FIRST, Hold("drain_cut", "cut")),
    ],
)
def test_an_uncertain_outcome_is_answered_by_the_lanes_own_choice(
    choice: OnUnknown, result: Outcome, attempt: Attempt, expected: Verdict
) -> None:
    assert decide(result, attempt, on_unknown(OnUnknown(choice)), NOW, HALF) == expected


def test_a_certain_start_runs_whatever_the_lane_says_of_uncertain_ones() -> None:
    for choice in OnUnknown:
        assert decide_start(LAST, on_unknown(choice), NOW, can_reconcile=False) == Run()


@pytest.mark.parametrize(
    ("choice", "can_reconcile", "expected"),
    [
        ("retry", True, Run),
        ("reconcile", True, Reconcile),
        ("reconcile", False, Hold),
        ("hold", True, Hold),
    ],
)
def test_an_ambiguous_start_asks_the_lanes_choice_first(
    choice: str, can_reconcile: bool, expected: type
) -> None:
    start = decide_start(
        Attempt(2, ambiguous=True), on_unknown(OnUnknown(choice)), NOW, can_reconcile=can_reconcile
    )
    assert isinstance(start, expected)


def test_the_deadline_forbids_the_effect_and_not_the_finding_out() -> None:
    late = Attempt(2, deadline=NOW, ambiguous=True)
    assert isinstance(decide_start(late, on_unknown(OnUnknown.RETRY), NOW, can_reconcile=True), Bury)
    policy = on_unknown(OnUnknown.RECONCILE)
    assert decide_start(late, policy, NOW, can_reconcile=True) == Reconcile()
    assert decide_reconciled(True, 1, late, policy, NOW, HALF) == Complete(1)
    assert isinstance(decide_reconciled(False, None, late, policy, NOW, HALF), Bury)


def test_a_crash_loop_ends_with_the_bound_of_attempts() -> None:
    start = decide_start(Attempt(4, ambiguous=True, last=CRASHED), POLICY, NOW, can_reconcile=False)
    assert start == Bury("crashed", "no verdict after 3 attempts")


@pytest.mark.parametrize(("last", "reason"), [("not_now", "not_now"), ("", "attempts_exhausted")])
def test_a_job_with_more_attempts_than_are_allowed_by_now_is_buried_for_what_it_failed_of(
    last: str, reason: str
) -> None:
    for ambiguous in (False, True):
        attempt = Attempt(4, ambiguous=ambiguous, last=last)
        start = decide_start(attempt, on_unknown(OnUnknown.RETRY), NOW, can_reconcile=False)
        assert start == Bury(reason, "given up after 3 attempts")


def test_a_lowered_bound_of_attempts_is_no_crash_of_a_reconcile() -> None:
    attempt = Attempt(7, ambiguous=True, last="unreconciled")
    assert decide_start(attempt, on_unknown(OnUnknown.RECONCILE), NOW, can_reconcile=True) == Reconcile()


def test_a_reconcile_that_kills_the_process_is_not_asked_for_ever() -> None:
    policy = on_unknown(OnUnknown.RECONCILE)
    once_more = decide_start(Attempt(4, ambiguous=True), policy, NOW, can_reconcile=True)
    assert once_more == Reconcile(), "a handler's crash on the last attempt may still be found out about"
    start = decide_start(Attempt(7, ambiguous=True), policy, NOW, can_reconcile=True)
    assert start == Hold("crashed", "no verdict after 6 attempts")


@pytest.mark.parametrize(
    ("happened", "attempt", "expected"),
    [
        (True, LAST, Complete("found")),
        (False, LAST, Run()),
        (False, Attempt(4, last=CRASHED), Bury("crashed", "no verdict after 3 attempts")),
        (False, Attempt(4, last="no_answer"), Bury("no_answer", "given up after 3 attempts")),
        (None, FIRST, Retry(after(2), "unreconciled", ambiguous=True)),
        (None, LAST, Hold("unreconciled", "no answer in 3 attempts")),
    ],
)
def test_the_answer_of_a_reconcile_decides(
    happened: bool | None, attempt: Attempt, expected: Run | Verdict
) -> None:
    assert decide_reconciled(happened, "found", attempt, POLICY, NOW, HALF) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.RateLimited(7), outcome.RateLimited(7.0)),
        (errors.RateLimited("7", "too many"), outcome.RateLimited(7.0, "too_many")),
        (errors.RateLimited(), outcome.RateLimited(None)),
        (errors.Transient("not now"), outcome.Transient("not_now")),
        (errors.Permanent("gone"), outcome.Permanent("gone")),
        (errors.Unknown("no answer"), outcome.Unknown("no_answer")),
        (errors.Interrupted(), outcome.Interrupted("drain")),
        (TimeoutError("http://user:secret@host"), outcome.Unknown("timeout")),
        (KeyError("secret"), outcome.Unknown("exception:KeyError")),
        (ConnectionResetError("secret"), outcome.Unknown("exception:ConnectionResetError")),
        (SystemExit("secret"), outcome.Unknown("exception:SystemExit")),
    ],
)
def test_an_exception_is_named_and_its_text_stays_out(error: BaseException, expected: Outcome) -> None:
    assert classify(error, now=NOW, retry_after_cap_s=60) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (0, 0.0),
        (7.5, 7.5),
        ("7", 7.0),
        (" 7 ", 7.0),
        (-3, 0.0),
        ("-3", 0.0),
        (90_000, 60.0),
        ("1e400", 60.0),
        (math.inf, 60.0),
        (math.nan, None),
        ("nan", None),
        (10**400, None),
        ("Sun, 01 Jun 2025 12:00:30 GMT", 30.0),
        ("Sun, 01 Jun 2025 14:00:30 +0200", 30.0),
        ("Sun, 01 Jun 2025 12:00:30", 30.0),
        ("Sun, 01 Jun 2025 11:00:00 GMT", 0.0),
        ("Mon, 01 Jun 2099 12:00:00 GMT", 60.0),
        ("Sun, 99 Jun 2025 12:00:00 GMT", None),
        ("", None),
        ("soon", None),
        ("\0", None),
    ],
)
def test_a_retry_after_is_seconds_or_a_date_and_anything_else_is_ignored(
    value: Any, expected: float | None
) -> None:
    assert retry_after_s(value, NOW, 60.0) == expected


def test_the_back_off_doubles_to_its_cap_and_never_overflows() -> None:
    waits = [backoff_s(number, POLICY, 0.5) for number in (1, 2, 3, 4, 5, 6, 10_000)]
    assert waits == [2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize(
    ("choice", "can_reconcile", "start"),
    [
        (OnUnknown.RETRY, False, Hold),
        (OnUnknown.HOLD, True, Hold),
        (OnUnknown.RECONCILE, False, Hold),
        (OnUnknown.RECONCILE, True, Reconcile),
    ],
)
def test_what_a_cancelled_run_leaves_in_doubt_is_found_out_or_held(
    choice: OnUnknown, can_reconcile: bool, start: type
) -> None:
    left = Attempt(2, ambiguous=True, stopped=True)
    assert isinstance(decide_start(left, on_unknown(choice), NOW, can_reconcile=can_reconcile), start)
    verdict = decide_reconciled(False, None, left, on_unknown(choice), NOW, HALF)
    assert verdict == Bury("run_cancelled", "it had not happened when the run was cancelled")
    assert decide_reconciled(True, 1, left, on_unknown(choice), NOW, HALF) == Complete(1)


@pytest.mark.parametrize(
    ("happened", "deadline_s", "stopped", "follows"),
    [
        (True, -1, True, Complete("result")),
        (False, None, False, Run()),
        (False, 1, False, Run()),
        (False, -1, False, Bury("deadline_exceeded", "the deadline had passed before the start")),
        (False, 1, True, Bury("run_cancelled", "it had not happened when the run was cancelled")),
        (None, -1, True, None),
    ],
)
def test_what_becomes_of_an_unresolved_job(
    happened: bool | None, deadline_s: float | None, stopped: bool, follows: Run | Complete | Bury | None
) -> None:
    deadline = None if deadline_s is None else NOW + timedelta(seconds=deadline_s)
    assert decide_found(happened, "result", deadline, NOW, stopped=stopped) == follows
