"""A redrive's plan: the exact set of letters is frozen, with what is left out and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from acklast.errors import AcklastError, Exit
from acklast.ledger.audit import put_down
from acklast.ledger.connect import Connection
from acklast.ledger.dead import Wanted
from acklast.ledger.evidence import storable_json
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.redrives import Redrive, one, trials
from acklast.ledger.trials import Trial

EXCLUDED: Final = {
    "closed": "are tried again or done already",
    "no_key": "have no key that is valid",
    "key_conflict": "have the key of another job",
    "gone": "have lost their message: its retention is over",
    "malformed": "break the contract, today as then",
    "key_taken": "have the key of a job that is there",
    "unresolved": "may have had their effect: acklast unresolved",
    "open": "have a job that is not dead",
    "older": "are of a job with a later letter",
    "in_redrive": "are in another redrive that is not at its end",
    "capped": "were tried again as often as [dead] max_redrives allows",
    "run_cancelled": "are of a run that was cancelled",
}
"""Why a letter cannot be tried, by code."""


class NothingToRedrive(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """No letter is meant, or none of them can be tried."""

    exit = Exit.NOT_FOUND


class SeveralLanes(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    exit = Exit.USAGE


@dataclass(frozen=True, slots=True)
class Meant:
    """Which letters: those with these ids, or else those that are wanted."""

    wanted: Wanted = field(default_factory=Wanted)
    letters: Sequence[int] = ()

    def selection(self) -> dict[str, Any]:
        """For the record."""
        if self.letters:
            return {"letters": sorted(set(self.letters))}
        wanted = {name: getattr(self.wanted, name) for name in Wanted.__slots__}
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in wanted.items()
            if value is not None
        }


# --- freezing -------------------------------------------------------------------------------------------

# $1 the redrive, $2 the lane, $3 the cap; then what says which letters.
_MATCHES: Final = """d.closed_at is null and ($4::text is null or coalesce(d.run, '') = $4)
      and ($5::text is null or d.reason = $5) and ($6::text is null or d.failure = $6)
      and ($7::timestamptz is null or d.last_failure_at >= $7)
      and ($8::timestamptz is null or d.last_failure_at < $8)"""
_BY_ID: Final = "d.id = any($4::bigint[])"

_LANES_BY_ID: Final = "select distinct lane from acklast.dead_letters where id = any($1::bigint[]) order by 1"
# There are few lanes: a walk from one to the next in the index finds them.
_LANES: Final = """
with recursive lanes (lane) as (
    (select lane from acklast.dead_letters where closed_at is null order by lane limit 1)
    union all
    select (select d.lane from acklast.dead_letters d where d.lane > l.lane and d.closed_at is null
            order by d.lane limit 1)
    from lanes l where l.lane is not null
)
select w.lane from lanes w
where w.lane is not null and exists (
    select from acklast.dead_letters d
    where d.lane = w.lane and d.closed_at is null and ($1::text is null or coalesce(d.run, '') = $1)
      and ($2::text is null or d.reason = $2) and ($3::text is null or d.failure = $3)
      and ($4::timestamptz is null or d.last_failure_at >= $4)
      and ($5::timestamptz is null or d.last_failure_at < $5))
"""

# All by joins, and none by a look for each letter: whether there are three of them or a million, the planner
# has the choice.
#
# What a canary sees is one of each kind (of failure and version) first, so that none is overlooked, and then
# a sample: at random, and so in proportion. The letters are inserted as they are tried: they lie together.
_FREEZE: Final = """
with picked as materialized (
    select d.id, d.lane, d.key, d.run, d.reason, d.failure, d.version, d.detail, d.fence, d.closed_at,
           d.payload is null as emptied
    from acklast.dead_letters d where d.lane = $2 and {which}
),
tried as (
    select p.id, count(*) filter (where r.released_at is not null) as times,
           bool_or(r.state in ('planned', 'released')
                   and q.status in ('running', 'paused', 'asking', 'stopped')) as now
    from picked p join acklast.redrive_letters r on r.lane = p.lane and r.key = p.key
                  join acklast.redrives q on q.id = r.redrive
    group by p.id
),
older as (
    select distinct p.id
    from picked p join acklast.dead_letters n on n.lane = p.lane and n.key = p.key and n.id > p.id
                                                 and (n.fence is null) = (p.fence is null)
    where n.closed_at is null
),
meant as materialized (
    select p.id, p.lane, p.key, p.run, p.reason, p.failure, p.version, j.fence,
           case
               when p.closed_at is not null then 'closed'
               when p.key is null then 'no_key'
               when p.reason = 'key_conflict' then 'key_conflict'
               when p.emptied then 'gone'
               when p.fence is null and (p.detail like '%; besides, %'
                    or not (p.reason = 'unrouted' or p.reason like 'broker\\_%')) then 'malformed'
               when p.fence is null and j.key is not null then 'key_taken'
               when p.fence is not null and j.state = 'unresolved' then 'unresolved'
               when p.fence is not null and j.state is distinct from 'dead' then 'open'
               when o.id is not null then 'older'
               when t.now then 'in_redrive'
               when t.times >= $3 then 'capped'
               when c.run is not null then 'run_cancelled'
           end as why
    from picked p
    left join acklast.jobs j on j.lane = p.lane and j.key = p.key
    left join tried t on t.id = p.id
    left join older o on o.id = p.id
    left join acklast.cancelled_runs c on c.run = p.run
),
chosen as (
    select m.*, md5(m.id::text || ' ' || $1::bigint::text) as chance,
           row_number() over (partition by m.failure, m.version
                              order by md5(m.id::text || ' ' || $1::bigint::text), m.id) > 1 as another
    from meant m where m.why is null
),
frozen as (
    insert into acklast.redrive_letters (redrive, position, letter, lane, key, run, fence, reason, failure,
                                         version)
    select $1, row_number() over (order by another, chance, id), id, lane, key, run, fence, reason, failure,
           version
    from chosen order by another, chance, id
    returning 1
)
update acklast.redrives
set letters = (select count(*) from frozen),
    excluded = coalesce((select jsonb_object_agg(why, letters)
                         from (select why, count(*) as letters from meant where why is not null group by why)
                              as by_why), '{{}}')
where id = $1
returning letters, (select count(*) from meant) as meant, excluded
"""
_BEGIN: Final = """
insert into acklast.redrives (lane, selection, letters, actor, login) values ($1, $2, 0, $3, $4) returning id
"""


async def plan(operations: Operations, meant: Meant, max_redrives: int, operator: Operator) -> Redrive:
    """Freeze the letters that are meant and can be tried. ``operations`` should be patient.

    Raises:
        NothingToRedrive, SeveralLanes: nothing was planned.
        LedgerUnavailable: it may or may not have been planned; ``redrives`` tells.
    """
    lane = await _lane_of(operations, meant)
    async with operations.changing() as connection:
        told = (lane, storable_json(meant.selection()), operator.name, operator.login)
        redrive: int = await connection.fetchval(_BEGIN, *told)
        letters = await _freeze(connection, redrive, lane, meant, max_redrives)
        effect = {"redrive": str(redrive), "letters": letters, "selection": meant.selection()}
        await put_down(connection, operator, "redrive.plan", effect, lane=lane, run=meant.wanted.run or None)
    return await one(operations, redrive)


async def _freeze(connection: Connection, redrive: int, lane: str, meant: Meant, max_redrives: int) -> int:
    # To compile it takes longer than to run it, but for very many letters; and then memory is what they need.
    await connection.execute("set local jit = off; set local work_mem = '64MB'")
    which = _BY_ID if meant.letters else _MATCHES
    given = (list(meant.letters),) if meant.letters else _bounds(meant.wanted)
    row = await connection.fetchrow(_FREEZE.format(which=which), redrive, lane, max_redrives, *given)
    assert row is not None, "the row was inserted just now"
    if not row["letters"]:
        raise _nothing(row["meant"], json.loads(row["excluded"]))
    return int(row["letters"])


def _bounds(wanted: Wanted) -> tuple[Any, ...]:
    return (wanted.run, wanted.reason, wanted.failure, wanted.since, wanted.until)


async def _lane_of(operations: Operations, meant: Meant) -> str:
    """The lane of the letters that are meant: a redrive is of one."""
    lanes = await _lanes_of(operations, meant)
    if len(lanes) > 1:
        names = ", ".join(lane or "none" for lane in lanes)
        raise SeveralLanes(
            f"these letters are of {len(lanes)} lanes: {names}",
            "A redrive is of one lane: name it with --lane",
        )
    if not lanes:
        raise _nothing(0, {})
    if not lanes[0]:
        raise NothingToRedrive(
            "these letters are of no lane: nobody knows who should do them",
            "Publish what they hold (acklast dead export --payload) anew, with a lane's routing key",
        )
    return lanes[0]


async def _lanes_of(operations: Operations, meant: Meant) -> list[str]:
    if meant.wanted.lane is not None:
        return [meant.wanted.lane]
    if meant.letters:
        rows = await operations.fetch(_LANES_BY_ID, list(meant.letters))
    else:
        rows = await operations.fetch(_LANES, *_bounds(meant.wanted))
    return [row["lane"] for row in rows]


def _nothing(meant: int, excluded: Mapping[str, int]) -> NothingToRedrive:
    if not meant:
        return NothingToRedrive(
            "no dead letter is meant by this", "See what there is: acklast dead groups, acklast dead list"
        )
    whys = "; ".join(f"{count:,} {EXCLUDED.get(why, why)}" for why, count in excluded.items())
    return NothingToRedrive(
        f"none of the {meant:,} letters can be tried again: {whys}",
        "docs/reference/commands.md says of each reason what it means",
    )


# --- what was frozen ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """Letters of a plan that failed alike, in one run."""

    reason: str
    failure: str
    run: str | None
    letters: int
    versions: Sequence[str]


@dataclass(frozen=True, slots=True)
class Preview:
    """What a plan holds. ``kinds`` are the largest, ``more`` tells whether there are others."""

    kinds: Sequence[Kind]
    more: bool
    unchanged: int
    """Tried before, failed as before, and the lane runs the version that they failed with."""
    past_deadline: int
    """Their jobs are tried, and end as ``deadline_exceeded``."""
    oldest: datetime | None
    """When the letter failed that retention takes first."""
    versions: Sequence[str]
    """That the lane's living daemons run; none where it has none."""
    first: Sequence[Trial]


_KINDS: Final = """
select reason, failure, run, count(*) as letters, array_agg(distinct version) as versions
from acklast.redrive_letters where redrive = $1 group by reason, failure, run
order by count(*) desc, reason, failure, run nulls first limit $2
"""
_PAST: Final = """
select count(*) as letters
from acklast.redrive_letters r join acklast.jobs j on j.lane = r.lane and j.key = r.key
where r.redrive = $1 and j.deadline < clock_timestamp()
"""
_OLDEST: Final = """
select min(d.last_failure_at) as at
from acklast.redrive_letters r join acklast.dead_letters d on d.id = r.letter where r.redrive = $1
"""
_VERSIONS: Final = """
select distinct w.version
from acklast.lane_reports r join acklast.workers w on w.id = r.session
where r.lane = $1 and w.ended_at is null and w.lease_until > clock_timestamp() order by 1
"""
# Tried again before, and failed as it had: with the version that runs now it would do so once more.
_AGAIN: Final = """r.redrive = $1 and r.version = any($2::text[]) and exists (
    select from acklast.redrive_letters b
    where b.lane = r.lane and b.key = r.key and b.redrive <> r.redrive and b.outcome = 'dead'
      and b.failure = r.failure and b.new_failure = r.failure)"""
_UNCHANGED: Final = f"select count(*) as letters from acklast.redrive_letters r where {_AGAIN}"  # noqa: S608 - ours
_CHANGED: Final = f"""
select exists (select from acklast.redrive_letters r where r.redrive = $1 and not ({_AGAIN})) as found
"""  # noqa: S608 - ours


async def preview(
    operations: Operations, redrive: Redrive, version: str, kinds: int = 20, first: int = 10
) -> Preview:
    """What there is to know of a plan before it is started. Each of its letters is looked at.

    ``version`` counts as the lane's where no daemon serves it.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    found = await operations.fetch(_KINDS, redrive.id, kinds + 1)
    running = await versions_of(operations, redrive.lane)
    [unchanged] = await operations.fetch(_UNCHANGED, redrive.id, running or [version])
    [past] = await operations.fetch(_PAST, redrive.id)
    [oldest] = await operations.fetch(_OLDEST, redrive.id)
    return Preview(
        [Kind(**dict(row)) for row in found[:kinds]],
        len(found) > kinds,
        unchanged["letters"],
        past["letters"],
        oldest["at"],
        running,
        await trials(operations, redrive.id, first),
    )


async def versions_of(operations: Operations, lane: str) -> list[str]:
    """The versions that the living daemons of a lane run.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return [row["version"] for row in await operations.fetch(_VERSIONS, lane)]


async def all_unchanged(operations: Operations, redrive: int, versions: Sequence[str]) -> bool:
    """Whether nothing of a plan would be tried unless it is forced.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    [row] = await operations.fetch(_CHANGED, redrive, list(versions))
    return not row["found"]
