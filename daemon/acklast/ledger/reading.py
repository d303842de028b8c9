"""Accounts read from Postgres: of jobs with one key, and of runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from acklast.ledger.about import Cancellation, RunAbout
from acklast.ledger.api import LATELY_S, AttemptView, JobView, LetterView, RunView, State
from acklast.ledger.pool import Handle
from acklast.ledger.trials import OF_JOB, Trial

ENDS: Final = frozenset({State.DONE, State.DEAD, State.CANCELLED, State.UNRESOLVED})
"""States that are no longer open."""

# The primary key begins with the lane, and an index on the key alone would cost every insert. There are few
# lanes: this walks from one to the next in the index, and looks the key up in each.
_JOBS: Final = """
with recursive lanes (lane) as (
    (select lane from acklast.jobs where $2::text is null or lane = $2 order by lane limit 1)
    union all
    select (select j.lane from acklast.jobs j where j.lane > l.lane order by j.lane limit 1)
    from lanes l where l.lane is not null and $2 is null
)
select j.*, w.worker, w.version, coalesce(j.settled_at, (
    select s.at from acklast.settlements s
    where s.session = j.session and s.at >= j.recorded_at and s.tickets @> j.ticket order by s.at limit 1
)) as acknowledged_at
from lanes l
join acklast.jobs j on j.lane = l.lane and j.key = $1
left join acklast.workers w on w.id = j.session
order by j.lane
"""

_ATTEMPTS: Final = """
select fence, attempt, outcome, reason, detail, started_at, ended_at, worker, version
from acklast.attempts where lane = $1 and key = $2 order by fence
"""

_LETTERS: Final = """
select id, lane, key, run, reason, detail, attempts, first_failure_at, last_failure_at, seen, worker, version,
       failure, trace_id
from acklast.dead_letters where lane = $1 and key = $2 order by id
"""

# Counted, never kept as a total: a counter per run would be one hot row for every job of the run. What
# retention has removed is a total, and one statement sees each job either here or there.
_RUN: Final = """
select state, false as pruned, count(*) as jobs, sum(claims)::bigint as claims,
       count(*) filter (where recorded_at > clock_timestamp() - make_interval(secs => $2)) as lately,
       max(recorded_at) as last
from acklast.jobs where run = $1 group by state
union all
select state, true, jobs, claims, 0, null from acklast.run_tallies where run = $1
"""

_MANIFEST: Final = """
select r.manifest, r.created_at, r.deadline, r.owner, coalesce(r.labels, '{}') as labels,
       c.at as cancelled_at, c.actor, c.reason, clock_timestamp() as now
from (select $1::text as run) as asked
left join acklast.runs r on r.run = asked.run
left join acklast.cancelled_runs c on c.run = asked.run
"""


async def read_jobs(connection: Handle, key: str, lane: str | None) -> list[JobView]:
    return [await _job(connection, row) for row in await connection.fetch(_JOBS, key, lane)]


async def _job(connection: Handle, row: asyncpg.Record) -> JobView:
    attempts = await connection.fetch(_ATTEMPTS, row["lane"], row["key"])
    letters = await connection.fetch(_LETTERS, row["lane"], row["key"])
    trials = await connection.fetch(OF_JOB, row["lane"], row["key"])
    return JobView(
        lane=row["lane"],
        key=row["key"],
        state=State(row["state"]),
        type=row["type"],
        run=row["run"],
        fence=row["fence"],
        attempts=row["attempts"],
        rate_limited=row["rate_limited"],
        ambiguous=row["ambiguous"],
        reason=row["reason"],
        result=_json(row["result"]),
        worker=row["worker"],
        version=row["version"],
        published_at=row["published_at"],
        enqueued_at=row["enqueued_at"],
        claimed_at=row["claimed_at"],
        available_at=row["available_at"],
        effect_at=row["effect_at"],
        recorded_at=row["recorded_at"],
        settled_at=row["acknowledged_at"],
        deadline=row["deadline"],
        history=tuple(AttemptView(**dict(attempt)) for attempt in attempts),
        letters=tuple(LetterView(**dict(letter)) for letter in letters),
        redrives=tuple(Trial(**dict(trial)) for trial in trials),
    )


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


async def read_run(connection: Handle, run: str) -> RunView | None:
    # One moment for both statements: a manifest that grows between them would not balance.
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        [made] = await connection.fetch(_MANIFEST, run)
        rows = await connection.fetch(_RUN, run, LATELY_S)
    if made["created_at"] is None and made["cancelled_at"] is None and not rows:
        return None
    return view_of(run, made, rows)


def view_of(run: str, made: asyncpg.Record, rows: Sequence[asyncpg.Record]) -> RunView:
    """A run's row, and its jobs by state."""
    counts = Counter[State]()
    for row in rows:
        counts[State(row["state"])] += row["jobs"]
    ended = [row for row in rows if row["state"] in ENDS]
    return RunView(
        run=run,
        manifest=made["manifest"],
        counts=dict(counts),
        created_at=made["created_at"],
        attempts=sum(row["claims"] for row in rows),
        pruned={State(row["state"]): row["jobs"] for row in rows if row["pruned"]},
        about=about_of(made),
        cancelled=cancellation_of(made),
        at=made["now"],
        ended_lately=sum(row["lately"] for row in ended),
        ended_at=max((row["last"] for row in ended if row["last"]), default=None),
    )


def about_of(row: asyncpg.Record) -> RunAbout:
    """What a run's row says of it."""
    return RunAbout(row["deadline"], row["owner"], json.loads(row["labels"]))


def cancellation_of(row: asyncpg.Record) -> Cancellation | None:
    """Of the columns ``cancelled_at``, ``actor`` and ``reason``."""
    if row["cancelled_at"] is None:
        return None
    return Cancellation(row["cancelled_at"], row["actor"], row["reason"])
