"""What is enqueued and what becomes of it, as values; and what keeps the promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias, assert_never

from acklast_topology.contract import MAX_BYTES
from acklast_topology.job import Job
from acklast_topology.value import value


class Fate(StrEnum):
    """What became of one item."""

    ACCEPTED = "accepted"
    """Promised now, and confirmed by the broker."""
    AGAIN = "again"
    """Promised before and never started: published again, and confirmed."""
    DUPLICATE = "duplicate"
    """Known already, with the same content: nothing to do."""
    CONFLICT = "conflict"
    """The key is taken by another content; that job is untouched."""
    MALFORMED = "malformed"
    """The item is no job of this run."""
    RETURNED = "returned"
    """The broker has no queue for it."""
    REFUSED = "refused"
    """The broker did not take it; a full queue does that."""
    UNKNOWN = "unknown"
    """No answer, even after repeats: it may be there or not. Repeating is safe."""


FINE: Final = frozenset({Fate.ACCEPTED, Fate.AGAIN, Fate.DUPLICATE})


class Manifested(StrEnum):
    """What the ledger says of a job that it is promised."""

    NEW = "new"
    """Not known before: publish it."""
    OPEN = "open"
    """Known and never started: publishing again is safe, and needed after an interrupted enqueue."""
    DUPLICATE = "duplicate"
    """Known and started, waiting or final: do not publish."""
    CONFLICT = "conflict"
    """The key is taken by another content: not touched, do not publish."""


class Manifest(Protocol):
    """Keeps what a run promises to publish. ``acklast.manifest.PostgresManifest`` is the ledger's."""

    async def promise(self, run: str, jobs: Sequence[Job]) -> Sequence[Manifested]:
        """Keep the jobs in one transaction; one answer for each, in order. No key comes twice in a call."""


@value
class Entry:
    """A job with what its enqueuer knows it by, such as its line in a file."""

    job: Job
    source: Any = None


@dataclass(frozen=True, slots=True)
class NoJob:
    """An item of which no job can be made, and why: it is told as malformed, and the rest goes on."""

    problem: str
    source: Any = None
    size: int = 0
    """Bytes that ``source`` takes in memory, where that may be much."""


Given: TypeAlias = Job | Entry | NoJob


@value
class Enqueued:
    """One item's fate. ``number`` is its place among all that was given, from 1.

    ``job`` is None where the item was none; ``source`` is what came with it. ``detail`` is a sentence where
    there is something to say.
    """

    number: int
    job: Job | None
    fate: Fate
    detail: str = ""
    source: Any = None

    @property
    def fine(self) -> bool:
        """Whether the job is where it should be, by this enqueue or by an earlier one."""
        return self.fate in FINE


@value
class Pending:
    """An item that is a job of the run, and is neither promised nor published yet."""

    number: int
    job: Job
    source: Any


Item: TypeAlias = Pending | Enqueued
"""On its way, or settled already."""


def item_of(number: int, given: Given, run: str) -> Item:
    """What was given as a job of the run, or why it is none."""
    match given:
        case NoJob(problem, source):
            return Enqueued(number, None, Fate.MALFORMED, problem, source)
        case Entry(job, source):
            return _of_run(number, job, source, run)
        case Job():
            return _of_run(number, given, None, run)
        case _:
            assert_never(given)


def _of_run(number: int, job: Job, source: Any, run: str) -> Item:
    if job.run is None:
        job = replace(job, run=run)
    elif job.run != run:
        detail = f"belongs to run {job.run!r}, and this is {run!r}: enqueue it with its own run"
        return Enqueued(number, job, Fate.MALFORMED, detail, source)
    return Pending(number, job, source)


def require_run(run: str) -> None:
    """
    Raises:
        ValueError: the contract knows no such run.
    """
    if not run or not run.isprintable() or len(run.encode(errors="replace")) > MAX_BYTES:
        raise ValueError(f"run {run!r} is not valid: use 1 to {MAX_BYTES} bytes of printable UTF-8")
