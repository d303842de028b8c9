"""Erasing what a key's messages held: for people who ask that what is known of them goes.

The account stays: the job with its times, states and attempts, and which failure it was. The content goes: of
every dead letter of the key payload, headers, properties and detail, the attempts' details, the job's result,
what the ledger keeps of the message, and what the outbox holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import asyncpg

from acklast.ledger.api import State
from acklast.ledger.audit import put_down
from acklast.ledger.connect import Busy
from acklast.ledger.operate import Operations, Operator

_OPEN: Final = "('queued', 'claimed', 'waiting', 'unresolved')"


@dataclass(frozen=True, slots=True)
class Erased:
    """What went in one lane: rows that are there without their content, or that are gone.

    ``letters`` lose all of it, ``attempts`` their details, and ``results`` is 1 where the job had one;
    ``kept`` messages and rows of the ``outbox`` are gone.
    """

    lane: str
    letters: int = 0
    attempts: int = 0
    results: int = 0
    kept: int = 0
    outbox: int = 0

    @property
    def rows(self) -> int:
        """All of them together."""
        return self.letters + self.attempts + self.results + self.kept + self.outbox


@dataclass(frozen=True, slots=True)
class Left:
    """Why a lane was left as it is, and what to do first."""

    lane: str
    why: str
    remedy: str


# There are few lanes: a walk from one to the next, in each table that may hold something of the key. With a
# limit each look is one of its own, by index; without it the planner would read the tables once instead.
_LANES: Final = """
with recursive lanes (lane) as (
    select '' collate "C"
    union all
    select least((select t.lane from acklast.jobs t where t.lane > l.lane order by t.lane limit 1),
                 (select t.lane from acklast.attempts t where t.lane > l.lane order by t.lane limit 1),
                 (select t.lane from acklast.dead_letters t where t.lane > l.lane order by t.lane limit 1),
                 (select t.lane from acklast.custody t where t.lane > l.lane order by t.lane limit 1),
                 (select t.lane from acklast.outbox t where t.lane > l.lane order by t.lane limit 1))
    from lanes l where l.lane is not null
)
select l.lane from lanes l cross join lateral (
    (select from acklast.jobs t where t.lane = l.lane and t.key = $1 limit 1)
    union all
    (select from acklast.attempts t where t.lane = l.lane and t.key = $1 limit 1)
    union all
    (select from acklast.dead_letters t where t.lane = l.lane and t.key = $1 limit 1)
    union all
    (select from acklast.custody t where t.lane = l.lane and t.key = $1 limit 1)
    union all
    (select from acklast.outbox t where t.lane = l.lane and t.key = $1 limit 1)
    limit 1
) as there
order by l.lane
"""


async def lanes_of(operations: Operations, key: str) -> list[str]:
    """The lanes in which the ledger has anything by this key; "" is where letters of no lane are.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return [row["lane"] for row in await operations.fetch(_LANES, key)]


# Until the commit nobody makes another start of it.
_LOCK: Final = "select from acklast.jobs where lane = $1 and key = $2 for no key update"

# Only what is over. The state is asked again, in the snapshot that the rows are seen in: a job that was made
# since has its kept message in the same commit, and that must stay. A promise whose job is over has no effect
# any more; one without a job is a job to be.
_ERASE: Final = f"""
with job as materialized (
    select j.state from acklast.jobs j where j.lane = $1 and j.key = $2
),
standing as materialized (
    select (select state from job) as state,
           exists (select from acklast.outbox o where o.lane = $1 and o.key = $2) as promised
),
over as materialized (
    select from standing where case when state is null then not promised else state not in {_OPEN} end
),
letters as (
    update acklast.dead_letters d set payload = null, headers = '{{}}', properties = '{{}}', detail = ''
    where d.lane = $1 and d.key = $2 and exists (select from over)
      and (d.payload is not null or d.headers <> '{{}}' or d.properties <> '{{}}' or d.detail <> '')
    returning 1
),
attempts as (
    update acklast.attempts a set detail = ''
    where a.lane = $1 and a.key = $2 and a.detail <> '' and exists (select from over)
    returning 1
),
results as (
    update acklast.jobs j set result = null
    where j.lane = $1 and j.key = $2 and j.result is not null and j.state not in {_OPEN}
    returning 1
),
kept as (
    delete from acklast.custody c where c.lane = $1 and c.key = $2 and exists (select from over)
    returning 1
),
outbox as (
    delete from acklast.outbox o where o.lane = $1 and o.key = $2 and exists (select from over)
    returning 1
)
select s.state, s.promised, exists (select from over) as over,
       (select count(*) from letters) as letters, (select count(*) from attempts) as attempts,
       (select count(*) from results) as results, (select count(*) from kept) as kept,
       (select count(*) from outbox) as outbox
from standing s
"""  # noqa: S608 - states alone

STATEMENTS: Final = (_LOCK, _ERASE)
"""What is done for one lane, each with the parameters lane and key."""
LANES: Final = _LANES


class _Undone(Exception):  # noqa: N818 - no error
    """Takes the transaction back."""


async def erase(
    operations: Operations, lane: str, key: str, why: str, operator: Operator, *, dry_run: bool
) -> Erased | Left:
    """Erase in one lane, in one commit with its entry in the audit; a repeat has nothing to put down.

    A dry run does all of it and takes it back, so it tells what would be done to the row.

    Raises:
        LedgerUnavailable: it may or may not have been done; a repeat is safe.
    """
    try:
        async with operations.changing() as connection:
            await connection.fetch(_LOCK, lane, key)
            [row] = await connection.fetch(_ERASE, lane, key)
            told = _told(lane, row)
            if dry_run or isinstance(told, Left):
                raise _Undone
            if told.rows:
                effect = _effect(told)
                await put_down(connection, operator, "ledger.erase", effect, lane=lane, key=key, reason=why)
    except Busy:
        return _left(lane, "locked")
    except _Undone:
        pass
    return told


def _told(lane: str, row: asyncpg.Record) -> Erased | Left:
    if not row["over"]:
        return _left(lane, row["state"] or "promised")
    return Erased(lane, row["letters"], row["attempts"], row["results"], row["kept"], row["outbox"])


def _effect(erased: Erased) -> dict[str, Any]:
    """Counts, and nothing of what was erased: the entry stays."""
    return {name: count for name, count in asdict(erased).items() if name != "lane"}


_REMEDIES: Final = {
    "locked": "Somebody holds it locked: try again",
    "promised": "It is promised in the outbox and not published yet: see that a relay runs",
    State.UNRESOLVED.value: "Resolve it first: 'acklast unresolved'",
}
_WAIT: Final = "Let it come to its end first, or cancel its run: 'acklast runs cancel'"


def _left(lane: str, why: str) -> Left:
    return Left(lane, why, _REMEDIES.get(why, _WAIT))
