"""Runs read for people: which there are, and the account of one, job by job."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import asyncpg

from acklast.ledger.api import State
from acklast.ledger.operate import Operations
from acklast_topology.value import value


@dataclass(frozen=True, slots=True)
class Listed:
    """One run in a list. ``manifest`` is None for a run that is known by its jobs' headers alone."""

    run: str
    manifest: int | None
    created_at: datetime | None
    counts: Mapping[State, int] = field(default_factory=dict)

    @property
    def open(self) -> int:
        """Jobs that still have something to do."""
        return sum(self.counts.get(state, 0) for state in (State.QUEUED, State.CLAIMED, State.WAITING))


@value
class Item:
    """One job of a run, as its proof has it."""

    lane: str
    key: str
    state: State
    attempts: int
    claims: int
    published_at: datetime | None
    claimed_at: datetime | None
    effect_at: datetime | None
    recorded_at: datetime | None
    settled_at: datetime | None
    worker: str | None
    version: str | None


# The newest first; the next page begins after the last one of this.
_RUNS: Final = """
select run, manifest, created_at from acklast.runs
where $1::timestamptz is null or (created_at, run) < ($1, $2)
order by created_at desc, run desc limit $3
"""

# One walk of the index from each run to the next: there are many jobs, and few runs.
_BY_HEADER: Final = """
with recursive named (run) as (
    (select run from acklast.jobs where run is not null order by run limit 1)
    union all
    select (select j.run from acklast.jobs j where j.run > n.run order by j.run limit 1)
    from named n where n.run is not null
)
select n.run from named n
where n.run is not null and not exists (select from acklast.runs r where r.run = n.run)
order by n.run limit $1
"""

_COUNTS: Final = """
select run, state, sum(jobs)::bigint as jobs
from (
    select run, state, count(*) as jobs from acklast.jobs where run = any($1::text[]) group by run, state
    union all
    select run, state, jobs from acklast.run_tallies where run = any($1::text[])
) as both_of_them
group by run, state
"""

# Sorted once, and read from there: an index by run and key would cost every job.
_ITEMS: Final = """
select j.lane, j.key, j.state, j.attempts, j.claims, j.published_at, j.claimed_at, j.effect_at, j.recorded_at,
       coalesce(j.settled_at, (
           select s.at from acklast.settlements s
           where s.session = j.session and s.at >= j.recorded_at and s.tickets @> j.ticket
           order by s.at limit 1
       )) as settled_at, w.worker, w.version
from acklast.jobs j left join acklast.workers w on w.id = j.session
where j.run = $1
order by j.lane, j.key
"""


async def list_runs(
    operations: Operations, limit: int, before: tuple[datetime, str] | None = None
) -> list[Listed]:
    """The newest runs with their counts, or those before one that was listed.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    at, run = before or (None, "")
    rows = await operations.fetch(_RUNS, at, run, limit)
    return await _counted(operations, rows)


_CREATED: Final = "select created_at from acklast.runs where run = $1"


async def created_at(operations: Operations, run: str) -> datetime | None:
    """When a run's manifest was begun; None where it has none.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(_CREATED, run)
    return rows[0]["created_at"] if rows else None


async def list_by_header(operations: Operations, limit: int) -> list[Listed]:
    """Runs that no manifest names, in the order of their names.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return await _counted(operations, await operations.fetch(_BY_HEADER, limit))


async def _counted(operations: Operations, rows: list[asyncpg.Record]) -> list[Listed]:
    counts: dict[str, dict[State, int]] = {row["run"]: {} for row in rows}
    for row in await operations.fetch(_COUNTS, list(counts)):
        counts[row["run"]][State(row["state"])] = row["jobs"]
    return [
        Listed(row["run"], row.get("manifest"), row.get("created_at"), counts[row["run"]]) for row in rows
    ]


@dataclass(frozen=True, slots=True)
class RunStanding:
    """What is to be in a run's proof: how many jobs were promised, are there, and were removed since."""

    manifest: int | None
    total: int
    pruned: Mapping[State, int]


_STANDING: Final = """
select (select manifest from acklast.runs where run = $1) as manifest,
       (select count(*) from acklast.jobs where run = $1) as total,
       (select jsonb_object_agg(state, jobs) from acklast.run_tallies where run = $1) as pruned
"""


async def standing_of(operations: Operations, run: str) -> RunStanding | None:
    """None where nothing is known of it.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    [row] = await operations.fetch(_STANDING, run)
    pruned = {State(state): jobs for state, jobs in json.loads(row["pruned"] or "{}").items()}
    if row["manifest"] is None and not row["total"] and not pruned:
        return None
    return RunStanding(row["manifest"], row["total"], pruned)


async def items_of(operations: Operations, run: str) -> AsyncIterator[Item]:
    """A run's jobs by lane and key. Within a snapshot.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    async for row in operations.walk(_ITEMS, run):
        yield Item(**(dict(row) | {"state": State(row["state"])}))
