"""Why one job does not run: each reason with its evidence, from values alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from acklast.cli.lane_view import LaneView
from acklast.cli.why import exit_of
from acklast.cli.why_job import answer
from acklast.cli.why_reason import Case, Need, Position, Proof, Reason, Rules
from acklast.cli.why_turn import suspicious
from acklast.errors import Exit
from acklast.lane_queues import Queues
from acklast.ledger.about import Cancellation
from acklast.ledger.api import AttemptView, JobView, LetterView, State
from acklast.ledger.controls import Target
from acklast.ledger.standing import Pause
from acklast.ledger.trials import Trial
from acklast.ledger.unresolved import Asked
from acklast.ledger.whereabouts import Claimer, Hand, JobFacts, Promise, Stray, Trying, Usual
from acklast.ledger.workers import State as Worker
from acklast.ledger.workers import WorkerView
from acklast.outlook.binding import Binding, Constraint
from acklast.reporter import Standing
from harness.controls import AT, pause
from harness.why import DAEMON, LANE, QUIET_LANE, VIEW, WORKER, fits


def ago(seconds: float) -> datetime:
    return AT - timedelta(seconds=seconds)


def within(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def failed(outcome: str, reason: str) -> AttemptView:
    return AttemptView(1, 1, outcome, reason, "", ago(62), ago(60), "one@host:7", "1.0")


def job(state: State, **more: Any) -> JobView:
    return replace(VIEW, state=state, **more)


def case(view: JobView, lane: LaneView = QUIET_LANE, **more: Any) -> Case:
    facts = {name: more.pop(name) for name in JobFacts.__slots__ if name in more}
    none = {"claimer": None, "cancelled": None, "sent_at": None, "hand": None}
    made = JobFacts(view, **{"claims": 0, "kept": False, **none, **facts})
    return Case(AT, made, lane, more.pop("rules", Rules(8, "hold")), **more)


def claimer(*, live: bool, ended_s: float | None = None) -> Claimer:
    ended = None if ended_s is None else ago(ended_s)
    return Claimer("one@host:7", "1.0", live, within(10) if live else ago(30), ended, None)


def letter(number: int = 17) -> LetterView:
    return LetterView(
        number,
        LANE,
        "k",
        None,
        "refused",
        "no such house",
        3,
        ago(600),
        ago(300),
        1,
        "one@host:7",
        "1.0",
        "f",
        None,
    )


def trial(**more: Any) -> Trial:
    settings = dict.fromkeys(Trial.__slots__) | {"redrive": 4, "position": 1, "letter": 17, "lane": LANE}
    return Trial(**{**settings, "key": "k", "state": "released", **more})


def question(**more: Any) -> Asked:
    told = {"id": 1, "actor": "duty", "reason": "?", "asked_at": ago(60), "worker": None, "found": None}
    return Asked(**{**told, "code": None, "effect": None, "done_at": None, **more})


QUEUED = job(State.QUEUED, enqueued_at=ago(30))
RETRY = job(
    State.WAITING, available_at=within(90), attempts=2, reason="not_now", history=(failed("transient", "x"),)
)
CLAIMED = job(State.CLAIMED, claimed_at=ago(40), attempts=2, worker="one@host:7")
CANCELLED = Cancellation(ago(100), "duty", "wrong list")
PROMISE = Promise(9, LANE, None, ago(20), ago(20), 0, None, 0)
STRAY = Stray(31, LANE, "key_conflict", "another body", LANE, ago(5), 1)
DONE = job(
    State.DONE, recorded_at=ago(3600), attempts=1, worker="one@host:7", result={"ok": 1}, settled_at=ago(3599)
)


@pytest.mark.parametrize(
    ("made", "code", "need", "says", "evidence", "helps"),
    [
        # Over.
        (
            case(DONE),
            "done",
            "nothing",
            "it is done since 01:00:00Z (60 min ago) by one@host:7",
            {"attempts": 1, "result": {"ok": 1}},
            "jobs show k --lane work",
        ),
        (
            case(job(State.DEAD, recorded_at=ago(300), reason="refused", attempts=3, letters=(letter(),))),
            "dead",
            "act",
            "dead since 01:55:00Z: refused, after 3 attempts; no such house. It stays so until",
            {"letter": 17, "attempts": 3, "first_failure_at": ago(600)},
            "acklast dead show 17; then acklast redrive plan --lane work --reason refused",
        ),
        (
            case(
                job(State.DEAD, reason="refused", letters=(letter(),)),
                trying=Trying(4, "paused", "duty", 1, 20),
            ),
            "redrive_waits",
            "act",
            "redrive 4 of duty tries it again: it is paused, 1 of 20 letters released",
            {"id": 4, "status": "paused"},
            "acklast redrive status 4",
        ),
        (
            case(
                job(
                    State.UNRESOLVED,
                    letters=(letter(),),
                    redrives=(trial(), trial(redrive=5, state="refused", refusal="capped")),
                )
            ),
            "redrive_refused",
            "act",
            "redrive 5 was to try it again, and did not: capped",
            {"redrive": 5, "letter": 17, "refusal": "capped"},
            "acklast redrive status 5",
        ),
        (
            case(job(State.UNRESOLVED, recorded_at=ago(60), reason="timed_out", letters=(letter(),))),
            "unresolved",
            "act",
            "unresolved since 01:59:00Z (timed_out): its effect may have happened",
            {"letter": 17, "asked": None},
            "acklast unresolved show 17",
        ),
        (
            case(job(State.UNRESOLVED, recorded_at=ago(90), letters=(letter(),)), asked=(question(),)),
            "unresolved",
            "wait",
            "duty asked at 01:59:00Z, and a daemon is to find out",
            {},
            "unresolved",
        ),
        (
            case(
                job(State.UNRESOLVED, letters=(letter(),)), asked=(question(found="unknown", done_at=ago(1)),)
            ),
            "unresolved",
            "act",
            "it was asked at 01:59:00Z and found: unknown",
            {},
            "unresolved",
        ),
        (
            case(job(State.CANCELLED, reason="run_cancelled", run="r-1"), cancelled=CANCELLED),
            "cancelled",
            "nothing",
            "its run r-1 was cancelled by duty at 01:58:20Z: wrong list",
            {"actor": "duty", "run_at": ago(100)},
            "acklast audit --lane work --key k",
        ),
        (
            case(job(State.CANCELLED, reason="by_hand"), hand=Hand(ago(50), "duty", "jobs.cancel", "x")),
            "cancelled",
            "nothing",
            "it is cancelled (by_hand); jobs.cancel by duty",
            {"actor": "duty"},
            "audit",
        ),
        # At work, or with whom it was.
        (
            case(CLAIMED, claimer=claimer(live=True), usual=Usual(400, 0.25, 50.0)),
            "running_now",
            "nothing",
            "it runs since 01:59:20Z (40 s), attempt 2, on one@host:7; half of 400 ",
            {"took_s": 40.0, "attempt": 2},
            "jobs show",
        ),
        (
            case(CLAIMED, claimer=claimer(live=True), usual=Usual(400, 0.25, 3.0)),
            "running_long",
            "nothing",
            "one in twenty over 3 s",
            {"usual": Usual(400, 0.25, 3.0)},
            "jobs show",
        ),
        (
            case(CLAIMED, claimer=claimer(live=False)),
            "orphaned",
            "wait",
            "one@host:7 claimed it at 01:59:20Z and has not renewed its lease since 01:59:30Z",
            {"worker": "one@host:7", "gone_at": ago(30), "on_unknown": "hold"},
            "acklast workers --all",
        ),
        (
            case(CLAIMED, claimer=claimer(live=False, ended_s=20)),
            "orphaned",
            "wait",
            "and ended 01:59:40Z: the next delivery",
            {},
            "workers",
        ),
        (
            case(CLAIMED, claimer=None),
            "orphaned",
            "wait",
            "a daemon that the ledger does not know any more",
            {"worker": None},
            "workers",
        ),
        # Not its time, or never.
        (
            case(RETRY, claims=2),
            "retry",
            "wait",
            "attempt 2 of 8 failed (not_now): the next one waits until 02:01:30Z (90 s)",
            {"available_at": within(90), "attempts": 2, "max_attempts": 8, "last": failed("transient", "x")},
            "jobs show",
        ),
        (
            case(replace(RETRY, history=(failed("rate_limited", "429"),), rate_limited=1), claims=2),
            "rate_limited",
            "wait",
            "the downstream refused it for its quota (not_now): the next one waits until",
            {"rate_limited": 1},
            "jobs show",
        ),
        (
            case(job(State.WAITING, available_at=within(7200))),
            "not_before",
            "wait",
            "its publisher said not before: it waits until 04:00:00Z (2 h)",
            {"available_at": within(7200)},
            None,
        ),
        (
            case(replace(RETRY, available_at=ago(1)), claims=2),
            "retry",
            "wait",
            "it was due at 01:59:59Z again",
            {},
            "jobs show",
        ),
        (
            case(job(State.QUEUED, enqueued_at=ago(5), run="r-1"), cancelled=CANCELLED),
            "run_cancelled",
            "nothing",
            "its run r-1 was cancelled by duty at 01:58:20Z: wrong list",
            {"run": "r-1", "actor": "duty"},
            "runs show r-1",
        ),
        (
            case(replace(QUEUED, deadline=ago(60))),
            "deadline_passed",
            "act",
            "its deadline passed 60 s ago, at 01:59:00Z: it does not start any more",
            {"deadline": ago(60)},
            "acklast dead list --lane work --reason deadline_exceeded",
        ),
        # Promised, or given back.
        (
            case(QUEUED, promises=(PROMISE,), oldest_due=ago(1)),
            "unpublished",
            "wait",
            "since 01:59:40Z (20 s), and not published: a relay takes what is due",
            {"row": 9, "tries": 0},
            "check",
        ),
        (
            case(QUEUED, promises=(replace(PROMISE, created_at=ago(600)),), oldest_due=ago(600)),
            "unpublished",
            "act",
            "no relay takes what is due (the oldest row since 10 min)",
            {"oldest_due_for_s": 600.0},
            "acklast relay",
        ),
        (
            case(
                QUEUED,
                promises=(replace(PROMISE, tries=3, error="refused", due_at=within(4)), PROMISE),
                oldest_due=None,
            ),
            "unpublished",
            "act",
            "3 tries were not confirmed, the last: refused; again at 02:00:04Z; 1 more of its",
            {"tries": 3, "error": "refused", "rows_of_key": 2},
            "check",
        ),
        (
            case(
                job(State.QUEUED, claimed_at=ago(9), recorded_at=ago(4), reason="drain", worker="one@host:7"),
                claims=1,
            ),
            "given_back",
            "wait",
            "a daemon gave it back at 01:59:56Z (drain): no attempt is spent",
            {"worker": "one@host:7"},
            None,
        ),
        (
            case(
                job(State.QUEUED, redrives=(trial(released_at=ago(9), sent_at=ago(8)),)),
                trying=Trying(4, "running", "duty", 1, 20),
            ),
            "redriven",
            "wait",
            "redrive 4 has queued it again, published at 01:59:52Z; the redrive is running",
            {"redrive": 4},
            "redrive status 4",
        ),
        # In the queue.
        (
            case(QUEUED),
            "due",
            "wait",
            "it is due for 30 s, and nothing is seen before it",
            {"ready": 0, "due_for_s": 30.0},
            None,
        ),
        (
            case(QUEUED, replace(QUIET_LANE, queues=Queues(None, None))),
            "due",
            "wait",
            "the queue could not be seen",
            {"ready": None},
            None,
        ),
        (
            case(
                QUEUED,
                replace(QUIET_LANE, queues=Queues(120, 0), daemons=(replace(DAEMON, held=1, started=600),)),
            ),
            "behind",
            "wait",
            "at most 120 of its lane are before it: its turn comes by about 02:00:12Z, at 10/s",
            {"ready": 120, "held": 1},
            "acklast lanes",
        ),
        (
            case(QUEUED, replace(QUIET_LANE, queues=Queues(120, 0)), rules=Rules(8, "hold", in_turns=True)),
            "behind",
            "wait",
            "take turns in this lane, so it may be sooner",
            {},
            "lanes",
        ),
        (
            case(
                replace(QUEUED, deadline=within(60)),
                replace(QUIET_LANE, queues=Queues(1201, 0), daemons=(replace(DAEMON, started=600),)),
            ),
            "deadline_risk",
            "act",
            "at this pace it starts about 02:02:00Z, after its deadline 02:01:00Z",
            {"deadline": within(60)},
            "lanes",
        ),
        (
            case(replace(QUEUED, enqueued_at=ago(900)), replace(QUIET_LANE, queues=Queues(0, 3))),
            "maybe_delayed",
            "wait",
            "3 messages are in the lane's wait queues, and it may be one of them",
            {"delayed": 3},
            None,
        ),
        # Lost.
        (
            case(replace(QUEUED, enqueued_at=ago(900)), proof=Proof(looked=True, absent=True), kept=True),
            "lost",
            "act",
            "its message is not in the broker: it is due since 01:45:00Z",
            {"kept": True},
            "jobs missing --lane work --republish",
        ),
        (
            case(replace(QUEUED, enqueued_at=ago(900)), proof=Proof(looked=True, absent=True)),
            "lost",
            "act",
            "publish the same message again, with the same key",
            {"kept": False},
            "jobs missing --lane work",
        ),
        (
            case(replace(QUEUED, enqueued_at=ago(900)), proof=Proof(looked=True)),
            "maybe_lost",
            "act",
            "its message may be lost",
            {"due_for_s": 900.0},
            "jobs missing --lane work",
        ),
        # Of the lane.
        (
            case(QUEUED, replace(QUIET_LANE, paused=pause(Target.LANE, LANE))),
            "lane_paused",
            "act",
            "lane work: paused by duty at 02:00:00Z until it is resumed: why",
            {"actor": "duty", "reason": "why"},
            "lanes resume work",
        ),
        (
            case(QUEUED, replace(QUIET_LANE, paused=pause(Target.BUDGET, "api", 60))),
            "budget_paused",
            "wait",
            "its budget api was paused by duty",
            {"name": "api"},
            "lanes resume --budget api",
        ),
        (
            case(QUEUED, replace(QUIET_LANE, daemons=())),
            "no_daemon",
            "act",
            "no daemon serves it",
            {"daemons": 0},
            "acklast run --lane work",
        ),
        (
            case(QUEUED, replace(QUIET_LANE, queues=Queues(None, 0, missing=["a.work"]))),
            "queue_missing",
            "act",
            "a.work is not on the broker",
            {"missing": ["a.work"]},
            "topology apply",
        ),
        (
            case(
                QUEUED,
                replace(
                    QUIET_LANE,
                    quiet=Pause(within(90), "429"),
                    daemons=(replace(DAEMON, state=Standing.QUIET.value, until=within(90)),),
                ),
            ),
            "quiet",
            "wait",
            "the downstream asked for quiet until 02:01:30Z",
            {"until": within(90), "used_per_s": 0.0},
            "acklast lanes",
        ),
        (
            case(QUEUED, replace(QUIET_LANE, daemons=(replace(DAEMON, state=Standing.BREAKER.value),))),
            "breaker",
            "wait",
            "the downstream is down",
            {"slots": 10},
            "acklast lanes",
        ),
        (
            case(QUEUED, replace(QUIET_LANE, daemons=(replace(DAEMON, state=Standing.NO_PERMIT.value),))),
            "no_permit",
            "wait",
            "no daemon that serves it holds a permit",
            {"quota": "100 per 60 s"},
            "acklast lanes",
        ),
        (
            case(QUEUED, replace(QUIET_LANE, daemons=(replace(DAEMON, state=Standing.NOT_CONSUMING.value),))),
            "not_consuming",
            "act",
            "gets no deliveries from the broker",
            {},
            "acklast lanes",
        ),
        (
            case(QUEUED, replace(QUIET_LANE, queues=Queues(50, 0), daemons=(replace(DAEMON, in_flight=10),))),
            "busy",
            "wait",
            "all 10 handlers are busy",
            {"in_flight": 10},
            "acklast lanes",
        ),
        (
            case(
                QUEUED,
                workers=(replace(WORKER, state=Worker.DRAINING, drain_by="duty", drain_reason="new host"),),
            ),
            "draining",
            "act",
            "drains and starts nothing more: one@host:7, asked by duty: new host",
            {"workers": ["one@host:7"]},
            "acklast run --lane work",
        ),
        (
            case(QUEUED, workers=(WORKER, replace(WORKER, version="2.0"))),
            "versions",
            "nothing",
            "daemons of several versions serve lane work: 1.0 (acklast 9), 2.0 (acklast 9)",
            {},
            "workers",
        ),
        (
            case(QUEUED, rules=None),
            "not_configured",
            "nothing",
            "lane work is not in this configuration",
            {},
            None,
        ),
        (
            case(QUEUED, blind="no broker answers"),
            "broker_unseen",
            "act",
            "could not be seen: no broker answers",
            {},
            "check",
        ),
        (
            case(DONE, strays=(STRAY,)),
            "key_conflict",
            "act",
            "set aside as key_conflict at 01:59:55Z: another body",
            {"letter": 31},
            "dead show 31",
        ),
    ],
)
def test_each_reason_has_its_evidence_and_what_helps(
    made: Case, code: str, need: str, says: str, evidence: Mapping[str, Any], helps: str | None
) -> None:
    reasons = {reason.code: reason for reason in answer(made).reasons}
    assert code in reasons, [*reasons]
    reason = reasons[code]
    assert (reason.need, says in reason.says) == (need, True), reason
    assert evidence.items() <= dict(reason.evidence).items(), reason.evidence
    assert helps is None if reason.helps is None else helps is not None and helps in reason.helps
    assert fits(reason.helps), reason.helps


def test_a_job_that_runs_or_is_over_asks_its_lane_nothing() -> None:
    """A paused lane does not keep a job from running that runs."""
    paused = replace(QUIET_LANE, paused=pause(Target.LANE, LANE))
    for made in (case(DONE, paused), case(CLAIMED, paused, claimer=claimer(live=True))):
        found = answer(made)
        assert len(found.reasons) == 1
        assert (found.need, found.position) == (Need.NOTHING, None)
        assert exit_of([found]) == Exit.OK


def test_a_few_others_do_not_tell_what_is_usual() -> None:
    few = case(CLAIMED, claimer=claimer(live=True), usual=Usual(19, 0.25, 3.0))
    assert [reason.code for reason in answer(few).reasons] == ["running_now"]


def test_what_asks_for_somebody_comes_first() -> None:
    found = answer(case(RETRY, replace(QUIET_LANE, daemons=()), claims=2))
    assert [reason.code for reason in found.reasons] == ["no_daemon", "retry"]
    assert (found.need, exit_of([found])) == (Need.ACT, Exit.UNFIT)
    assert answer(case(RETRY, claims=2)).need is Need.WAIT


def test_a_place_is_told_only_of_what_is_due() -> None:
    busy = replace(QUIET_LANE, queues=Queues(8, 3), daemons=(replace(DAEMON, held=2, started=60),))
    assert answer(case(QUEUED, busy)).position == Position(9, 1.0, within(9), "fifo")
    assert answer(case(RETRY, busy, claims=2)).position is None
    assert answer(case(QUEUED, busy, promises=(PROMISE,))).position is None


@pytest.mark.parametrize(
    ("made", "worth"),
    [
        (case(replace(QUEUED, enqueued_at=ago(900))), True),
        (case(replace(RETRY, available_at=ago(900)), claims=1), True),
        (case(replace(CLAIMED, claimed_at=ago(900)), claimer=claimer(live=False, ended_s=800)), True),
        (case(QUEUED), False),
        (case(RETRY, claims=1), False),
        (case(DONE), False),
        (case(replace(QUEUED, enqueued_at=ago(900)), sent_at=ago(5)), False),
        (case(replace(QUEUED, enqueued_at=ago(900)), replace(QUIET_LANE, queues=Queues(0, 3))), False),
        (
            case(replace(QUEUED, enqueued_at=ago(900)), replace(QUIET_LANE, queues=Queues(0, 3)), claims=1),
            True,
        ),
        (case(replace(QUEUED, enqueued_at=ago(900)), promises=(PROMISE,)), False),
        (case(replace(QUEUED, enqueued_at=ago(900)), replace(QUIET_LANE, queues=Queues(1, 0))), False),
        (case(replace(QUEUED, enqueued_at=ago(900)), replace(QUIET_LANE, queues=Queues(None, None))), False),
    ],
)
def test_only_what_looks_lost_is_looked_for(made: Case, worth: bool) -> None:
    assert suspicious(made) is worth


def test_the_pace_is_what_was_measured_and_none_where_the_lane_stands_still() -> None:
    busy = replace(QUIET_LANE, queues=Queues(121, 0), daemons=(replace(DAEMON, started=600),))
    held = Binding(Constraint.BUDGET, "95 of 100 permits are in use", {"used": 0.95})
    found = answer(case(QUEUED, busy, per_s=4.0, holds=held))
    assert found.position == Position(120, 4.0, within(30), "fifo")
    [behind] = [reason for reason in found.reasons if reason.code == "behind"]
    assert "what holds the lane back: 95 of 100 permits are in use" in behind.says
    assert (behind.evidence["binding"], behind.evidence["figures"]) == ("budget", {"used": 0.95})
    stopped = answer(case(QUEUED, replace(busy, paused=pause(Target.LANE, LANE)), per_s=4.0)).position
    assert stopped is not None
    assert (stopped.ahead, stopped.starts_at) == (120, None)


def test_an_uncertain_reason_says_so() -> None:
    def of(made: Case) -> Mapping[str, Reason]:
        return {reason.code: reason for reason in answer(made).reasons}

    lost = case(replace(QUEUED, enqueued_at=ago(900)), proof=Proof(looked=True, absent=True))
    assert of(lost)["lost"].certain
    assert not of(replace(lost, proof=Proof(looked=True)))["maybe_lost"].certain
    assert not of(case(QUEUED))["due"].certain


def test_workers_that_have_gone_are_no_version_of_now() -> None:
    gone: WorkerView = replace(WORKER, state=Worker.SILENT, version="0.9")
    assert "versions" not in {one.code for one in answer(case(QUEUED, workers=(WORKER, gone))).reasons}
