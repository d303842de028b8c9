"""What a drill comes to: jobs that were lost, effects that came twice, and how soon work went on. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any, Final

_PER_JOB: Final = frozenset({"job.settled"})
"""Said of every job at every time: not counted as something that a fault makes a daemon say."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect, as the handler noted it. ``at`` is in seconds since the epoch."""

    key: str
    ambiguous: bool
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a daemon's log. ``at`` is in seconds since the epoch."""

    event: str
    at: float
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Account:
    """How a drill ended. Times are in seconds."""

    published: int
    lost: int
    second: int
    """Effects beyond the first of their key, and ``in_window``: those of attempts that were told that the
    effect may have happened already."""
    in_window: int
    again_s: float
    """From the end of the fault until every daemon did jobs again; infinite where one never did."""
    lines: int
    """Log lines of all daemons from the fault until work went on, those of settled jobs not counted."""
    lines_per_s: float
    """The same for one daemon and second."""
    often: tuple[str, int]
    """What was said most, and how often."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outside(self) -> int:
        """Second effects outside of the named window."""
        return self.second - self.in_window


def account(
    confirmed: Iterable[str],
    effects: Sequence[Effect],
    logs: Mapping[int, Sequence[Line]],
    raised_at: float,
    ended_at: float,
) -> Account:
    """Judge a drill. ``logs`` are by the daemons' process ids, all that a process of a place wrote."""
    keys = set(confirmed)
    seen: set[str] = set()
    second = in_window = 0
    for effect in sorted(effects, key=lambda each: each.at):
        if effect.key in seen:
            second += 1
            in_window += effect.ambiguous
        seen.add(effect.key)
    back = [_back(lines, effects, pid, ended_at) for pid, lines in logs.items()]
    again_s = max(back, default=inf)
    until = max(ended_at + min(again_s, 30.0), raised_at + 1.0)
    said = [line for lines in logs.values() for line in lines if _counts(line, raised_at, until)]
    kinds = Counter(line.event for line in said).most_common(1)
    return Account(
        published=len(keys),
        lost=len(keys - seen),
        second=second,
        in_window=in_window,
        again_s=again_s,
        lines=len(said),
        lines_per_s=len(said) / (until - raised_at) / max(1, len(logs)),
        often=kinds[0] if kinds else ("", 0),
    )


def _counts(line: Line, since: float, until: float) -> bool:
    return since <= line.at <= until and line.event not in _PER_JOB


def _back(lines: Sequence[Line], effects: Iterable[Effect], pid: int, ended_at: float) -> float:
    """How long after the fault a daemon did a job again that came over a consumer that lasted.

    A job that was held when its connection died proves nothing, so where a lane was interrupted, only what
    was done after it was last consumed again counts.
    """
    since = ended_at
    for line in lines:
        if line.event == "lane.interrupted":
            since = inf
        elif line.event == "lane.consuming":
            since = max(ended_at, line.at)
    first = min((effect.at for effect in effects if effect.pid == pid and effect.at >= since), default=inf)
    return first - ended_at


def felt_at(logs: Mapping[int, Sequence[Line]], raised_at: float, ended_at: float) -> float:
    """When a fault that is over at once was felt: a lane was interrupted, or nothing was until its end."""
    felt = (line.at for lines in logs.values() for line in lines if line.event == "lane.interrupted")
    return min((at for at in felt if raised_at <= at <= ended_at), default=ended_at)


def lines_of(text: str) -> list[Line]:
    """The lines of a log; what is no JSON is a line too, for whoever counts them."""
    found: list[Line] = []
    last = 0.0
    for raw in text.splitlines():
        try:
            fields = json.loads(raw)
            last = datetime.fromisoformat(fields["timestamp"]).timestamp()
            found.append(Line(fields["event"], last, fields))
        except (ValueError, KeyError, TypeError):
            found.append(Line(raw, last))
    return found


def effects_of(text: str) -> list[Effect]:
    """The effects that a file of them holds."""
    parts = (line.split() for line in text.splitlines())
    return [Effect(key, ambiguous == "1", int(pid), float(at)) for key, ambiguous, pid, at in parts]
