"""A shot of ``acklast top`` as lines of a terminal, of any width and height: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor
from typing import Final

from rich.console import Group
from rich.text import Text

from acklast.cli.lane_why import State
from acklast.cli.output import safe, text_of
from acklast.cli.spans import moment, span
from acklast.cli.top_view import BudgetRow, LaneRow, RunRow, Shot, Sort
from acklast.ledger.run_status import Status
from acklast.ledger.workers import State as Worker
from acklast.ledger.workers import WorkerView

_STATES: Final = {State.PAUSED: "yellow", State.WAITING: "yellow", State.STOPPED: "red"}
_STATUSES: Final = {Status.LATE: "red", Status.AT_RISK: "yellow", Status.CANCELLING: "dim"}
_WORKERS: Final = {Worker.DRAINING: "yellow", Worker.SILENT: "red", Worker.ENDED: "dim"}
_LEAST: Final = 8
"""What is left at least of the first column where the terminal is narrow."""
_FEW: Final = 2
"""Lines that a part keeps at least: its header, and how many more there are."""


@dataclass(frozen=True, slots=True)
class Part:
    """One table: its header, and blocks of lines that stay together, each with its style."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str]
    notes: Sequence[str]
    """A line below each row; "" for none."""
    right: frozenset[int]
    """Columns that stand to the right."""


def picture(shot: Shot, width: int, height: int | None, *, sort: Sort = Sort.NEED, keys: str = "") -> Group:
    """As many lines as there is room for; ``height`` None: all of them. ``keys`` says what may be pressed."""
    head = _head(shot, sort)
    parts = [part for part in (_lanes(shot), _runs(shot), _budgets(shot), _workers(shot)) if part.rows]
    sizes = [1 + sum(1 + bool(note) for note in part.notes) for part in parts]
    room = None if height is None else height - len(head) - bool(keys) - len(parts)
    lines = list(head)
    for part, size in zip(parts, sizes if room is None else shares(sizes, room), strict=True):
        lines += [Text(), *_table(part, width, size)]
    if keys:
        lines += [Text(keys, style="dim")]
    return Group(*(_cut(line, width) for line in (lines if height is None else lines[:height])))


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """How many lines each part gets: what it needs, and where that is too much the longest ones give way."""
    given = list(sizes)
    while sum(given) > room:
        longest = max(range(len(given)), key=lambda number: given[number], default=None)
        if longest is None or given[longest] <= _FEW:
            break
        given[longest] -= 1
    return given


def _head(shot: Shot, sort: Sort) -> list[Text]:
    title = f"acklast top  {shot.at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}  lanes by {sort.value}"
    lines = [Text(title, style="bold")]
    if shot.ledger is not None:
        lines.append(text_of(f"the ledger is away: {shot.ledger}. All below is of then", "red"))
    if not shot.complete:
        lines.append(
            Text("the ledger still counts its jobs: their numbers and runs are missing", style="yellow")
        )
    if shot.broker is not None:
        lines.append(text_of(f"the broker is away: {shot.broker}", "red"))
    return lines


# --- a table --------------------------------------------------------------------------------------------


def _table(part: Part, width: int, size: int) -> list[Text]:
    """Its lines, ``size`` at most; the last one says what was left out."""
    rows = [tuple(map(safe, row)) for row in part.rows]
    widths = fit([part.header, *rows], width)
    lines = [Text(_line(part.header, widths, part.right), style="bold")]
    blocks = [
        [
            Text(_line(row, widths, part.right), style=style),
            *([text_of(f"  {note}", "dim")] if note else []),
        ]
        for row, style, note in zip(rows, part.styles, part.notes, strict=True)
    ]
    if sum(map(len, blocks)) + 1 <= size:
        return lines + [line for block in blocks for line in block]
    shown = 0
    for block in blocks:
        if len(lines) + len(block) + 1 > size:
            break
        lines += block
        shown += 1
    return [*lines, Text(f"and {len(blocks) - shown} more", style="dim")]


def fit(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns' widths; the first gives way where all are too wide together."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    over = sum(widths) + 2 * (len(widths) - 1) - width
    if over > 0:
        widths[0] = max(min(_LEAST, widths[0]), widths[0] - over)
    return widths


def _line(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    cells = (
        _short(cell, size).rjust(size) if number in right else _short(cell, size).ljust(size)
        for number, (cell, size) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _short(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def _cut(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line


# --- the parts --------------------------------------------------------------------------------------------

_RIGHT: Final = frozenset(range(2, 10))


def _lanes(shot: Shot) -> Part:
    header = ("LANE", "STATE", "BUSY", "READY", "WAIT", "UNRES", "DEAD", "OLDEST", "RATE", "ERR")
    styles = [_STATES.get(row.state, "") for row in shot.lanes]
    notes = ["" if row.state in (State.RUNNING, State.IDLE) else row.why for row in shot.lanes]
    return Part(header, [_lane(row) for row in shot.lanes], styles, notes, _RIGHT)


def _lane(row: LaneRow) -> Sequence[str]:
    return (
        row.lane,
        row.state.value,
        f"{row.in_flight}/{row.slots}",
        "?" if row.ready is None else count(row.ready + row.held),
        count(row.waiting),
        count(row.unresolved),
        count(row.dead),
        "-" if row.oldest_s is None else age(row.oldest_s),
        rate(row.per_s),
        "-" if row.error_share is None else f"{row.error_share:.0%}",
    )


def _runs(shot: Shot) -> Part:
    header = ("RUN", "STATUS", "OPEN", "OF", "DEAD", "FINISH", "DEADLINE", "HELD BACK BY")
    rows = [_run(row, shot.at) for row in shot.runs]
    styles = [_STATUSES.get(row.status, "") for row in shot.runs]
    return Part(header, rows, styles, [""] * len(rows), frozenset({2, 3, 4, 5, 6}))


def _run(row: RunRow, at: datetime) -> Sequence[str]:
    left_s = None if row.deadline is None else (row.deadline - at).total_seconds()
    deadline = "-" if left_s is None else f"in {age(left_s)}" if left_s > 0 else f"{age(-left_s)} ago"
    counts = (count(row.open), count(row.total), count(row.dead))
    return (row.run, row.status.value, *counts, _finish(row), deadline, row.binding or "-")


def _finish(row: RunRow) -> str:
    if row.left_s is None:
        return "?"
    if row.low_s is None or row.high_s is None:
        return f"in {age(row.left_s)}"
    return f"in {age(row.left_s)} ({age(row.low_s, floor)}-{age(row.high_s, ceil)})"


def _budgets(shot: Shot) -> Part:
    header = ("BUDGET", "QUOTA", "USED", "OF", "PERMITS", "PAUSED")
    rows = [_budget(row, shot.at) for row in shot.budgets]
    styles = ["yellow" if row.paused_why is not None else "" for row in shot.budgets]
    return Part(header, rows, styles, [row.paused_why or "" for row in shot.budgets], frozenset({2, 3, 4}))


def _budget(row: BudgetRow, at: datetime) -> Sequence[str]:
    paused = "-"
    if row.paused_why is not None:
        paused = f"until {moment(row.paused_until, at)}" if row.paused_until else "until resumed"
    permits = f"{row.busy}/{row.permits}"
    return (row.budget, row.quota, rate(row.used_per_s), rate(row.effective_per_s), permits, paused)


def _workers(shot: Shot) -> Part:
    header = ("WORKER", "STATE", "VERSION", "RELEASE", "BUSY", "HELD", "HEARTBEAT", "LANES")
    rows = [_worker(row, shot.at) for row in shot.workers]
    styles = [_WORKERS.get(row.state, "") for row in shot.workers]
    notes = [_asked(row) for row in shot.workers]
    return Part(header, rows, styles, notes, frozenset({4, 5, 6}))


def _worker(row: WorkerView, at: datetime) -> Sequence[str]:
    heartbeat = f"{age(max(0.0, (at - row.heartbeat_at).total_seconds()))} ago"
    busy = "-" if row.in_flight is None else str(row.in_flight)
    held = "-" if row.held is None else str(row.held)
    return (
        row.worker,
        row.state.value,
        row.version,
        row.release or "?",
        busy,
        held,
        heartbeat,
        ",".join(row.lanes) or "-",
    )


def _asked(row: WorkerView) -> str:
    return f"asked to drain by {row.drain_by}: {row.drain_reason}" if row.drain_by is not None else ""


# --- figures ----------------------------------------------------------------------------------------------


def count(number: int) -> str:
    """At most five characters."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= 10 * size:
            return f"{number // size}{unit}"
    return str(number)


def age(seconds: float, whole: Callable[[float], int] = round) -> str:
    """About how long, without a space; ``whole`` says to which side it is rounded."""
    return span(seconds, whole).replace(" min", "m").replace(" ", "")


def rate(per_s: float) -> str:
    """A rate a second, or a minute where it is slow."""
    if per_s == 0:
        return "0/s"
    return f"{per_s:,.0f}/s" if per_s >= 10 else f"{per_s:.1f}/s" if per_s >= 0.1 else f"{per_s * 60:.1f}/m"


def lines_of(group: Group) -> Iterable[Text]:
    """The lines of a picture."""
    return (line for line in group.renderables if isinstance(line, Text))
