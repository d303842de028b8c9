"""What the import proves: every row accounted for, by sources that know nothing of each other.

The file says what was to be done, the command what it did with each row, the ledger what became of each job,
and the help desk what it imported. Everything here is a function of what they say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from support_rows import JOBS, Kind, Row

SIGKILLED: Final = -9
_ENDS: Final = {
    Kind.SOUND: "done",
    Kind.CLOSED: "dead: account_closed",
    Kind.INVALID: "dead: invalid_payload",
}


@dataclass(frozen=True)
class Evidence:
    """What the sources say when all is over."""

    run: str
    rows: Sequence[Row]
    dry: Mapping[str, Any]
    """The summary of the dry run, before anything was done."""
    killed: int
    """How the first enqueue ended: minus the signal."""
    published: int
    """Messages in the lane's queue when it was dead."""
    enqueued: Mapping[str, Any]
    """The summary of the enqueue that was repeated."""
    refused: Sequence[Mapping[str, Any]]
    """The lines of its report."""
    account: Mapping[str, Any]
    """``acklast runs show RUN --json``."""
    items: Sequence[Mapping[str, str]]
    """The rows of ``acklast runs proof``, with the reason of each job."""
    holds: bool
    """What the proof says of its sum."""
    desk: Mapping[str, Any]
    """The help desk's own report."""
    exit: int
    """How the daemon ended."""

    def of(self, *kinds: Kind) -> list[Row]:
        return [row for row in self.rows if row.kind in kinds]

    @cached_property
    def jobs(self) -> Mapping[str, Row]:
        """The rows that are jobs, by key."""
        return {f"{self.run}:{row.ticket}": row for row in self.rows if row.kind in JOBS}

    def ends(self) -> Counter[str]:
        """Jobs by where they ended."""
        return Counter(end_of(item) for item in self.items)


def end_of(item: Mapping[str, str]) -> str:
    """Where a job ended, in one word or two."""
    return f"{item['state']}: {item['reason']}" if item["state"] == "dead" else item["state"]


# --- the invariants -----------------------------------------------------------------------------------


def dry_run_foresaw(found: Evidence) -> Iterator[str]:
    """The dry run told every fate, and when it would be finished."""
    expected = {
        "accepted": len(found.of(*JOBS)),
        "duplicate": len(found.of(Kind.REPEAT)),
        "conflict": len(found.of(Kind.CONFLICT)),
        "malformed": len(found.of(Kind.MALFORMED)),
    }
    counts = {fate: count for fate, count in found.dry["counts"].items() if count}
    if counts != expected:
        yield f"it told {counts}, the rows are {expected}"
    if not (found.dry["forecast"] or {}).get("finish"):
        yield "it gave no finish"


def died_in_the_middle(found: Evidence) -> Iterator[str]:
    """The first enqueue was killed while it published."""
    if found.killed != SIGKILLED:
        yield f"it ended with {found.killed}, not by SIGKILL"
    if not 0 < found.published < len(found.jobs):
        yield f"{found.published} of {len(found.jobs)} jobs were published by then"


def rows_have_fates(found: Evidence) -> Iterator[str]:
    """Repeated, it told the fate of every row, and none was lost."""
    counts = found.enqueued["counts"]
    there = counts["accepted"] + counts["again"] + counts["duplicate"]
    if there != len(found.jobs) + len(found.of(Kind.REPEAT)) or found.enqueued["rows"] != len(found.rows):
        yield f"of {len(found.rows)} rows it told {dict(counts)}"
    told = {(line["line"], line["fate"]) for line in found.refused}
    expected = {(row.line, row.kind.value) for row in found.of(Kind.CONFLICT, Kind.MALFORMED)}
    if told != expected:
        yield f"the report differs in lines {sorted(line for line, _ in told ^ expected)[:5]}"
    texts = {row.line: row.text for row in found.rows}
    for line in found.refused:
        if line["row"] != texts[line["line"]]:
            yield f"line {line['line']} is not in the report as it came"


def one_job_a_row(found: Evidence) -> Iterator[str]:
    """Every row that is a job is one job, and the run balances."""
    keys = Counter(item["key"] for item in found.items)
    if keys != Counter(found.jobs.keys()):
        yield f"{len(keys)} jobs in the ledger, {len(found.jobs)} in the file"
    if not (found.account["balanced"] and found.holds) or found.account["open"]:
        yield f"the run does not balance: {found.account['proof']}"


def ends_fit(found: Evidence) -> Iterator[str]:
    """Every job ended as its row deserves."""
    for item in found.items:
        row = found.jobs.get(item["key"])
        if row is not None and end_of(item) != _ENDS[row.kind]:
            yield f"{item['key']} ended {end_of(item)}, its row deserves {_ENDS[row.kind]}"


def imported_once(found: Evidence) -> Iterator[str]:
    """Every sound ticket was imported once, and nothing else was."""
    for key, row in found.jobs.items():
        times = found.desk["keys"].get(key, {}).get("imported", 0)
        if times != (row.kind is Kind.SOUND):
            yield f"{key} ({row.kind}) was imported {times} times"
    for key in found.desk["keys"].keys() - found.jobs.keys():
        yield f"{key} was called for and is in no row of the file"
    if found.desk["keyless"]:
        yield f"{found.desk['keyless']} calls came without a key"


def outage_spent_nothing(found: Evidence) -> Iterator[str]:
    """There was an outage, and its refusals spent no attempt: one counts for each job."""
    if not found.desk["outage_calls"]:
        yield "no call came into the outage"
    for item in found.items:
        if item["state"] == "done" and item["attempts"] != "1":
            yield f"{item['key']} took {item['attempts']} attempts"


def quota_was_kept(found: Evidence) -> Iterator[str]:
    """No window of the help desk's meter held more calls than its quota."""
    if found.desk["worst_window"] > found.desk["quota"]:
        yield f"{found.desk['worst_window']} calls in one window, {found.desk['quota']} are allowed"


def drain_cut_nothing(found: Evidence) -> Iterator[str]:
    """The daemon drained and cut nothing."""
    if found.exit:
        yield f"it ended with {found.exit}"


Invariant: TypeAlias = Callable[[Evidence], Iterator[str]]
INVARIANTS: Final[tuple[Invariant, ...]] = (
    dry_run_foresaw,
    died_in_the_middle,
    rows_have_fates,
    one_job_a_row,
    ends_fit,
    imported_once,
    outage_spent_nothing,
    quota_was_kept,
    drain_cut_nothing,
)


def summary(found: Evidence) -> Iterator[tuple[str, int, str]]:
    """What happened: what, how many, and who says so."""
    yield "rows", len(found.rows), "the file"
    yield "published when the first enqueue was killed", found.published, "the broker"
    for fate in ("accepted", "again", "duplicate", "conflict", "malformed"):
        yield f"rows {fate} when it was repeated", found.enqueued["counts"][fate], "acklast enqueue"
    for end, count in found.ends().most_common():
        yield f"jobs {end}", count, "the ledger"
    imported = [account["imported"] for account in found.desk["keys"].values()]
    yield "tickets imported", sum(imported), "the help desk"
    yield "calls refused in the outage", found.desk["outage_calls"], "the help desk"
