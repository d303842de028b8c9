"""A forecast as people and programs get it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from acklast.cli.output import plain
from acklast.cli.spans import moment, span
from acklast.outlook.cast import BAND, Basis, Finish, Meets, Outlook, Prospect, moment_of

_LANES: Final = ("LANE", "OPEN", "RATE", "FINISHED", "BAND", "BOUND BY")
_RUNS: Final = ("RUN", "OPEN", "FINISHED", "BAND", "DEADLINE", "MARGIN", "", "BOUND BY")
_NUMBERS: Final = ("OPEN", "RATE", "MARGIN")
_ALMOST: Final = timedelta(seconds=1, microseconds=-1)
_WORDS: Final = {Meets.MET: "met", Meets.AT_RISK: "at risk", Meets.MISSED: "missed"}
STYLES: Final = {Meets.MET: "green", Meets.AT_RISK: "yellow", Meets.MISSED: "red"}


def document(found: Outlook, blind: str | None) -> dict[str, Any]:
    """A forecast as ``--json`` gives it. ``blind``: why the broker's queues could not be seen."""
    return {
        "at": plain(found.at),
        "band": BAND,
        "broker": blind,
        "lanes": [entry(one, found.at) for one in found.lanes],
        "runs": [
            {
                "run": one.run,
                **entry(one, found.at),
                "deadline": plain(one.deadline),
                "margin_s": _round(one.margin_s),
                "meets": plain(one.meets),
            }
            for one in found.runs
        ],
    }


def entry(one: Prospect, at: datetime) -> dict[str, Any]:
    """What lanes and runs have in common."""
    finish = one.finish
    return {
        "lane": one.lane,
        "jobs": one.jobs,
        "per_s": one.per_s,
        "starts_per_job": one.starts_per_job,
        "basis": finish.basis.value,
        "why": finish.why or None,
        "finish": plain(moment_of(at, finish.likely_s)),
        "earliest": plain(moment_of(at, finish.low_s)),
        "latest": plain(moment_of(at, finish.high_s)),
        "finish_s": _round(finish.likely_s),
        "earliest_s": finish.low_s,
        "latest_s": finish.high_s,
        "constraint": one.binding.constraint.value,
        "says": one.binding.said,
        "figures": plain(one.binding.figures),
    }


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


# --- for people -------------------------------------------------------------------------------------------

Line = tuple[str, str | None]
"""A line, and its style."""


def lines(found: Outlook, blind: str | None) -> Iterator[Line]:
    """The lanes, each with what holds it back; then the runs, the nearest deadline first."""
    rows = [_lane(one, found.at) for one in found.lanes]
    header, *told = _columns(_LANES, rows)
    if rows:
        yield header, "bold"
    else:  # of a run that was asked for, and is over
        yield "nothing of the run is open: 'acklast runs show' says how it ended", None
    for one, text in zip(found.lanes, told, strict=True):
        yield text, None
        yield f"    {_why(one)}", None
    if found.runs:
        header, *told = _columns(_RUNS, [_run(one, found.at) for one in found.runs])
        yield "", None
        yield header, "bold"
        for one, text in zip(found.runs, told, strict=True):
            yield text, STYLES.get(one.meets) if one.meets else None
    if blind is not None:
        yield f"what waits on the broker could not be seen: {blind}", "red"


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    every = [header, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(header))]
    return ["  ".join(_cell(*one) for one in zip(header, row, widths, strict=True)).rstrip() for row in every]


def _cell(name: str, text: str, width: int) -> str:
    return text.rjust(width) if name in _NUMBERS else text.ljust(width)


def _lane(one: Prospect, at: datetime) -> tuple[str, ...]:
    rate = "-" if one.per_s is None else f"{one.per_s:.3g}/s"
    return one.lane, f"{one.jobs:,}", rate, *_finish(one.finish, at), one.binding.constraint.value


def _run(one: Prospect, at: datetime) -> tuple[str, ...]:
    deadline = "-" if one.deadline is None else here(one.deadline, at)
    return (
        one.run or "",
        f"{one.jobs:,}",
        *_finish(one.finish, at),
        deadline,
        "-" if one.margin_s is None else f"{'-' if one.margin_s < 0 else ''}{span(abs(one.margin_s))}",
        "" if one.meets is None else _WORDS[one.meets],
        f"{one.binding.constraint.value} ({one.lane})",
    )


def _finish(finish: Finish, at: datetime) -> tuple[str, str]:
    likely = moment_of(at, finish.likely_s)
    if likely is None or finish.likely_s is None:
        return "unknown", "-"
    if not finish.likely_s:
        return "now", "-"
    low, high = moment_of(at, finish.low_s), moment_of(at, finish.high_s)
    earliest = "?" if low is None else moment(low, at)
    # A moment is told to its second: the band's end to the one after it, or it would end sooner than it does.
    latest = "?" if high is None else moment(high + _ALMOST, at)
    return f"in {span(finish.likely_s)}, {here(likely, at)}", f"{earliest} to {latest}"


def here(at: datetime, now: datetime) -> str:
    """A moment in UTC, and by the clock of this machine where that is another one."""
    local = at.astimezone()
    return moment(at, now) if not local.utcoffset() else f"{moment(at, now)} ({local:%H:%M} here)"


def _why(one: Prospect) -> str:
    said = one.binding.said
    if one.starts_per_job is not None and one.starts_per_job >= 1.05:
        said += f"; {one.starts_per_job:.2f} starts per job"
    if one.finish.basis is not Basis.MEASURED and one.finish.why and one.binding.said not in one.finish.why:
        said += f"; {one.finish.why}"
    return said
