"""What all jobs of one enqueue have in common, and how a row becomes one of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from acklast.cli.rows import BadRow, Row
from acklast.cli.rows import Entry as FileEntry
from acklast.template import BadField, KeyTemplate
from acklast_topology.items import Entry, NoJob
from acklast_topology.job import Job


@dataclass(frozen=True, slots=True)
class Order:
    """What all jobs of one enqueue have in common."""

    lane: str
    run: str
    key: KeyTemplate
    type: str | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a row came from: it goes with the row's job, and comes back with its fate."""

    line: int
    raw: bytes = b""
    read: int = 0

    def __str__(self) -> str:
        return f"line {self.line}"


def entry_of(entry: FileEntry, order: Order) -> Entry | NoJob:
    """A row's job, or why it is none."""
    source = Source(entry.line, entry.raw, entry.read)
    match entry:
        case BadRow(problem=problem):
            return NoJob(problem, source, len(entry.raw))
        case Row(fields=fields, payload=payload):
            try:
                key = order.key.render(order.run, fields)
                job = Job(order.lane, key, payload, type=order.type, run=order.run, deadline=order.deadline)
            except (BadField, ValueError) as error:
                return NoJob(str(error), source, len(entry.raw))
            return Entry(job, source)
        case _:
            assert_never(entry)
