"""Why a lane does not run, in the words that the one on call reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from acklast.cli.lane_view import LaneView
from acklast.cli.lane_why import State, explain
from acklast.cli.lanes import cells
from acklast.cli.spans import moment, parse_moment, parse_span, span
from acklast.config.quota import Quota
from acklast.lane_queues import Queues
from acklast.ledger.controls import Kind, Target
from acklast.ledger.standing import DaemonView, Pause
from acklast.pacing.controls import Refused
from acklast.reporter import Standing
from harness.controls import AT, control, pause

DAEMON = DaemonView(
    session=1,
    worker="one@host:7",
    live=True,
    silent_s=0.0,
    heard=0,
    concurrency=10,
    in_flight=0,
    held=0,
    started=0,
    window_s=60.0,
    permits=50,
    busy=0,
    rate_per_s=100 / 60,
    state="open",
    until=None,
    at=AT,
)
VIEW = LaneView(
    lane="cleanup",
    budget="api",
    configured=Quota(100, 60.0),
    in_force=Quota(100, 60.0),
    concurrency=10,
    daemons=(DAEMON,),
    silent=(),
    queues=Queues(0, 0),
    paused=None,
    quiet=None,
    limits=(),
    now=AT,
    changed=0,
)


def in_state(state: Standing, *, after_s: float | None = None) -> LaneView:
    """A lane that waits, with its only daemon in this state."""
    until = AT + timedelta(seconds=after_s) if after_s is not None else None
    return replace(VIEW, daemons=(replace(DAEMON, state=state.value, until=until),), queues=Queues(5, 0))


@pytest.mark.parametrize(
    ("view", "state", "why"),
    [
        (VIEW, State.IDLE, "nothing waits"),
        (replace(VIEW, queues=Queues(0, 3)), State.IDLE, "what waits is not due yet"),
        (replace(VIEW, queues=Queues(5, 0)), State.RUNNING, "running"),
        (
            replace(VIEW, daemons=(), queues=Queues(5, 0)),
            State.STOPPED,
            "no daemon serves it: start 'acklast run'",
        ),
        (
            replace(VIEW, queues=Queues(None, 0, missing=["acklast.v1.cleanup.work"])),
            State.STOPPED,
            "acklast.v1.cleanup.work is not on the broker: run 'acklast topology apply'",
        ),
        (
            in_state(Standing.QUIET, after_s=90),
            State.WAITING,
            "the downstream asked for quiet until 02:01:30Z (429 or Retry-After)",
        ),
        (
            in_state(Standing.BREAKER, after_s=5),
            State.WAITING,
            "the downstream is down: the breaker of one@host:7 is open, probes it at 02:00:05Z",
        ),
        (
            in_state(Standing.NO_PERMIT, after_s=2400),
            State.WAITING,
            "every permit of 100 per 60 s is in use: the next comes free at 02:40:00Z",
        ),
        (
            in_state(Standing.NOT_CONSUMING),
            State.STOPPED,
            "one@host:7 gets no deliveries from the broker: see its log for lane.interrupted",
        ),
        (
            in_state(Standing.LEASE_LOST),
            State.STOPPED,
            "one@host:7 has lost its session in the ledger and opens another",
        ),
    ],
)
def test_the_reason_is_told_in_plain_words(view: LaneView, state: State, why: str) -> None:
    assert explain(view) == (state, why)


def test_a_pause_names_who_and_why_and_until_when_and_what_still_runs() -> None:
    flying = replace(DAEMON, state="paused", in_flight=3)
    view = replace(VIEW, paused=pause(Target.LANE, "cleanup", 1800), daemons=(flying,))
    assert explain(view) == (
        State.PAUSED,
        "paused by duty at 02:00:00Z until 02:30:00Z: why; 3 that had started run on",
    )


def test_a_pause_of_the_budget_is_told_as_such_with_who_does_not_follow() -> None:
    view = replace(VIEW, paused=pause(Target.BUDGET, "api"))
    assert explain(view) == (
        State.PAUSED,
        "its budget api was paused by duty at 02:00:00Z until it is resumed: why;"
        " not followed yet by one@host:7",
    )


def test_a_daemon_that_is_silent_is_told_of_whether_others_run_or_not() -> None:
    silent = replace(DAEMON, worker="two@host:8", live=False, silent_s=40.0)
    assert "two@host:8 has not answered for 40 s" in explain(replace(VIEW, silent=(silent,)))[1]
    alone = replace(VIEW, daemons=(), silent=(silent,))
    assert explain(alone) == (
        State.STOPPED,
        "no daemon serves it: start 'acklast run'; two@host:8 has not answered for 40 s",
    )


def test_daemons_in_different_states_are_told_apart_and_what_ends_by_itself_comes_first() -> None:
    down = replace(DAEMON, worker="two@host:8", state="breaker", until=AT + timedelta(seconds=9))
    lost = replace(DAEMON, state="lease_lost")
    state, why = explain(replace(VIEW, daemons=(lost, down), queues=Queues(5, 0)))
    assert state is State.WAITING
    assert why.index("two@host:8") < why.index("lost its session")
    assert "(1 of 2 daemons)" in why


def test_a_daemon_without_a_permit_beside_one_that_has_some_is_no_news() -> None:
    poor = replace(DAEMON, worker="two@host:8", state="no_permit")
    assert explain(replace(VIEW, daemons=(DAEMON, poor))) == (State.IDLE, "nothing waits")


def test_what_keeps_a_lane_from_running_faster_is_told() -> None:
    at_quota = replace(DAEMON, started=100, rate_per_s=100 / 60)
    busy = replace(DAEMON, in_flight=10)
    waits = replace(VIEW, queues=Queues(5, 0))
    assert explain(replace(waits, daemons=(at_quota,)))[1] == "at its quota"
    assert explain(replace(waits, daemons=(busy,)))[1] == "all 10 handlers are busy"


def test_what_was_lowered_is_told_beside_the_reason() -> None:
    limit = control(Target.BUDGET, "api", Kind.QUOTA, amount=5, period_s=60.0, left_s=60)
    _, why = explain(replace(VIEW, limits=(limit,)))
    assert why == "nothing waits; lowered by duty to 5 per 60 s (budget api) until 02:01:00Z: why"


def test_a_row_has_the_rates_as_the_quota_counts_them() -> None:
    half = replace(DAEMON, started=25, rate_per_s=50 / 60, permits=60, in_flight=2, held=4)
    view = replace(VIEW, daemons=(half, replace(half, permits=40)), queues=Queues(1000, 234))
    row = cells(view, State.RUNNING)
    assert row == (
        "cleanup",
        "running",
        "api",
        "100 per 60 s",
        "100/60 s",
        "50/60 s",
        "4",
        "1,242",
        "2",
        "60+40",
    )


@pytest.mark.parametrize(
    "view",
    [replace(VIEW, paused=pause(Target.LANE, "cleanup")), replace(VIEW, quiet=Pause(AT, "rate_limited"))],
)
def test_a_lane_that_is_held_back_has_no_rate(view: LaneView) -> None:
    assert view.effective_per_s == 0.0


def test_what_could_not_be_seen_is_not_counted_as_nothing() -> None:
    view = replace(VIEW, queues=Queues(unseen=["acklast.v1.cleanup.work"]))
    assert view.waiting is None
    assert cells(view, State.IDLE)[7] == "?"


# --- times ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("2 h", 7200), ("1d", 86_400)])
def test_spans_are_read(text: str, seconds: int) -> None:
    assert parse_span(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "0s", "-5m", "5", "1w", "1.5h", "٣m"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is no span"):
        parse_span(text)


def test_a_moment_needs_its_offset() -> None:
    assert parse_moment("2026-01-01T03:00:00+01:00") == AT
    for text in ("2026-01-01T03:00:00", "tomorrow"):
        with pytest.raises(Refused):
            parse_moment(text)


def test_moments_and_spans_are_short() -> None:
    assert moment(AT, AT) == "02:00:00Z"
    assert moment(AT + timedelta(days=1), AT) == "2026-01-02 02:00:00Z"
    assert [span(seconds) for seconds in (40, 150, 7300, 900_000)] == ["40 s", "2 min", "2 h", "10 d"]
