"""What holds of every decision, whatever the outcome, the policy, the time and the chance."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from acklast import errors, outcome
from acklast.decide import (
    Attempt,
    Run,
    backoff_s,
    classify,
    decide,
    decide_reconciled,
    decide_start,
    reason_code,
    retry_after_s,
)
from acklast.outcome import Bury, Complete, GiveBack, Hold, Outcome, Retry, Verdict
from acklast.policy import OnUnknown, Policy

NOW = datetime(2025, 6, 1, 12, 0, tzinfo=UTC)
SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:/-")

jitters = st.floats(0, 1, exclude_max=True)
seconds = st.floats(0.001, 1e6)
reasons = st.sampled_from(["busy", "lost", "quota"])
policies = st.builds(
    Policy,
    max_attempts=st.integers(1, 12),
    max_rate_limited=st.integers(0, 12),
    backoff_base_s=seconds,
    backoff_cap_s=seconds,
    retry_after_cap_s=seconds,
    on_unknown=st.sampled_from(OnUnknown),
)
deadlines = st.none() | st.floats(-1e5, 1e5).map(lambda s: NOW + timedelta(seconds=s))
attempts = st.builds(
    Attempt, st.integers(1, 15), st.integers(0, 15), deadline=deadlines, ambiguous=st.booleans()
)
wishes = st.none() | st.floats(0, 1e7)
spending: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(outcome.Transient, reasons, retry_after_s=wishes), st.builds(outcome.Unknown, reasons)
)
refusals = st.builds(outcome.RateLimited, wishes, reasons)
interruptions = st.builds(outcome.Interrupted, reasons)
cuts = st.builds(outcome.Unknown, reasons, cut=st.just(True))
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(outcome.Done), st.builds(outcome.Permanent, reasons), spending, refusals, interruptions, cuts
)


class Life:
    """One job's life as the ledger counts it, for as long as something fails it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.claimed = self.refused = 0
        self.ambiguous = False
        self.rounds = 0

    def step(self, result: Outcome | None, happened: bool | None, jitter: float) -> Verdict | None:
        """Claim and attempt once; None where the process died of it."""
        self.rounds += 1
        self.claimed += 1
        attempt = Attempt(self.claimed, self.refused, ambiguous=self.ambiguous)
        start = decide_start(attempt, self.policy, NOW, can_reconcile=True)
        if isinstance(start, Bury | Hold):
            return start
        if result is None:
            self.ambiguous = True
            return None
        if not isinstance(start, Run):
            found = decide_reconciled(happened, None, attempt, self.policy, NOW, jitter)
            if not isinstance(found, Run):
                return self._count(found, result)
        return self._count(decide(result, attempt, self.policy, NOW, jitter), result)

    def _count(self, verdict: Verdict, result: Outcome) -> Verdict:
        if isinstance(verdict, Retry):
            self.claimed -= not verdict.spends
            self.refused += isinstance(result, outcome.RateLimited) and not verdict.spends
            self.ambiguous |= verdict.ambiguous
        return verdict


@given(
    policies,
    st.lists(st.none() | spending | refusals, min_size=1, max_size=4),
    st.sampled_from([None, False]),
    jitters,
)
@example(Policy(max_attempts=2, on_unknown=OnUnknown.RECONCILE), [None], None, 0.0)
@example(Policy(max_attempts=2, on_unknown=OnUnknown.RECONCILE), [None, outcome.RateLimited()], False, 0.0)
def test_a_job_that_always_fails_or_crashes_comes_to_an_end(
    policy: Policy, failures: list[Outcome | None], happened: bool | None, jitter: float
) -> None:
    life = Life(policy)
    verdict: Verdict | None = None
    for failure in cycle(failures):
        assert life.rounds <= 2 * policy.max_attempts + policy.max_rate_limited, "nothing retries for ever"
        verdict = life.step(failure, happened, jitter)
        if verdict is not None and not isinstance(verdict, Retry):
            break
    assert isinstance(verdict, Bury | Hold)


@given(attempts, st.floats(0, 1e6), policies, st.booleans())
def test_nothing_runs_at_or_past_its_deadline(
    attempt: Attempt, late_s: float, policy: Policy, can_reconcile: bool
) -> None:
    late = replace(attempt, deadline=NOW - timedelta(seconds=late_s))
    assert not isinstance(decide_start(late, policy, NOW, can_reconcile=can_reconcile), Run)
    assert not isinstance(decide_reconciled(False, None, late, policy, NOW, 0.0), Run)


@given(outcomes, attempts, policies, jitters)
def test_no_retry_of_the_handler_is_planned_for_past_the_deadline(
    result: Outcome, attempt: Attempt, policy: Policy, jitter: float
) -> None:
    verdict = decide(result, attempt, policy, NOW, jitter)
    if isinstance(verdict, Retry) and attempt.deadline is not None:
        only_asks = policy.on_unknown is OnUnknown.RECONCILE and verdict.ambiguous
        assert verdict.at < attempt.deadline or only_asks


@given(outcomes, attempts, policies, jitters)
def test_a_retry_never_lies_in_the_past_nor_beyond_the_longest_wait(
    result: Outcome, attempt: Attempt, policy: Policy, jitter: float
) -> None:
    verdict = decide(result, attempt, policy, NOW, jitter)
    longest_s = max(policy.backoff_cap_s, policy.retry_after_cap_s)
    if isinstance(verdict, Retry):
        assert NOW <= verdict.at <= NOW + timedelta(seconds=longest_s)


@given(st.floats(0, 1e7), st.booleans(), policies, jitters)
def test_a_downstreams_wish_wins_over_the_back_off_up_to_its_cap(
    wish_s: float, limited: bool, policy: Policy, jitter: float
) -> None:
    result = (
        outcome.RateLimited(wish_s, "quota") if limited else outcome.Transient("busy", retry_after_s=wish_s)
    )
    verdict = decide(result, Attempt(1), policy, NOW, jitter)
    if isinstance(verdict, Retry):
        assert verdict.at == NOW + timedelta(seconds=min(wish_s, policy.retry_after_cap_s))


@given(refusals | interruptions | cuts, attempts, policies, jitters)
def test_a_refusal_for_the_quota_and_a_drain_never_spend_an_attempt(
    result: Outcome, attempt: Attempt, policy: Policy, jitter: float
) -> None:
    match decide(result, attempt, policy, NOW, jitter):
        case Retry(spends=spends):
            assert not spends
        case GiveBack():
            assert not isinstance(result, outcome.RateLimited)
        case Hold():
            assert isinstance(result, outcome.Unknown)
        case Bury():
            assert isinstance(result, outcome.RateLimited)
        case Complete():
            raise AssertionError("it never happened")


@given(outcomes, attempts, policies, jitters)
def test_doubt_is_never_dropped(result: Outcome, attempt: Attempt, policy: Policy, jitter: float) -> None:
    verdict = decide(result, attempt, policy, NOW, jitter)
    if isinstance(verdict, Retry | GiveBack) and isinstance(result, outcome.Unknown):
        assert verdict.ambiguous
    if isinstance(verdict, GiveBack) and attempt.ambiguous:
        assert verdict.ambiguous


@given(attempts, policies, st.booleans())
def test_a_lane_that_holds_never_starts_in_doubt(
    attempt: Attempt, policy: Policy, can_reconcile: bool
) -> None:
    doubtful = replace(attempt, ambiguous=True)
    holding = replace(policy, on_unknown=OnUnknown.HOLD)
    assert isinstance(decide_start(doubtful, holding, NOW, can_reconcile=can_reconcile), Hold)


@given(st.integers(1, 10**6), policies, jitters)
def test_the_back_off_lies_between_nothing_and_its_cap(number: int, policy: Policy, jitter: float) -> None:
    assert 0 <= backoff_s(number, policy, jitter) <= policy.backoff_cap_s


@given(st.text())
def test_a_reason_code_is_safe_to_log_whatever_was_given(text: str) -> None:
    code = reason_code(text)
    assert 1 <= len(code) <= 64
    assert set(code) <= SAFE
    assert reason_code(code) == code, "a code names itself"


@given(st.none() | st.floats() | st.integers() | st.text() | st.datetimes().map(str), st.floats(0, 1e6))
def test_no_retry_after_breaks_anything(value: Any, cap_s: float) -> None:
    wait_s = retry_after_s(value, NOW, cap_s)
    assert wait_s is None or 0 <= wait_s <= cap_s


@given(st.sampled_from([errors.Transient, errors.Permanent, errors.Unknown]), st.text())
def test_a_handlers_reason_is_made_safe(kind: type[errors.JobError], text: str) -> None:
    found = classify(kind(text), now=NOW, retry_after_cap_s=60)
    assert getattr(found, "reason", None) == reason_code(text)
