"""What is to be done, in numbers: by lane, priority, state and run, and how fast it went lately.

The one reading that forecasts, metrics and ``acklast why`` and ``top`` go by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import asyncpg

from acklast.ledger.about import Cancellation, RunAbout
from acklast.ledger.api import LATELY_S, RunView, State
from acklast.ledger.run_status import Status, status

PACE_MIN: Final = 60
"""Minutes of which the completions are known."""
DEPTHS: Final = (State.QUEUED, State.WAITING, State.CLAIMED, State.UNRESOLVED, State.DEAD)
"""The states of jobs that somebody still has to do with: those that are counted as a depth."""
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
OPEN: Final = frozenset({State.QUEUED, State.WAITING, State.CLAIMED})


@dataclass(frozen=True, slots=True)
class Depth:
    """So many jobs of one lane, priority class, state and run. ``run`` is None for jobs of none.

    ``priority`` is ``high``, ``normal`` or ``low``. Jobs that only the broker knows are in none.
    """

    lane: str
    priority: str
    state: State
    run: str | None
    jobs: int


@dataclass(frozen=True, slots=True)
class Oldest:
    """Since when the oldest job of a lane and priority may start, and has not: to 15 seconds, never less."""

    lane: str
    priority: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Pace:
    """What one minute did, of a lane and run: jobs that were done, starts, and jobs that became dead.

    ``minute`` is its beginning; the newest one still runs.
    """

    lane: str
    run: str | None
    minute: datetime
    done: int
    claimed: int
    dead: int


@dataclass(frozen=True, slots=True)
class Dead:
    """Dead letters of a lane and reason that nobody has dealt with."""

    lane: str
    reason: str
    letters: int


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that has something to do: all of its jobs by state, those that retention has removed left out."""

    run: str
    counts: Mapping[State, int]
    manifest: int | None = None
    created_at: datetime | None = None
    deadline: datetime | None = None
    cancelled: bool = False
    ended_lately: int = 0

    @property
    def open(self) -> int:
        return sum(self.counts.get(state, 0) for state in OPEN)

    def status(self, at: datetime) -> Status:
        """How it stands: ``open``, ``at_risk``, ``late`` or ``cancelling``."""
        return status(
            RunView(
                run=self.run,
                manifest=self.manifest,
                counts=self.counts,
                created_at=self.created_at,
                attempts=0,
                about=RunAbout(self.deadline),
                cancelled=Cancellation(at, "", "") if self.cancelled else None,
                at=at,
                ended_lately=self.ended_lately,
            )
        )


@dataclass(frozen=True, slots=True)
class Working:
    """Live daemons in which a lane stands like this (``reporter.Standing``)."""

    lane: str
    state: str
    workers: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """All of it at one moment, ``at``, of the ledger's clock."""

    at: datetime
    depths: tuple[Depth, ...] = ()
    oldest: tuple[Oldest, ...] = ()
    pace: tuple[Pace, ...] = ()
    dead: tuple[Dead, ...] = ()
    runs: tuple[OpenRun, ...] = ()
    workers: tuple[Working, ...] = ()
    redrives: Mapping[str, int] | None = None
    """Those that have not ended, by status."""

    def jobs(self, lane: str | None = None, run: str | None = None, *states: State) -> int:
        """Jobs of this lane and run (None: whichever), in these states; in all of them without any."""
        return sum(
            one.jobs
            for one in self.depths
            if lane in (None, one.lane) and run in (None, one.run) and (not states or one.state in states)
        )


class Asked(Protocol):
    """What runs one statement that only reads: ``Operations``, or a daemon's own connection."""

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]: ...


# One statement, and so one moment. Rows of one shape: ``what`` says which columns mean something.
_READ: Final = """
with t as materialized (select clock_timestamp() as now),
jobs as materialized (
    select lane, run, state, 'normal'::text as priority, count(*) as jobs,
           min(case state when 'queued' then coalesce(recorded_at, enqueued_at)
                          when 'waiting' then available_at end) as due,
           count(*) filter (where state in ('done', 'dead', 'cancelled', 'unresolved')
                            and recorded_at > t.now - make_interval(secs => $2)) as lately
    from acklast.jobs cross join t group by lane, run, state
),
open_runs as materialized (
    select run from jobs where run is not null and state in ('queued', 'waiting', 'claimed') group by run
)
select 'at' as what, null::text as lane, null::text as name, null::text as priority, null::text as run,
       now as at, null::timestamptz as deadline, 0::bigint as a, 0::bigint as b, 0::bigint as c
from t
union all
select 'depth', lane, state, priority, run, null, null, jobs, 0, 0
from jobs where state not in ('done', 'cancelled')
union all
select 'oldest', lane, null, priority, null, min(due), null, 0, 0, 0
from jobs cross join t where due <= t.now group by lane, priority
union all
select 'pace', j.lane, null, null, j.run, date_trunc('minute', j.recorded_at), null,
       count(*) filter (where state = 'done'), 0, count(*) filter (where state = 'dead')
from acklast.jobs j cross join t
where j.state in ('done', 'dead')
  and j.recorded_at >= date_trunc('minute', t.now) - make_interval(mins => $1 - 1)
group by j.lane, j.run, date_trunc('minute', j.recorded_at)
union all
select 'dead', lane, reason, null, null, null, null, sum(letters)::bigint, 0, 0
from acklast.dead_counts group by lane, reason having sum(letters) <> 0
union all
select 'run', null, null, null, o.run, r.created_at, r.deadline, r.manifest, (c.run is not null)::int, 0
from open_runs o left join acklast.runs r on r.run = o.run left join acklast.cancelled_runs c on c.run = o.run
union all
select 'count', null, state, null, run, null, null, sum(jobs)::bigint, sum(lately)::bigint, 0
from jobs where run in (select run from open_runs) group by run, state
union all
select 'workers', r.lane, r.state, null, null, null, null, count(*), 0, 0
from t cross join acklast.lane_reports r join acklast.workers w on w.id = r.session
where w.ended_at is null and w.lease_until > t.now group by r.lane, r.state
union all
select 'redrives', null, status, null, null, null, null, count(*), 0, 0
from acklast.redrives where ended_at is null group by status
"""


async def read_backlog(operations: Asked) -> Backlog:
    """
    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return backlog_of(await operations.fetch(_READ, PACE_MIN, LATELY_S))


def backlog_of(rows: Sequence[asyncpg.Record]) -> Backlog:
    """The rows of the reading as what they mean."""
    kinds: dict[str, list[asyncpg.Record]] = {}
    for row in rows:
        kinds.setdefault(row["what"], []).append(row)

    def of(what: str) -> list[asyncpg.Record]:
        return kinds.get(what, [])

    [moment] = of("at")
    return Backlog(
        at=moment["at"],
        depths=tuple(
            Depth(row["lane"], row["priority"], State(row["name"]), row["run"], row["a"])
            for row in of("depth")
        ),
        oldest=tuple(Oldest(row["lane"], row["priority"], row["at"]) for row in of("oldest")),
        pace=tuple(
            Pace(row["lane"], row["run"], row["at"], row["a"], row["b"], row["c"]) for row in of("pace")
        ),
        dead=tuple(Dead(row["lane"], row["name"], row["a"]) for row in of("dead")),
        runs=tuple(_runs(of("run"), of("count"))),
        workers=tuple(Working(row["lane"], row["name"], row["a"]) for row in of("workers")),
        redrives={row["name"]: row["a"] for row in of("redrives")},
    )


def _runs(runs: Sequence[asyncpg.Record], counts: Sequence[asyncpg.Record]) -> list[OpenRun]:
    """The nearest deadline first."""
    by_run: dict[str, dict[State, int]] = {row["run"]: {} for row in runs}
    lately = dict.fromkeys(by_run, 0)
    for row in counts:
        by_run[row["run"]][State(row["name"])] = row["a"]
        lately[row["run"]] += row["b"]
    found = [
        OpenRun(
            run=row["run"],
            counts=by_run[row["run"]],
            manifest=row["a"],
            created_at=row["at"],
            deadline=row["deadline"],
            cancelled=bool(row["b"]),
            ended_lately=lately[row["run"]],
        )
        for row in runs
    ]
    return sorted(found, key=lambda one: (one.deadline or _NEVER, one.run))
