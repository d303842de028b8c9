"""What the demo proves: every row accounted for, by three sources that know nothing of each other.

The file says what was to be done, the property API's report what was done, the ledger what became of each
job. Everything here is a function of what they say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, Final, TypeAlias

Row: TypeAlias = Mapping[str, str]
Job: TypeAlias = Mapping[str, Any]
"""One job as ``acklast jobs show KEY --json`` gives it."""

SIGKILLED: Final = -9
LEGAL_HOLD_FROM: Final = 90_000
_TASKS: Final = {"clean", "clear_out", "garden", "paint"}
_NO_ACCOUNT: Final[Mapping[str, Any]] = {"requests": 0, "effects": 0, "said_key": 0, "statuses": []}


@dataclass(frozen=True)
class Evidence:
    """What the sources say when all is over."""

    run: str
    rows: Sequence[Row]
    """The file's."""
    enqueued: Mapping[str, int]
    """Fates of the rows, as ``acklast enqueue --json`` counts them."""
    account: Mapping[str, Any]
    """``acklast runs show RUN --json``."""
    jobs: Mapping[str, Job]
    """The ledger's jobs, by key."""
    api: Mapping[str, Any]
    """The property API's own report."""
    killed: int
    """How the first daemon ended: minus the signal."""
    effects_before: int
    """Effects of the run when it was killed."""
    exit: int
    """How the second daemon ended."""
    receipt: Mapping[str, Any]
    """The second daemon's drain receipt."""

    @cached_property
    def expected(self) -> Mapping[str, Row]:
        """The first row of each key: one job each."""
        first: dict[str, Row] = {}
        for row in self.rows:
            first.setdefault(f"{self.run}:{row['property_id']}", row)
        return first

    @cached_property
    def calls(self) -> Mapping[str, Mapping[str, Any]]:
        """The API's account of each key of this run; other clients' keys are none of ours."""
        return {key: seen for key, seen in self.api["keys"].items() if key.startswith(f"{self.run}:")}

    def seen(self, key: str) -> Mapping[str, Any]:
        """The API's account of one key, all zero where it never heard of it."""
        return self.calls.get(key, _NO_ACCOUNT)

    def crashed(self, key: str) -> int:
        """Attempts of a job that a crash took, as the ledger has them."""
        return [attempt["outcome"] for attempt in self.jobs[key]["history"]].count("crashed")

    def ends(self) -> Counter[str]:
        """Jobs by where they ended: ``done``, ``dead: order_refused``."""
        return Counter(said(job["state"], job["reason"]) for job in self.jobs.values())


def said(state: str, reason: str | None) -> str:
    """A job's end in one word or two."""
    return f"{state}: {reason}" if state in ("dead", "unresolved") else state


# --- what must become of a row ------------------------------------------------------------------------


def end_of(row: Row) -> str:
    """Where this row's job must end. Written from the file's rules: it shares no code with the handler."""
    if not valid(row):
        return "dead: invalid_payload"
    return "dead: order_refused" if number_of(row) >= LEGAL_HOLD_FROM else "done"


def number_of(row: Row) -> int:
    return int(row["property_id"].removeprefix("P-"))


def valid(row: Row) -> bool:
    """Whether a row says something that can be ordered."""
    try:
        vacated_on, ready_by = date.fromisoformat(row["vacated_on"]), date.fromisoformat(row["ready_by"])
        rooms, budget_cents = int(row["rooms"]), int(row["budget_cents"])
    except ValueError:
        return False
    return (
        row["task"] in _TASKS
        and 1 <= rooms <= 40
        and 0 < budget_cents <= 1_000_000
        and vacated_on <= ready_by
    )


# --- the invariants -----------------------------------------------------------------------------------


def rows_are_jobs(found: Evidence) -> Iterator[str]:
    """Every row of the file is one job, or the repeat of one."""
    unique, repeats = len(found.expected), len(found.rows) - len(found.expected)
    fates = {fate: count for fate, count in found.enqueued.items() if count}
    if fates != {"accepted": unique, "duplicate": repeats}:
        yield f"{len(found.rows)} rows with {unique} keys were enqueued as {fates}"
    for key in sorted(found.expected.keys() ^ found.jobs.keys()):
        yield f"{key} is {'not in the ledger' if key in found.expected else 'in no row of the file'}"


def states_add_up(found: Evidence) -> Iterator[str]:
    """Every promised job is in exactly one state, and none is open."""
    account = found.account
    if not account["balanced"] or account["manifest"] != len(found.expected):
        yield f"the run does not balance: {account['proof']}"
    if account["open"]:
        yield f"{account['open']} jobs are still open"
    states = Counter(job["state"] for job in found.jobs.values())
    counts = {state: count for state, count in account["counts"].items() if count}
    if counts != dict(states):
        yield f"the run counts {counts}, its jobs are {dict(states)}"


def ends_fit(found: Evidence) -> Iterator[str]:
    """Every job ended as its row deserves."""
    for key, job in found.jobs.items():
        if key in found.expected and (end := said(job["state"], job["reason"])) != end_of(
            found.expected[key]
        ):
            yield f"{key} ended {end}, its row deserves {end_of(found.expected[key])}"


def nothing_is_lost(found: Evidence) -> Iterator[str]:
    """Every sound row had its effect, by the API's own count."""
    for key, row in found.expected.items():
        if end_of(row) == "done" and not found.seen(key)["effects"]:
            yield f"{key} never had its effect"


def nothing_repeats(found: Evidence) -> Iterator[str]:
    """No effect repeats outside the crash window."""
    for key, seen in found.calls.items():
        if key in found.jobs and seen["effects"] - 1 > found.crashed(key):
            yield f"{key} had {seen['effects']} effects and {found.crashed(key)} crashed attempts"


def refused_has_no_effect(found: Evidence) -> Iterator[str]:
    """What is dead had no effect."""
    for key, row in found.expected.items():
        if end_of(row) != "done" and found.seen(key)["effects"]:
            yield f"{key} had an effect and must have none ({end_of(row)})"


def calls_are_known(found: Evidence) -> Iterator[str]:
    """Every call belongs to a row and carried its job's key."""
    for key in sorted(found.calls.keys() - found.expected.keys()):
        yield f"{key} was called for and is in no row of the file"
    for key, seen in found.calls.items():
        if seen["said_key"] != seen["requests"]:
            yield f"{key}: {seen['requests'] - seen['said_key']} calls without the key"
    if nameless := [key for key in found.api["keys"] if key.startswith("no key")]:
        yield f"{len(nameless)} properties were called for without a key"


def quota_spends_nothing(found: Evidence) -> Iterator[str]:
    """A 429 spends no attempt: ledger and API agree call by call."""
    for key in found.jobs.keys() & found.expected.keys():
        if found.crashed(key) or not valid(found.expected[key]):
            continue  # the one has a claim more than calls, the other was never called for
        job, statuses = found.jobs[key], found.seen(key)["statuses"]
        refused = statuses.count(429)
        answered = len(statuses) - refused
        if (job["rate_limited"], job["attempts"]) != (refused, answered):
            yield (
                f"{key}: {refused} refusals and {answered} other answers at the API, "
                f"{job['rate_limited']} and {job['attempts']} in the ledger"
            )


def died_half_way(found: Evidence) -> Iterator[str]:
    """The first daemon was killed in the middle of its work."""
    total = sum(end_of(row) == "done" for row in found.expected.values())
    if found.killed != SIGKILLED:
        yield f"it ended with {found.killed}, not by SIGKILL"
    if not 0.25 * total < found.effects_before < 0.75 * total:
        yield f"it was killed after {found.effects_before} of {total} effects"


def drain_cut_nothing(found: Evidence) -> Iterator[str]:
    """The second daemon drained and cut nothing."""
    receipt = found.receipt
    if found.exit or receipt.get("cut") is not False or receipt.get("unknown") or receipt.get("left"):
        yield f"exit code {found.exit}, receipt {dict(receipt)}"


Invariant: TypeAlias = Callable[[Evidence], Iterator[str]]

INVARIANTS: Final[tuple[Invariant, ...]] = (
    rows_are_jobs,
    states_add_up,
    ends_fit,
    nothing_is_lost,
    nothing_repeats,
    refused_has_no_effect,
    calls_are_known,
    quota_spends_nothing,
    died_half_way,
    drain_cut_nothing,
)


def name_of(invariant: Invariant) -> str:
    """An invariant in a sentence."""
    return (invariant.__doc__ or invariant.__name__).splitlines()[0]


def breaches(found: Evidence) -> list[tuple[str, list[str]]]:
    """The invariants that do not hold, each with every case."""
    checked = ((name_of(invariant), list(invariant(found))) for invariant in INVARIANTS)
    return [(name, cases) for name, cases in checked if cases]


# --- what is worth telling ------------------------------------------------------------------------------


def repeats(found: Evidence) -> Iterator[str]:
    """Each key with more than one effect, and the crash window that allows it."""
    for key, seen in found.calls.items():
        if seen["effects"] > 1:
            crashed = [attempt for attempt in found.jobs[key]["history"] if attempt["outcome"] == "crashed"]
            windows = ", ".join(
                f"attempt {attempt['attempt']} of {attempt['worker']} died between its effect and the record"
                for attempt in crashed
            )
            yield f"{key}: {seen['effects']} effects; {windows or 'NO crashed attempt allows it'}"


@dataclass(frozen=True, slots=True)
class Window:
    """The jobs that the killed daemon had claimed and not recorded."""

    claimed: int
    found_done: int
    """Completed by asking the API, without a second call."""
    called_again: int


def window_of(found: Evidence) -> Window:
    """What the crash left in doubt, and how it was decided."""
    in_doubt = [key for key in found.jobs if found.crashed(key)]
    outcomes = {key: [a["outcome"] for a in found.jobs[key]["history"]] for key in in_doubt}
    reconciled = [key for key in in_doubt if "reconciled" in outcomes[key]]
    return Window(
        claimed=len(in_doubt),
        found_done=len(reconciled),
        called_again=len(in_doubt) - len(reconciled),
    )
