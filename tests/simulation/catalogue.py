"""The scenarios that every kind of fault is tried on, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from acklast.ledger.api import State
from acklast.policy import OnUnknown
from simulation.scenario import POLICY, Post, Scenario

_DONE: Final = frozenset({State.DONE})
_DEAD: Final = frozenset({State.DEAD})
_HELD: Final = frozenset({State.UNRESOLVED})
_STOPPED: Final = frozenset({State.CANCELLED})
_RUN: Final = {"run": "r"}
HOLD: Final = replace(POLICY, on_unknown=OnUnknown.HOLD)
RECONCILE: Final = replace(POLICY, on_unknown=OnUnknown.RECONCILE)
TWO_TRIES: Final = replace(POLICY, max_attempts=2)


def one(*acts: str, ends: frozenset[State] = _DONE) -> tuple[Post, ...]:
    return (Post("a", acts, ends=ends),)


CATALOGUE: Final = {
    "success": Scenario(one("do")),
    "success in one transaction": Scenario(one("commit")),
    "slow success": Scenario(one("do slowly")),
    "slower the second time": Scenario(one("do", "do slowly")),
    "retry": Scenario(one("transient", "do")),
    "attempts used up": Scenario(one("transient", ends=_DEAD | _DONE), TWO_TRIES),
    "rate limited": Scenario(one("limited", "do")),
    "bury": Scenario(one("permanent", ends=_DEAD)),
    "unknown, then retry": Scenario(one("unknown", "do")),
    "unknown, in one transaction": Scenario(one("unknown", "commit")),
    "timeout, then retry": Scenario(one("hang", "do")),
    "the handler kills the process": Scenario(one("crash", ends=_DEAD)),
    "hold: success": Scenario(one("do", ends=_DONE | _HELD), HOLD),
    "hold: unknown": Scenario(one("unknown", ends=_HELD), HOLD),
    "hold: retry": Scenario(one("transient", "do", ends=_DONE | _HELD), HOLD),
    "hold: in one transaction": Scenario(one("commit", ends=_DONE | _HELD), HOLD),
    "reconcile: success": Scenario(one("do"), RECONCILE, reconcile="truth"),
    "reconcile: unknown": Scenario(one("unknown", "do"), RECONCILE, reconcile="truth"),
    "reconcile: after a crash": Scenario(one("crash", "do"), RECONCILE, reconcile="truth"),
    "reconcile: under a quota": Scenario(
        (Post("a", ("crash", "do"), deadline_s=30, ends=_DONE | _DEAD), Post("b", ("crash", "do"))),
        RECONCILE,
        reconcile="truth",
        quota=(1, 20.0),
    ),
    "reconcile: retry": Scenario(one("transient", "do"), RECONCILE, reconcile="truth"),
    "reconcile: cannot tell": Scenario(
        one("unknown", "do", ends=_DONE | _HELD), replace(RECONCILE, max_attempts=2), reconcile="shrug"
    ),
    "reconcile: has none": Scenario(one("do", ends=_DONE | _HELD), RECONCILE),
    "published twice": Scenario((Post("a"), Post("a", at_s=0.5))),
    "published twice while slow": Scenario((Post("a", ("do slowly",)), Post("a", at_s=2))),
    "published twice, two processes": Scenario((Post("a", ("do slowly",)), Post("a", at_s=2)), processes=2),
    "same key, other content": Scenario((Post("a"), Post("a", body=b"[]", at_s=0.5))),
    "malformed": Scenario((Post("m", headers={"deadline": "soon"}), Post("a"))),
    "no such type": Scenario((Post("a", type="other.v1", ends=_DEAD),)),
    "not before": Scenario((Post("a", not_before_s=7),)),
    "past its deadline": Scenario((Post("a", deadline_s=-1, ends=_DEAD),)),
    "deadline before the retry": Scenario((Post("a", ("limited", "do"), deadline_s=3, ends=_DEAD | _DONE),)),
    "cancelled while it runs": Scenario(
        one("do slowly", ends=frozenset({State.CANCELLED, State.DONE})), cancel="a"
    ),
    "its run is cancelled": Scenario(
        (
            Post("a", ("do slowly",), headers=_RUN, ends=_DONE | _HELD | _STOPPED),
            Post("b", ("limited", "do"), headers=_RUN, ends=_DONE | _HELD | _STOPPED),
            Post("c", at_s=3, headers=_RUN, ends=_STOPPED),
            Post("d"),
            Post("e", ("transient slowly", "do"), headers=_RUN, ends=_DONE | _HELD | _STOPPED),
        ),
        cancel_run="r",
    ),
    "its run is cancelled after an unknown": Scenario(
        (Post("a", ("unknown", "do"), headers=_RUN, ends=_DONE | _HELD | _STOPPED),), cancel_run="r"
    ),
    "reconcile: its run is cancelled": Scenario(
        (
            Post("a", ("unknown", "do"), headers=_RUN, ends=_DONE | _DEAD | _STOPPED),
            Post("b", ("crash", "do"), headers=_RUN, ends=_DONE | _DEAD | _STOPPED),
        ),
        RECONCILE,
        reconcile="truth",
        cancel_run="r",
    ),
    "under a quota": Scenario((Post("a"), Post("b"), Post("c")), quota=(1, 2.0)),
    "one slot, two jobs": Scenario((Post("a", ("do slowly",)), Post("b")), concurrency=1),
    "two processes": Scenario((Post("a"), Post("b", ("transient", "do"))), processes=2),
}
