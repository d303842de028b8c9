"""The demo's account for people: tables that read the same in a terminal and in a log file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from report import INVARIANTS, Evidence, breaches, name_of, repeats, window_of
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_SHOWN: Final = 5
"""Cases that are told of one broken invariant."""


@contextmanager
def bar(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar; a line for every fifth where there is no terminal."""
    if not console.is_terminal:
        yield _lines(console, what, total)
        return
    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.update(task, completed=count)


def _lines(console: Console, what: str, total: int) -> Callable[[int], None]:
    told = -1

    def at(count: int) -> None:
        nonlocal told
        fifth = count * 5 // total
        if fifth > told:
            told = fifth
            console.print(f"  {count:>5,} of {total:,} {what}")

    return at


def tell(console: Console, found: Evidence, phases: Mapping[str, float], timeline: str) -> None:
    """Everything that happened, and whether every invariant holds. ``timeline`` is one job's in the crash."""
    console.print(_account(found))
    console.print(_times(phases))
    if timeline:
        _say(console, f"one job that the crash left in doubt, by acklast jobs show:\n{timeline}")
    for line in repeats(found):
        _say(console, f"repeated: {line}")
    _say(console, f"proof: {found.account['proof']}")
    _say(console, f"drain: {_drain(found)}\n")
    broken = dict(breaches(found))
    for invariant in INVARIANTS:
        name = name_of(invariant)
        cases = broken.get(name, [])
        _say(console, f"{'BROKEN' if cases else 'holds '}  {name}", style="red" if cases else "green")
        for case in cases[:_SHOWN]:
            _say(console, f"        {case}", style="red")
        if (more := len(cases) - _SHOWN) > 0:
            _say(console, f"        and {more} more", style="red")


def _say(console: Console, text: str, style: str | None = None) -> None:
    # Lines are not broken to a width: a log file has none.
    console.print(text, style=style, markup=False, soft_wrap=True)


def _account(found: Evidence) -> Table:
    table = Table(title=f"run {found.run}: what happened", box=SIMPLE_HEAD, title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("who says so")
    for section in (_file, _jobs, _effects, _crash, _refusals):
        for what, count, source in section(found):
            table.add_row(what, f"{count:,}", source)
        table.add_section()
    return table


Lines = Iterator[tuple[str, int, str]]


def _file(found: Evidence) -> Lines:
    unique = len(found.expected)
    yield "rows", len(found.rows), "properties.csv"
    yield "  different ones: the run's manifest", unique, "properties.csv"
    yield "  repeats of another row, not published", found.enqueued["duplicate"], "acklast enqueue"


def _jobs(found: Evidence) -> Lines:
    for end, count in sorted(found.ends().items(), key=lambda item: -item[1]):
        notes = {"dead: order_refused": ", answered 422", "dead: invalid_payload": ", malformed row"}
        yield f"jobs {end}{notes.get(end, '')}", count, "the ledger"


def _effects(found: Evidence) -> Lines:
    effects = [seen["effects"] for seen in found.calls.values()]
    yield "orders placed at the property API", sum(effects), "the API's report"
    yield "  keys with exactly one", effects.count(1), "the API's report"
    yield "  keys with more than one", sum(count > 1 for count in effects), "the API's report"


def _crash(found: Evidence) -> Lines:
    window = window_of(found)
    yield "orders placed when the daemon was killed", found.effects_before, "the API's report"
    yield "  jobs claimed then, and not recorded", window.claimed, "the ledger"
    yield "    their order was there: found, not repeated", window.found_done, "the ledger"
    yield "    their order was not there: called again", window.called_again, "the ledger"


def _refusals(found: Evidence) -> Lines:
    statuses = [status for seen in found.calls.values() for status in seen["statuses"]]
    yield "calls answered 429 (over the quota)", statuses.count(429), "the API's report"
    yield (
        "  recorded, no attempt spent",
        sum(job["rate_limited"] for job in found.jobs.values()),
        "the ledger",
    )
    yield "calls answered 500, tried again", statuses.count(500), "the API's report"


def _drain(found: Evidence) -> str:
    receipt = found.receipt
    counts = ", ".join(
        f"{receipt.get(name)} {name}" for name in ("completed", "given_back", "unknown", "left")
    )
    return f"{counts}; {receipt.get('seconds')} s of {receipt.get('deadline_s')} s; exit code {found.exit}"


def _times(phases: Mapping[str, float]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    for name, seconds in phases.items():
        table.add_row(name, f"{seconds:.1f}")
    return table
