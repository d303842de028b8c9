"""Redrives read for people: which there are, how far each has come, its letters page by page.

A redrive is a set of dead letters that was frozen, and is tried again a few at first. What is written to it
is written by ``redrive_plan``, by ``redrive_changes`` and by the one daemon that works on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import asyncpg

from acklast.errors import AcklastError, Exit
from acklast.ledger.operate import Operations
from acklast.ledger.trials import COLUMNS, Trial


class RedriveStatus(StrEnum):
    PLANNED = "planned"
    """Frozen, and not started."""
    RUNNING = "running"
    PAUSED = "paused"
    """By a person."""
    ASKING = "asking"
    """Something else than before went wrong: a person says whether it goes on."""
    STOPPED = "stopped"
    """Letters failed again of what they had failed of: a person says whether it goes on all the same."""
    FINISHED = "finished"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (RedriveStatus.FINISHED, RedriveStatus.CANCELLED)

    @property
    def waits(self) -> bool:
        """Whether it waits for somebody's verdict."""
        return self in (RedriveStatus.ASKING, RedriveStatus.STOPPED)


class NoSuchRedrive(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    exit = Exit.NOT_FOUND

    def __init__(self, redrive: int) -> None:
        super().__init__(
            f"the ledger has no redrive {redrive}",
            "'acklast redrive list' has those that there are; retention removes them a while after their end",
        )


@dataclass(frozen=True, slots=True)
class Redrive:
    """One redrive. Counts are of letters.

    ``steps`` are how many have been released at the end of each step, ``step`` is the one that it is in (from
    0). ``tolerate`` is the part of those released that may fail. ``said`` is what was found when it last
    stopped, asked or went on.
    """

    id: int
    lane: str
    status: RedriveStatus
    decided: bool
    """A person has said of its jobs that they are to run again though their effect may have happened."""
    selection: Mapping[str, Any]
    letters: int
    excluded: Mapping[str, int]
    """Letters that were meant and cannot be tried, by why."""
    actor: str
    login: str
    planned_at: datetime
    reason: str | None
    steps: Sequence[int] | None
    rate_per_s: float | None
    tolerate: float
    forced: str | None
    """Why unchanged failures are tried all the same."""
    started_at: datetime | None
    step: int
    step_at: datetime | None
    released: int
    """Including those that have come to their end."""
    refused: int
    done: int
    same: int
    """Failed again as they had failed before."""
    other: int
    """Failed in another way, or came to another end."""
    said: Mapping[str, Any] | None
    ended_at: datetime | None
    worker: str | None
    """The daemon that works on it."""
    now: datetime

    @property
    def out(self) -> int:
        """Released, and not at their end."""
        return self.released - self.done - self.same - self.other

    @property
    def left(self) -> int:
        """Not released yet."""
        return self.letters - self.released - self.refused


_COLUMNS: Final = """
    q.id, q.lane, q.status, q.decided, q.selection, q.letters, q.excluded, q.actor, q.login, q.planned_at,
    q.reason, q.steps, q.rate_per_s, q.tolerate, q.forced, q.started_at, q.step, q.step_at, q.released,
    q.refused, q.done, q.same, q.other, q.said, q.ended_at, clock_timestamp() as now,
    (select w.worker from acklast.workers w
     where w.id = q.session and w.ended_at is null and w.lease_until > clock_timestamp()) as worker
"""
_ONE: Final = f"select {_COLUMNS} from acklast.redrives q where q.id = $1"  # noqa: S608 - ours
_LIST: Final = f"""
select {_COLUMNS} from acklast.redrives q
where ($1::text is null or q.lane = $1) and ($2::text[] is null or q.status = any($2))
  and ($3::bigint is null or q.id < $3)
order by q.id desc limit $4
"""  # noqa: S608 - ours


async def one(operations: Operations, redrive: int) -> Redrive:
    """
    Raises:
        NoSuchRedrive: there is none with this id (any more).
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(_ONE, redrive)
    if not rows:
        raise NoSuchRedrive(redrive)
    return redrive_of(rows[0])


async def redrives(
    operations: Operations,
    limit: int,
    *,
    lane: str | None = None,
    statuses: Sequence[RedriveStatus] | None = None,
    before: int | None = None,
) -> list[Redrive]:
    """The latest redrives, or those before one that was listed.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    wanted = None if statuses is None else [status.value for status in statuses]
    return [redrive_of(row) for row in await operations.fetch(_LIST, lane, wanted, before, limit)]


def redrive_of(row: asyncpg.Record) -> Redrive:
    found = dict(row)
    for name in ("selection", "excluded", "said"):
        found[name] = json.loads(found[name]) if found[name] is not None else None
    return Redrive(**{**found, "status": RedriveStatus(found["status"])})


_REFUSALS: Final = """
select refusal, count(*) as count from acklast.redrive_letters where redrive = $1 and state = 'refused'
group by refusal order by count(*) desc, refusal
"""


async def refusals(operations: Operations, redrive: Redrive) -> Mapping[str, int]:
    """How many of its letters are not tried, by why. Reads all of them, and only where there are some.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(_REFUSALS, redrive.id) if redrive.refused else []
    return {row["refusal"]: row["count"] for row in rows}


# --- its letters ----------------------------------------------------------------------------------------


PAGE: Final = f"""
select {COLUMNS} from acklast.redrive_letters r
where r.redrive = $1 and r.position > $2 order by r.position limit $3
"""  # noqa: S608 - ours
_OF_LETTER: Final = f"""
select {COLUMNS} from acklast.redrive_letters r
where r.lane = $1 and r.key = $2 and r.letter = $3 order by r.redrive
"""  # noqa: S608 - ours


async def trials(operations: Operations, redrive: int, limit: int, after: int = 0) -> list[Trial]:
    """The first letters of a redrive, or those after a position. From an index, whichever page it is.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return [Trial(**dict(row)) for row in await operations.fetch(PAGE, redrive, after, limit)]


async def of_letter(operations: Operations, letter: int, lane: str, key: str) -> list[Trial]:
    """The redrives that a letter is part of, the oldest first.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return [Trial(**dict(row)) for row in await operations.fetch(_OF_LETTER, lane, key, letter)]
