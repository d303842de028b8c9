"""What is to be done, in numbers: by lane, priority, state and run, and how fast it went lately.

The one reading that forecasts, metrics and ``acklast why`` and ``top`` go by.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import asyncpg

from acklast.ledger.about import Cancellation, RunAbout
from acklast.ledger.api import LATELY_S, RunView, State
from acklast.ledger.run_status import Status, status
from acklast.telemetry.metric import MOST, OTHER
from acklast_topology.value import value

PACE_MIN: Final = 60
"""Minutes of which the completions are known."""
DEPTHS: Final = (State.QUEUED, State.WAITING, State.CLAIMED, State.UNRESOLVED, State.DEAD)
"""The states of jobs that somebody still has to do with: those that are counted as a depth."""
_STATES: Final = (*DEPTHS, State.DONE, State.CANCELLED)
_BUCKET: Final = timedelta(seconds=15)
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
OPEN: Final = frozenset({State.QUEUED, State.WAITING, State.CLAIMED})


@value
class Depth:
    """So many jobs of one lane, priority class, state and run. ``run`` is None for jobs of none, and of runs
    that have nothing to do any more: of those there may be any number.

    ``priority`` is ``high``, ``normal`` or ``low``. Jobs that only the broker knows are in none.
    """

    lane: str
    priority: str
    state: State
    run: str | None
    jobs: int


@dataclass(frozen=True, slots=True)
class Oldest:
    """Since when the oldest job of a lane and priority may start and has not: so long at least, and up to
    15 seconds more. ``jobs``: how many may start and have not.
    """

    lane: str
    priority: str
    since: datetime
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Pace:
    """What one minute did, of a lane: jobs that were done, starts, and jobs that ended as dead or unresolved.

    ``minute`` is its beginning; the newest one still runs. ``run`` is told of that one and of the one before,
    and is None for jobs of none.
    """

    lane: str
    run: str | None
    minute: datetime
    done: int
    claimed: int
    dead: int


@dataclass(frozen=True, slots=True)
class Dead:
    """Dead letters of a lane and reason that nobody has dealt with.

    ``lane`` is empty where it is none that is known: whoever may publish makes those up. A lane has ``MOST``
    reasons, its commonest; the others are ``OTHER``.
    """

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
    """Jobs that were done, dead or unresolved in the last ``LATELY_S`` seconds, or nearly so many."""

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
class Rows:
    """How many rows the counts are: added since the last sum, and sums."""

    added: int = 0
    summed: int = 0


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
    redrives: Mapping[str, int] = field(default_factory=dict)
    """Those that have not ended, by status."""
    complete: bool = True
    """False where the jobs from before there were counts are not in them yet: then none of them is told."""
    rows: Rows = Rows()

    def jobs(self, lane: str | None = None, run: str | None = None, *states: State) -> int:
        """Jobs of this lane and run (None: whichever), in these states; in all of them without any."""
        return sum(
            one.jobs
            for one in self.depths
            if lane in (None, one.lane) and run in (None, one.run) and (not states or one.state in states)
        )

    def not_due(self, lane: str) -> int:
        """Jobs of this lane that wait for their time, without those for which it has come: their messages are
        in its work queue, though nobody has told the ledger.
        """
        due = sum(one.jobs for one in self.oldest if one.lane == lane)
        waiting, queued = self.jobs(lane, None, State.WAITING), self.jobs(lane, None, State.QUEUED)
        return min(waiting, max(0, queued + waiting - due))


class Asked(Protocol):
    """What runs one statement that only reads: ``Operations``, or a daemon's own connection."""

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]: ...


# One statement, and so one moment. Rows of one shape: ``what`` says which columns mean something. Nothing of
# ``acklast.jobs`` is read: the counts are sums of what its triggers have added (``job_counts``). What is
# known of open runs is looked up one by one (``offset 0``): there may be any number of others. Which runs are
# open is told row by row, and not joined: the counts come and go, so that by their statistics there are none,
# and for a join Postgres would hold each against each.
#
# Dead letters come as few rows, however many lanes their publishers made up and reasons their handlers: those
# of a lane that has neither jobs nor a daemon have none, and the rarest reasons of each are one. They are
# sorted byte by byte: by a language's rules that takes longer than all the rest.
_READ: Final = """
with t as materialized (
    select now, date_trunc('minute', now) as minute from (select clock_timestamp()) as c (now)
),
level as materialized (
    select g.*, run <> '' and max(queued + waiting + claimed) over (partition by run) > 0 as is_open
    from (select lane, run, priority, sum(queued) as queued, sum(waiting) as waiting, sum(claimed) as claimed,
                 sum(unresolved) as unresolved, sum(dead) as dead, sum(done) as done,
                 sum(cancelled) as cancelled, count(*) filter (where not summed) as added,
                 count(*) filter (where summed) as sums
          from acklast.job_counts where priority <> '' group by lane, run, priority) as g
),
open_runs as materialized (
    select distinct run from level where is_open
),
known as materialized (
    select lane from level union select lane from acklast.lane_reports union select unnest($2::text[])
),
letters as (
    select case when lane in (select lane from known) then lane else '' end as known_lane,
           reason collate "C" as reason, sum(letters) as letters
    from acklast.dead_counts group by 1, 2 having sum(letters) <> 0
)
select 'at' as what, null::text as lane, null::text as priority, null::text as run, null::text as name,
       t.now as at, null::timestamptz as deadline, (select count(*) from acklast.job_counting) as a,
       coalesce(sum(l.added), 0)::bigint as b, coalesce(sum(l.sums), 0)::bigint as c,
       0::bigint as d, 0::bigint as e, 0::bigint as f, 0::bigint as g
from t left join level l on true group by t.now
union all
select 'level', l.lane, l.priority, l.run, null, null, null, l.queued, l.waiting, l.claimed, l.unresolved,
       l.dead, l.done, l.cancelled
from level l where l.is_open
union all
select 'level', lane, priority, null, null, null, null, sum(queued)::bigint, sum(waiting)::bigint,
       sum(claimed)::bigint, sum(unresolved)::bigint, sum(dead)::bigint, 0, 0
from level l where not l.is_open group by lane, priority
union all
select 'oldest', lane, priority, null, null, min(due), null, sum(startable)::bigint, 0, 0, 0, 0, 0, 0
from (select s.lane, s.priority, s.due, sum(s.startable) as startable
      from t cross join lateral (
          select lane, priority, due, startable from acklast.job_dues where due <= t.now
          union all
          select lane, priority, due, startable from acklast.job_counts where due <= t.now) as s
      group by s.lane, s.priority, s.due having sum(s.startable) > 0) as d
group by lane, priority
union all
select 'pace', p.lane, null, p.run, null, p.minute, null, sum(p.completed)::bigint, sum(p.started)::bigint,
       sum(p.failed)::bigint, 0, 0, 0, 0
from (select c.lane, case when c.minute >= t.minute - interval '1 min' then nullif(c.run, '') end as run,
             c.minute, c.completed, c.started, c.failed
      from acklast.job_counts c cross join t where c.minute > t.minute - make_interval(mins => $1)) as p
group by p.lane, p.run, p.minute having (sum(p.completed), sum(p.started), sum(p.failed)) <> (0, 0, 0)
union all
select 'dead', d.lane, null, null, d.name, null, null, sum(d.letters)::bigint, 0, 0, 0, 0, 0, 0
from (select known_lane as lane, letters,
             case when row_number() over (partition by known_lane order by letters desc, reason) <= $3
                  then reason else $4 end as name
      from letters) as d
group by d.lane, d.name
union all
select 'run', null, null, o.run, null, r.created_at, r.deadline, r.manifest,
       exists (select from acklast.cancelled_runs c where c.run = o.run)::int, 0, 0, 0, e.done, e.cancelled
from open_runs o
     left join lateral (select created_at, deadline, manifest from acklast.runs r
                        where r.run = o.run offset 0) as r on true
     cross join lateral (select coalesce(sum(done), 0)::bigint as done,
                                coalesce(sum(cancelled), 0)::bigint as cancelled
                         from acklast.job_counts_over e where e.run = o.run) as e
union all
select 'workers', r.lane, null, null, r.state, null, null, count(*), 0, 0, 0, 0, 0, 0
from t cross join acklast.lane_reports r join acklast.workers w on w.id = r.session
where w.ended_at is null and w.lease_until > t.now group by r.lane, r.state
union all
select 'redrives', null, null, null, status, null, null, count(*), 0, 0, 0, 0, 0, 0
from acklast.redrives where ended_at is null group by status
"""


async def read_backlog(operations: Asked, lanes: Collection[str] = ()) -> Backlog:
    """``lanes``: others that are known, though they may have no jobs and no daemon yet.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(_READ, PACE_MIN, tuple(lanes), MOST, OTHER)
    # A thousand open runs are thousands of rows: a daemon's jobs go on meanwhile.
    return await asyncio.to_thread(backlog_of, rows)


def backlog_of(rows: Sequence[asyncpg.Record]) -> Backlog:
    """The rows of the reading as what they mean."""
    kinds: dict[str, list[asyncpg.Record]] = {}
    for row in rows:
        kinds.setdefault(row[0], []).append(row)

    def of(what: str) -> list[asyncpg.Record]:
        return kinds.get(what, [])

    [moment] = of("at")
    found = Backlog(
        at=moment["at"],
        dead=tuple(Dead(row["lane"], row["name"], row["a"]) for row in of("dead")),
        workers=tuple(Working(row["lane"], row["name"], row["a"]) for row in of("workers")),
        redrives={row["name"]: row["a"] for row in of("redrives")},
        rows=Rows(moment["b"], moment["c"]),
    )
    if not moment["a"]:
        return replace(found, complete=False)
    pace = tuple(Pace(row["lane"], row["run"], row["at"], row["a"], row["b"], row["c"]) for row in of("pace"))
    return replace(
        found,
        depths=tuple(_depths(of("level"))),
        oldest=tuple(Oldest(row["lane"], row["priority"], row["at"], row["a"]) for row in of("oldest")),
        pace=pace,
        runs=tuple(_runs(of("run"), of("level"), ended_lately(pace, found.at))),
    )


_FIRST: Final = 7
"""The column of the first number."""


def _depths(levels: Sequence[asyncpg.Record]) -> Iterator[Depth]:
    for level in levels:
        _, lane, priority, run, *_ = level
        for state, jobs in zip(DEPTHS, level[_FIRST:], strict=False):
            if jobs:
                yield Depth(lane, priority, state, run, jobs)


def ended_lately(pace: Iterable[Pace], at: datetime) -> Counter[str]:
    """How many jobs of each run ended in the last ``LATELY_S`` seconds; of the minute before this one the
    part that is still within them is taken for an even one.
    """
    ended = Counter[str]()
    minute = at.replace(second=0, microsecond=0)
    rest = 1 - (at - minute).total_seconds() / LATELY_S
    for one in pace:
        if one.run is not None and minute - one.minute < timedelta(minutes=2):
            part = 1 if one.minute == minute else rest
            ended[one.run] += round((one.done + one.dead) * part)
    return ended


def _runs(
    runs: Sequence[asyncpg.Record], levels: Sequence[asyncpg.Record], ended: Mapping[str, int]
) -> list[OpenRun]:
    """The nearest deadline first."""
    counts = {row["run"]: list(row[_FIRST + len(DEPTHS) :]) for row in runs}
    counts = {run: [0] * len(DEPTHS) + over for run, over in counts.items()}
    for level in levels:
        if (sums := counts.get(level["run"])) is not None:
            counts[level["run"]] = [sum(pair) for pair in zip(sums, level[_FIRST:], strict=True)]
    found = [
        OpenRun(
            run=row["run"],
            counts={state: jobs for state, jobs in zip(_STATES, counts[row["run"]], strict=True) if jobs},
            manifest=row["a"],
            created_at=row["at"],
            deadline=row["deadline"],
            cancelled=bool(row["b"]),
            ended_lately=ended.get(row["run"], 0),
        )
        for row in runs
    ]
    return sorted(found, key=by_deadline)


def by_deadline(run: OpenRun) -> tuple[datetime, str]:
    return (run.deadline or _NEVER, run.run)


def due_bucket(at: datetime) -> datetime:
    """From when on a job counts as one that may start: as ``acklast.job_due`` has it."""
    late_s = (at - _EPOCH) % _BUCKET
    return at + (_BUCKET - late_s if late_s else timedelta(0))
