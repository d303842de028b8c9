"""How a demo begins, and how it tells what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from acklast.errors import AcklastError
from dev.need import Missing
from dev.stack import Stack, stack
from dev.stage import Stuck
from dev.workspace import StackError


def run(demonstrate: Callable[[Console, Stack], bool]) -> int:
    """Bring up broker and ledger, and demonstrate; the exit code: 0 where every invariant holds."""
    console = Console(highlight=False)
    console.print("bringing up broker and ledger")
    try:
        with stack() as servers:
            return 0 if demonstrate(console, servers) else 1
    except (Missing, StackError, Stuck, AcklastError) as problem:
        tell(console, f"demo: {problem}", "red")
        return 1
    except KeyboardInterrupt:
        return 130


def tell(console: Console, text: str, style: str | None = None) -> None:
    """A line of the demo, of any length: a log file has no width."""
    console.print(text, style=style, markup=False, soft_wrap=True)


def tell_counts(console: Console, counts: Iterable[tuple[str, int, str]]) -> None:
    """A table: what was counted, how many, and who says so."""
    table = Table(box=SIMPLE_HEAD)
    for heading in ("what", "count", "who says so"):
        table.add_column(heading, justify="right" if heading == "count" else "left")
    for what, count, source in counts:
        table.add_row(what, f"{count:,}", source)
    console.print(table)


def tell_invariants(console: Console, broken: Mapping[str, Sequence[str]]) -> None:
    """Each invariant, by name, with the first cases that break it."""
    for name, cases in broken.items():
        tell(console, f"{'BROKEN' if cases else 'holds '}  {name}", "red" if cases else "green")
        for case in cases[:5]:
            tell(console, f"        {case}", "red")
