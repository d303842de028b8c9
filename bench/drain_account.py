"""What drains under load come to: what was lost, came twice, or was charged for an interruption. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.contenders.drain_lanes import CALL, EFFECT, FAILED, LIMITED
from bench.stats import quantile


@dataclass(frozen=True, slots=True)
class Note:
    """What a handler wrote down."""

    what: str
    key: str


@dataclass(frozen=True, slots=True)
class Row:
    """A job as the ledger has it at the end."""

    lane: str
    key: str
    state: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Drain:
    """One drain: what the process said last, and how it ended. Times are in seconds."""

    kind: str
    code: int
    took_s: float
    """From the signal to the end of the process."""
    deadline_s: float
    last: str
    """The event of its last line."""
    receipt: Mapping[str, float]

    @property
    def in_time(self) -> bool:
        """Whether the process had ended by the deadline, with all its work done."""
        return self.took_s <= self.deadline_s and not self.receipt.get("cut")

    @property
    def wrong(self) -> str:
        """What is not as it must be; nothing where all is well."""
        said = {
            f"exit code {self.code}": self.code != 0,
            f"{self.took_s:.1f} s": not self.in_time,
            f"its last line is {self.last}": self.last != "drain.receipt",
            f"unknown: {self.receipt.get('unknown')}": self.receipt.get("unknown") != 0,
            f"left: {self.receipt.get('left')}": self.receipt.get("left") != 0,
        }
        return ", ".join(what for what, so in said.items() if so)


@dataclass(frozen=True, slots=True)
class Lane:
    """What became of one lane's jobs."""

    jobs: int
    lost: int
    """Confirmed to their publisher, and without an effect or not done in the ledger."""
    second: int
    """Effects beyond the first of their key."""
    failures: int
    """Attempts that failed by the handler's own word."""
    spent: int
    """Attempts by the ledger's word beyond those and the one that did it."""
    unfinished: int
    """Calls that came to nothing: cut."""


def lane_of(confirmed: Iterable[str], notes: Iterable[Note], rows: Iterable[Row]) -> Lane:
    """Judge one lane; all three are of that lane alone."""
    keys = set(confirmed)
    counted = Counter((note.what, note.key) for note in notes)
    by_what = {what: Counter[str]() for what in (CALL, EFFECT, FAILED, LIMITED)}
    for (what, key), count in counted.items():
        by_what[what][key] += count
    effects, failed = by_what[EFFECT], by_what[FAILED]
    ledger = {row.key: row for row in rows}
    done = {key for key, row in ledger.items() if row.state == "done"}
    return Lane(
        jobs=len(keys),
        lost=len(keys - (done & effects.keys())),
        second=sum(effects.values()) - len(effects),
        failures=failed.total(),
        spent=sum(max(0, ledger[key].attempts - failed[key] - 1) for key in done),
        unfinished=by_what[CALL].total() - sum(by_what[what].total() for what in (EFFECT, FAILED, LIMITED)),
    )


def notes_of(text: str) -> list[Note]:
    """The notes that a file of them holds."""
    return [Note(what, key) for what, key, *_ in (line.split() for line in text.splitlines())]


def wrong_with(lanes: Mapping[str, Lane], drains: Sequence[Drain]) -> list[str]:
    """Everything that is not as it must be."""
    said = [f"drain {number} ({one.kind}): {one.wrong}" for number, one in enumerate(drains, 1) if one.wrong]
    for name, lane in lanes.items():
        said += [f"{name}: {lane.lost} of {lane.jobs} lost"] if lane.lost else []
        said += [f"{name}: {lane.second} second effects"] if lane.second else []
        said += [f"{name}: {lane.spent} attempts spent on interruption"] if lane.spent else []
        said += [f"{name}: {lane.unfinished} calls were cut"] if lane.unfinished else []
    return said


def summary(drains: Sequence[Drain]) -> tuple[str, ...]:
    """The cells of a row on these drains: how many, in time, seconds, what they did, exit codes."""
    took = [one.took_s for one in drains]
    codes = Counter(one.code for one in drains)
    return (
        f"{len(drains)}",
        f"{sum(one.in_time for one in drains)}",
        *(f"{quantile(took, part):.2f}" for part in (0.5, 0.95, 1.0)),
        f"{sum(one.receipt.get('completed', 0) for one in drains):,.0f}",
        f"{sum(one.receipt.get('given_back', 0) for one in drains):,.0f}",
        ", ".join(f"{count} times {code}" for code, count in sorted(codes.items())),
    )
