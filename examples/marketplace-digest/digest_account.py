"""What the demo proves: every mail by the provider's word and the ledger's, and what must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the sources say when all is over."""

    digests: frozenset[str]
    """The keys of the digests that the marketplace's table asks for."""
    receipts: frozenset[str]
    """Those of the receipts."""
    jobs: Mapping[str, Mapping[str, Any]]
    """Every job by its key: state, lane, recorded_at."""
    runs: Mapping[str, Mapping[str, Any]]
    """``acklast runs show --json`` of each run, by the schedule."""
    digest: Mapping[str, Any]
    """The digest's firing, as ``acklast schedule history --json`` has it."""
    pages_at_kill: int
    again: Mapping[str, Any]
    """What ``acklast schedule fire --json`` said when it was asked once more."""
    redriven: Mapping[str, Any]
    """The redrive of what a wrong list refused, as ``acklast redrive status --json`` has it at its end."""
    api: Mapping[str, Any]
    """The mail provider's report."""
    exits: tuple[int, ...]
    """Of the daemon and of the scheduler."""

    def last(self, keys: frozenset[str]) -> str:
        """When the last of these was recorded."""
        return max(str(self.jobs[key]["recorded_at"]) for key in keys)

    def gone(self) -> list[str]:
        """The digests whose address the provider calls gone."""
        return [key for key in self.digests if 410 in self.api["keys"][key]["statuses"]]


Invariant: TypeAlias = Callable[[Evidence], Iterator[str]]


def each_row_is_a_job(found: Evidence) -> Iterator[str]:
    """Every row is one job of its run, every job is done, and both runs balance."""
    for schedule, run in found.runs.items():
        wanted = len(found.digests if schedule == "weekly-digest" else found.receipts)
        if not run["balanced"] or (run["manifest"], run["counts"]["done"]) != (wanted, wanted):
            yield f"{schedule}: {run['proof']}, {wanted} rows"
    if missing := (found.digests | found.receipts) - found.jobs.keys():
        yield f"no job: {sorted(missing)[:3]}"


def the_firing_went_on(found: Evidence) -> Iterator[str]:
    """The firing was killed half-way, and the scheduler went on behind its last page."""
    one = found.digest
    if not 0 < found.pages_at_kill < one["pages"]:
        yield f"killed after {found.pages_at_kill} of {one['pages']} pages"
    if (one["state"], one["promised"], one["known"]) != ("done", len(found.digests), 0):
        yield f"{one['state']}: {one['promised']} promised, {one['known']} known before"


def what_was_mended_was_sent(found: Evidence) -> Iterator[str]:
    """What a wrong list had refused was tried again once it was mended, one first, and is done."""
    one = found.redriven
    if (one["status"], one["done"]) != ("finished", one["letters"]) or one["steps"][0] != 1:
        yield f"{one['status']}: {one['done']} of {one['letters']} done, in steps of {one['steps']}"


def once_is_once(found: Evidence) -> Iterator[str]:
    """Asked once more, the schedule did not fire again."""
    if found.again["new"] or found.again["firing"]["promised"] != len(found.digests):
        yield str(found.again)


def nobody_twice(found: Evidence) -> Iterator[str]:
    """Nobody got a mail twice."""
    for key, seen in found.api["keys"].items():
        if seen["sent"] > 1:
            yield f"{key} was sent {seen['sent']} times"


def quota_held(found: Evidence) -> Iterator[str]:
    """No window at the provider's meter held more calls than the quota, of both lanes together."""
    statuses = Counter(status for seen in found.api["keys"].values() for status in seen["statuses"])
    if found.api["worst_window"] > found.api["quota"] or statuses[429]:
        yield f"{found.api['worst_window']} calls in a window, {statuses[429]} refused"


def receipts_came_first(found: Evidence) -> Iterator[str]:
    """The receipts did not wait for the digests, which were there before them."""
    if found.last(found.receipts) >= found.last(found.digests):
        yield f"receipts until {found.last(found.receipts)}, digests until {found.last(found.digests)}"


def who_is_gone_is_told(found: Evidence) -> Iterator[str]:
    """For each address that is gone one notice was sent to the other one."""
    for key in found.gone():
        notice = f"{key}:notice"
        if notice not in found.jobs or found.api["keys"].get(notice, {}).get("sent") != 1:
            yield f"{notice} is missing"
    if not found.gone():
        yield "no address was gone, so nothing is proved"


def all_stopped_well(found: Evidence) -> Iterator[str]:
    """Daemon and scheduler stopped cleanly."""
    if any(found.exits):
        yield f"exit codes {found.exits}"


INVARIANTS: Final[tuple[Invariant, ...]] = (
    each_row_is_a_job,
    the_firing_went_on,
    what_was_mended_was_sent,
    once_is_once,
    nobody_twice,
    quota_held,
    receipts_came_first,
    who_is_gone_is_told,
    all_stopped_well,
)


def summary(found: Evidence) -> Iterator[tuple[str, int, str]]:
    """What happened: what, how often, and who says so."""
    statuses = Counter(status for seen in found.api["keys"].values() for status in seen["statuses"])
    yield "digests in the run", found.runs["weekly-digest"]["manifest"], "ledger"
    yield "  pages before the kill", found.pages_at_kill, "ledger"
    yield "  pages in all", found.digest["pages"], "ledger"
    yield "  dead by a wrong list, and redriven", found.redriven["done"], "ledger"
    yield "receipts in the run", found.runs["payout-receipts"]["manifest"], "ledger"
    yield "notices that followed", len(found.jobs) - len(found.digests) - len(found.receipts), "ledger"
    yield "mails sent", sum(seen["sent"] for seen in found.api["keys"].values()), "mail API"
    for status, count in sorted(statuses.items()):
        yield f"  answered {status}", count, "mail API"
    yield f"most calls in any window (of {found.api['quota']})", found.api["worst_window"], "mail API"
