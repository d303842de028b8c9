"""A table as every measurement returns it: for people by rich, for programs as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.stats import Spread


@dataclass(frozen=True, slots=True)
class Report:
    """One table. ``figures`` has the values of each row, round by round, under the row's name."""

    name: str
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    figures: Mapping[str, Mapping[str, Any]]
    notes: Sequence[str] = field(default_factory=tuple)


def spread(value: Spread, digits: int = 0) -> str:
    """A median, and under it the range that it comes from."""
    text = f"{value.median:,.{digits}f}"
    if value.low == value.high:
        return text
    return f"{text}\n[dim]{value.low:,.{digits}f}-{value.high:,.{digits}f}[/dim]"


def show(console: Console, report: Report) -> None:
    """Print a report; figures to the right, words to the left."""
    table = Table(title=report.title, title_justify="left", title_style="bold")
    for number, heading in enumerate(report.headings):
        numeric = bool(report.rows) and _numeric(report.rows[0][number])
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
    for row in report.rows:
        table.add_row(*row)
    console.print()
    console.print(table)
    for note in report.notes:
        console.print(f"  {note}", highlight=False, markup=False)


def write_json(
    path: Path, machine: Mapping[str, str], options: Mapping[str, Any], reports: Sequence[Report]
) -> None:
    """All reports of a run with the machine that they are from."""
    tables = {
        report.name: {
            "title": report.title,
            "notes": list(report.notes),
            "rows": report.figures,
            "markdown": markdown(report),
        }
        for report in reports
    }
    whole = {"machine": machine, "options": options, "tables": tables}
    path.write_text(json.dumps(whole, indent=2, default=str) + "\n")


def markdown(report: Report) -> list[str]:
    """The lines of the same table for a page of the documentation."""
    bars = ["---:" if numeric else "---" for numeric in map(_numeric, report.rows[0])] if report.rows else []
    lines = [list(report.headings), bars, *map(list, report.rows)]
    return [f"| {' | '.join(map(_plain, line))} |" for line in lines]


def _plain(cell: str) -> str:
    """A cell in one line: the range in brackets after the median."""
    return cell.replace("\n[dim]", " (").replace("[/dim]", ")").replace("\n", " ")


def _numeric(cell: str) -> bool:
    return cell[:1].isdigit() or not cell
