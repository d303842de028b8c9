"""What may be said of a key without a job: never more than the evidence has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from acklast.cli.why import exit_of
from acklast.cli.why_absent import absent
from acklast.cli.why_reason import Absent, Expected, Need
from acklast.errors import Exit
from acklast.ledger.whereabouts import Fired, JobFacts, Known, Promise, Stray
from harness.controls import AT
from harness.why import LANE, VIEW, fits

MINUTE = timedelta(minutes=1)
NOTHING = Known(AT, "k")
PROMISE = Promise(9, LANE, None, AT - MINUTE, AT - MINUTE, 0, None, 0)
TYPO = Stray(31, "wrok", "unrouted", "no lane is bound for routing key 'wrok'", "wrok", AT - MINUTE, 1)
BROKEN = Stray(32, LANE, "invalid_payload", "no object", LANE, AT - MINUTE, 2)
FIRED = Fired("daily", "daily-2026-01-01", "open", AT - MINUTE, AT, 100, 90, 3, 0, None)
JOB = JobFacts(VIEW, 0, None, None, False, None, None)


def case(known: Known = NOTHING, **more: Any) -> Absent:
    return Absent(known, more.pop("wanted", None), more.pop("ready", {LANE: 0, "other": 0}), **more)


@pytest.mark.parametrize(
    ("made", "code", "certain", "says", "evidence"),
    [
        (
            case(),
            "unknown",
            False,
            "in any lane: no message is seen waiting",
            {"ready": {LANE: 0, "other": 0}},
        ),
        (
            case(ready={LANE: 1200, "other": 4}),
            "unknown",
            False,
            "either it was not published, or it is still in the broker's queue behind 1,204 messages "
            "(a queue of the broker cannot be searched), or under another key, lane or namespace",
            {},
        ),
        (
            case(ready={LANE: 7, "other": 4}, wanted=LANE),
            "unknown",
            False,
            "lane work: either it was not published, or it is still in the broker's queue behind 7 messages",
            {"lane": LANE, "ready": {LANE: 7}},
        ),
        (
            case(ready={LANE: None}),
            "unknown",
            False,
            "it is still in the broker's queue which could not be seen",
            {"unseen": [LANE]},
        ),
        (
            case(replace(NOTHING, strays=(TYPO,))),
            "unrouted",
            True,
            "came by routing key 'wrok' at 01:59:00Z, for which no lane is bound: a typo, mostly. "
            "The lanes are: other, work",
            {"letter": 31, "routing_key": "wrok"},
        ),
        (
            case(replace(NOTHING, strays=(BROKEN,))),
            "set_aside",
            True,
            "came to lane work and was set aside at 01:59:00Z as invalid_payload: no object. It has no job",
            {"letter": 32, "seen": 2},
        ),
        (
            case(replace(NOTHING, promises=(PROMISE,), oldest_due=AT - MINUTE)),
            "unpublished",
            True,
            "no relay takes what is due",
            {"row": 9},
        ),
        (
            case(expected=(Expected("daily", "daily-2026-01-02", AT + 60 * MINUTE),)),
            "not_fired",
            False,
            "schedule daily makes run daily-2026-01-02 at 03:00:00Z: it has not fired",
            {"run": "daily-2026-01-02"},
        ),
        (
            case(expected=(Expected("daily", "daily-2026-01-02", AT + MINUTE, "duty", "no data"),)),
            "not_fired",
            False,
            "it has not fired, and is paused by duty: no data",
            {"paused_by": "duty"},
        ),
        (
            case(replace(NOTHING, firings=(FIRED,))),
            "firing",
            False,
            "is still at work (100 rows read, 90 jobs promised): this key may come yet",
            {"state": "open"},
        ),
        (
            case(replace(NOTHING, firings=(replace(FIRED, state="failed", error="no such table"),))),
            "firing_failed",
            False,
            "and gave up: no such table",
            {"error": "no such table"},
        ),
        (
            case(replace(NOTHING, firings=(replace(FIRED, state="done"),))),
            "not_in_firing",
            False,
            "3 of them bad): no row made a job of this key",
            {"bad": 3},
        ),
        (
            case(replace(NOTHING, jobs=(JOB,)), wanted="other"),
            "other_lane",
            True,
            "and not in lane other: it is in work",
            {"lanes": [LANE]},
        ),
        (
            case(unfiled=3),
            "unfiled",
            False,
            "3 messages that no lane is bound for wait to be taken in",
            {"messages": 3},
        ),
        (
            case(blind="no broker"),
            "broker_unseen",
            True,
            "could not be seen: no broker",
            {"error": "no broker"},
        ),
    ],
)
def test_where_it_may_be(
    made: Absent, code: str, certain: bool, says: str, evidence: Mapping[str, Any]
) -> None:
    reasons = {reason.code: reason for reason in absent(made).reasons}
    assert code in reasons, [*reasons]
    reason = reasons[code]
    assert (says in reason.says, reason.certain) == (True, certain), reason
    assert evidence.items() <= dict(reason.evidence).items(), reason.evidence
    assert fits(reason.helps), reason.helps


def test_what_is_proven_leaves_no_room_for_a_guess() -> None:
    for known in (replace(NOTHING, strays=(TYPO,)), replace(NOTHING, promises=(PROMISE,))):
        assert "unknown" not in {reason.code for reason in absent(case(known, unfiled=2)).reasons}
    unsure = absent(case(replace(NOTHING, firings=(FIRED,))))
    assert {reason.code for reason in unsure.reasons} == {"firing", "unknown"}


def test_a_promise_of_another_lane_is_none_of_this_one() -> None:
    found = absent(case(replace(NOTHING, promises=(PROMISE,), strays=(BROKEN,)), wanted="other"))
    assert [reason.code for reason in found.reasons] == ["unknown"]


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (case(), Exit.NOT_FOUND),
        (case(unfiled=1), Exit.NOT_FOUND),
        (case(replace(NOTHING, jobs=(JOB,)), wanted="other"), Exit.NOT_FOUND),
        (case(replace(NOTHING, strays=(TYPO,))), Exit.UNFIT),
        (case(replace(NOTHING, promises=(PROMISE,), oldest_due=AT)), Exit.OK),
        (case(expected=(Expected("daily", "daily-2026-01-02", AT + MINUTE),)), Exit.OK),
    ],
)
def test_the_exit_code_tells_whether_somebody_is_needed(made: Absent, code: Exit) -> None:
    assert exit_of([absent(made)]) == code


def test_unfiled_messages_need_a_daemon() -> None:
    assert {one.code: one for one in absent(case(unfiled=1)).reasons}["unfiled"].need is Need.ACT
    assert {one.code: one for one in absent(case(unfiled=1, daemons=2)).reasons}["unfiled"].need is Need.WAIT
