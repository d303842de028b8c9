"""What the demo proves: each tenant's end, by the mail API's word and the ledger's, and what must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the sources say when all is over."""

    in_time: frozenset[str]
    """Keys of the reminders that had time enough."""
    too_late: frozenset[str]
    """Keys of those whose deadline had passed before the daemon started."""
    jobs: Mapping[str, Mapping[str, Any]]
    """``acklast jobs show --json`` of every key."""
    run: Mapping[str, Any]
    """``acklast runs show --json``."""
    api: Mapping[str, Any]
    """The mail API's report."""
    exit: int
    receipt: Mapping[str, Any]

    def seen(self, key: str) -> Mapping[str, Any]:
        none: Mapping[str, Any] = {"sent": 0, "unanswered": 0, "statuses": []}
        found: Mapping[str, Any] = self.api["keys"].get(key, none)
        return found

    def ended(self, key: str) -> str:
        state: str = self.jobs[key]["state"]
        return state


Invariant: TypeAlias = Callable[[Evidence], Iterator[str]]


def all_accounted(found: Evidence) -> Iterator[str]:
    """Every row is one job, every job has ended, and the run balances."""
    expected = found.in_time | found.too_late
    if expected != found.jobs.keys():
        yield f"{len(expected)} rows, {len(found.jobs)} jobs"
    if not found.run["balanced"] or found.run["open"] or found.run["manifest"] != len(expected):
        yield str(found.run["proof"])


def nobody_twice(found: Evidence) -> Iterator[str]:
    """Nobody is reminded twice."""
    for key, seen in found.api["keys"].items():
        if seen["sent"] > 1:
            yield f"{key} was sent {seen['sent']} times"


def done_was_sent(found: Evidence) -> Iterator[str]:
    """What the ledger calls done was sent, or the tenant has moved out."""
    for key in found.in_time:
        seen = found.seen(key)
        if found.ended(key) == "done" and not seen["sent"] and 410 not in seen["statuses"]:
            yield f"{key} is done and was never sent"


def doubt_is_held(found: Evidence) -> Iterator[str]:
    """A reminder without an answer is held for a person, and nothing else is."""
    for key in found.in_time:
        doubtful = bool(found.seen(key)["unanswered"])
        if doubtful != (found.ended(key) == "unresolved"):
            yield f"{key} is {found.ended(key)}, {found.seen(key)['unanswered']} answers were lost"
    if not any(seen["unanswered"] for seen in found.api["keys"].values()):
        yield "no answer was lost, so nothing is proved"


def late_is_never(found: Evidence) -> Iterator[str]:
    """What came too late was never called for."""
    for key in found.too_late:
        reason = [letter["reason"] for letter in found.jobs[key]["letters"]]
        if found.seen(key)["statuses"] or (found.ended(key), reason) != ("dead", ["deadline_exceeded"]):
            yield f"{key} is {found.ended(key)} {reason}"


def quota_held(found: Evidence) -> Iterator[str]:
    """No window at the API's own meter held more calls than the quota."""
    statuses = Counter(status for seen in found.api["keys"].values() for status in seen["statuses"])
    if found.api["worst_window"] > found.api["quota"] or statuses[429]:
        yield f"{found.api['worst_window']} calls in a window, {statuses[429]} refused"


def outage_was_cheap(found: Evidence) -> Iterator[str]:
    """The outage cost a few calls, not an attempt of every job."""
    if not 0 < found.api["outage_calls"] <= OUTAGE_CALLS:
        yield f"{found.api['outage_calls']} calls during the outage"


def keys_went_along(found: Evidence) -> Iterator[str]:
    """Every call carried its job's key."""
    unknown = found.api["keys"].keys() - found.in_time
    if found.api["keyless"] or unknown:
        yield f"{found.api['keyless']} calls without a key; unknown: {unknown}"


def drain_cut_nothing(found: Evidence) -> Iterator[str]:
    """The daemon drained and cut nothing."""
    if found.exit or found.receipt.get("cut") is not False:
        yield f"exit code {found.exit}, receipt {dict(found.receipt)}"


OUTAGE_CALLS: Final = 30
"""The five that open the breaker, those under way by then, and a few probes."""

INVARIANTS: Final[tuple[Invariant, ...]] = (
    all_accounted,
    nobody_twice,
    done_was_sent,
    doubt_is_held,
    late_is_never,
    quota_held,
    outage_was_cheap,
    keys_went_along,
    drain_cut_nothing,
)


def name_of(invariant: Invariant) -> str:
    """An invariant in a sentence."""
    return invariant.__doc__ or invariant.__name__


def summary(found: Evidence) -> Iterator[tuple[str, int, str]]:
    """What happened: what, how often, and who says so."""
    statuses = Counter(status for seen in found.api["keys"].values() for status in seen["statuses"])
    states = Counter(job["state"] for job in found.jobs.values())
    yield "reminders in the run", len(found.jobs), "ledger"
    for state, count in sorted(states.items()):
        yield f"  {state}", count, "ledger"
    yield "messages sent", sum(seen["sent"] for seen in found.api["keys"].values()), "mail API"
    for status, count in sorted(statuses.items()):
        yield f"  answered {status}", count, "mail API"
    yield "answers that were lost", sum(seen["unanswered"] for seen in found.api["keys"].values()), "mail API"
    yield f"most calls in any window (of {found.api['quota']})", found.api["worst_window"], "mail API"
    yield "calls during the outage", found.api["outage_calls"], "mail API"
