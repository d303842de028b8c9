"""What all jobs of one enqueue have in common, and how a row becomes one of them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from acklast.cli.rows import BadRow, Row
from acklast.cli.rows import Entry as FileEntry
from acklast.template import BadField, KeyTemplate
from acklast_topology.items import Entry, Given, NoJob
from acklast_topology.job import Job
from acklast_topology.value import value


@dataclass(frozen=True, slots=True)
class Order:
    """What all jobs of one enqueue have in common."""

    lane: str
    run: str
    key: KeyTemplate
    type: str | None = None
    deadline: datetime | None = None


@value
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


def spread(
    given: Iterable[Given] | AsyncIterable[Given], lanes: Sequence[str]
) -> Iterable[Given] | AsyncIterable[Given]:
    """Of each job one for each lane, instead of the one that it was made for.

    Each is promised and published by itself: one lane may have it already where another has not.
    """
    if isinstance(given, AsyncIterable):
        return _spread_later(given, lanes)
    return (each for one in given for each in _in_each(one, lanes))


async def _spread_later(given: AsyncIterable[Given], lanes: Sequence[str]) -> AsyncIterator[Given]:
    async for one in given:
        for each in _in_each(one, lanes):
            yield each


def _in_each(one: Given, lanes: Sequence[str]) -> Iterator[Given]:
    match one:
        case Entry(job, source) if lanes != (job.lane,):
            yield from (Entry(replace(job, lane=lane), source) for lane in lanes)
        case _:
            yield one
