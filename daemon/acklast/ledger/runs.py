"""Runs read for people: which there are, and the account of one, job by job."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import asyncpg

from acklast.ledger.api import LATELY_S, RunView, State
from acklast.ledger.evidence import storable_json
from acklast.ledger.operate import Operations
from acklast.ledger.reading import view_of
from acklast.ledger.run_status import ENDED, Status, status
from acklast_topology.value import value

COUNTED: Final = 100_000
"""Jobs of a run that a list counts at most: to count a million takes about a second, longer from the disk."""
_LOOKED: Final = 1_000
"""Runs that a list looks at, whatever it is to show of them."""


@dataclass(frozen=True, slots=True)
class Oldest:
    """The open job of a run that the ledger has known for longest, and since when it is in its state."""

    lane: str
    key: str
    state: State
    since: datetime
    enqueued_at: datetime


@dataclass(frozen=True, slots=True)
class Listed:
    """One run in a list. ``counted``: the view has all its jobs, and not the first ``COUNTED`` alone."""

    view: RunView
    counted: bool
    oldest: Oldest | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs a list shows."""

    owner: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    open: bool = False
    """Those that are not finished, or too large to be counted."""
    late: bool = False
    """Those that are not finished and past their deadline."""
    exact: bool = False
    """Count each to the end."""

    def takes(self, one: Listed) -> bool:
        """Whether a run that was counted is one of them."""
        standing = status(one.view)
        unfinished = standing not in ENDED or not one.counted
        if self.late:
            return standing is Status.LATE or (not one.counted and unfinished)
        return unfinished if self.open else True


EVERY: Final = Wanted()


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
select r.run, r.manifest, r.created_at, r.deadline, r.owner, r.labels, c.at as cancelled_at, c.actor,
       c.reason, clock_timestamp() as now
from acklast.runs r left join acklast.cancelled_runs c on c.run = r.run
where ($1::timestamptz is null or (r.created_at, r.run) < ($1, $2))
  and ($4::text is null or r.owner = $4) and r.labels @> $5::jsonb
  and (not $6 or r.deadline < clock_timestamp())
order by r.created_at desc, r.run desc limit $3
"""

# One walk of the index from each run to the next: there are many jobs, and few runs.
_BY_HEADER: Final = """
with recursive named (run) as (
    (select run from acklast.jobs where run is not null order by run limit 1)
    union all
    select (select j.run from acklast.jobs j where j.run > n.run order by j.run limit 1)
    from named n where n.run is not null
)
select n.run, null::bigint as manifest, null::timestamptz as created_at, null::timestamptz as deadline,
       null::text as owner, '{}' as labels, c.at as cancelled_at, c.actor, c.reason, clock_timestamp() as now
from named n left join acklast.cancelled_runs c on c.run = n.run
where n.run is not null and not exists (select from acklast.runs r where r.run = n.run)
order by n.run limit $1
"""

# All runs of a page in one statement, and of each no more than so many rows: there is no total that is kept.
_COUNTS: Final = """
select a.run, s.* from unnest($1::text[]) as a (run) cross join lateral (
    select j.state, false as pruned, count(*) as jobs, sum(j.claims)::bigint as claims,
           count(*) filter (where j.recorded_at > clock_timestamp() - make_interval(secs => $3)) as lately,
           max(j.recorded_at) as last
    from (select state, claims, recorded_at from acklast.jobs where run = a.run limit $2) as j
    group by j.state
) as s
union all
select run, state, true, jobs, claims, 0, null from acklast.run_tallies where run = any($1)
"""

# Reads every job of the run: no index knows what is open.
_OLDEST: Final = """
select a.run, o.* from unnest($1::text[]) as a (run) cross join lateral (
    select lane, key, state, enqueued_at,
           case state when 'queued' then enqueued_at when 'claimed' then claimed_at
                      else coalesce(recorded_at, enqueued_at) end as since
    from acklast.jobs where run = a.run and state in ('queued', 'claimed', 'waiting')
    order by enqueued_at, lane, key limit 1
) as o
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
    operations: Operations, limit: int, wanted: Wanted = EVERY, before: tuple[datetime, str] | None = None
) -> list[Listed]:
    """The newest runs that are wanted, or those before one that was listed.

    Looks at a thousand runs at most, and counts a hundred thousand jobs of each.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    found: list[Listed] = []
    looked = 0
    while len(found) < limit and looked < _LOOKED:
        at, run = before or (None, "")
        labels = storable_json(dict(wanted.labels))
        rows = await operations.fetch(_RUNS, at, run, limit, wanted.owner, labels, wanted.late)
        page = await _counted(operations, rows, exact=wanted.exact)
        found += [one for one in page if wanted.takes(one)]
        looked += len(rows)
        if len(rows) < limit:
            break
        before = (rows[-1]["created_at"], rows[-1]["run"])
    return found[:limit]


_CREATED: Final = "select created_at from acklast.runs where run = $1"


async def created_at(operations: Operations, run: str) -> datetime | None:
    """When a run's manifest was begun; None where it has none.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(_CREATED, run)
    return rows[0]["created_at"] if rows else None


async def list_by_header(operations: Operations, limit: int, wanted: Wanted = EVERY) -> list[Listed]:
    """Runs that no manifest names and of which nothing is said, in the order of their names.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(_BY_HEADER, limit)
    return [one for one in await _counted(operations, rows, exact=wanted.exact) if wanted.takes(one)]


async def _counted(operations: Operations, rows: list[asyncpg.Record], *, exact: bool) -> list[Listed]:
    counts: dict[str, list[asyncpg.Record]] = {row["run"]: [] for row in rows}
    most = None if exact else COUNTED + 1
    for row in await operations.fetch(_COUNTS, list(counts), most, LATELY_S):
        counts[row["run"]].append(row)
    listed = []
    for row in rows:
        there = sum(one["jobs"] for one in counts[row["run"]] if not one["pruned"])
        listed.append(Listed(view_of(row["run"], row, counts[row["run"]]), exact or there <= COUNTED))
    oldest = await oldest_of(operations, [one.view.run for one in listed if one.counted and one.view.open])
    return [replace(one, oldest=oldest.get(one.view.run)) for one in listed]


async def oldest_of(operations: Operations, runs: Sequence[str]) -> dict[str, Oldest]:
    """The oldest open job of each run that has one.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(_OLDEST, list(runs)) if runs else []
    return {
        row["run"]: Oldest(row["lane"], row["key"], State(row["state"]), row["since"], row["enqueued_at"])
        for row in rows
    }


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
