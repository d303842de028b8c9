"""Schedules in the ledger: up to when it is decided what fires, whether one is paused, and what has fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import asyncpg

from acklast.ledger.connect import Link
from acklast.ledger.evidence import storable_json
from acklast.ledger.firings import rows_shown
from acklast.ledger.operate import Operator


class Cause(StrEnum):
    """Why something fired."""

    TIME = "time"
    LATE = "late"
    """Its time came while no scheduler ran."""
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Paused:
    """Since when a schedule is paused, by whom, and why."""

    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a schedule is. ``decided_until`` is None where no scheduler has seen it yet."""

    decided_until: datetime | None = None
    paused: Paused | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """All schedules at one moment, which is the ledger's."""

    now: datetime
    standings: Mapping[str, Standing]

    def of(self, name: str) -> Standing:
        return self.standings.get(name, Standing())


@dataclass(frozen=True, slots=True)
class Kind:
    """What a schedule is by the configuration, as the ledger shows it."""

    name: str
    lane: str
    expression: str
    time_zone: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class NewFiring:
    """One that is to be."""

    scheduled_at: datetime
    run: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Skipped:
    """Firings that do not fire: how many, and the first and the last of them."""

    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class FiringView:
    """One firing, or one stretch of skipped ones. ``state`` is open, done, failed or skipped."""

    id: int
    schedule: str
    scheduled_at: datetime
    run: str | None
    state: str
    cause: str
    actor: str | None
    skipped: int | None
    skipped_from: datetime | None
    rows: int
    promised: int
    known: int
    conflicts: int
    bad: int
    bad_rows: list[dict[str, Any]]
    pages: int
    tries: int
    error: str | None
    next_try_at: datetime | None
    worker: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


_LOOK: Final = """
select t.now, s.name, s.decided_until, s.paused_at, s.paused_by, s.paused_reason
from (select clock_timestamp()) as t (now) left join acklast.schedules s on true
"""

_ENTER: Final = """
insert into acklast.schedules (name, lane, expression, timezone, enabled, decided_until)
select k.*, $6 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[]) as k
on conflict (name) do update
set lane = excluded.lane, expression = excluded.expression, timezone = excluded.timezone,
    enabled = excluded.enabled, decided_until = coalesce(schedules.decided_until, excluded.decided_until)
"""

_DECIDED: Final = """
update acklast.schedules set decided_until = greatest(decided_until, $2)
where name = any($1) and paused_at is null
"""

# One statement, so one commit. The row is locked: a pause comes before it or after it. A run that is there
# already is that firing, whoever made it.
_DECIDE: Final = """
with standing as (
    update acklast.schedules set decided_until = greatest(decided_until, $2)
    where name = $1 and paused_at is null
    returning name
), fired as (
    insert into acklast.firings (schedule, scheduled_at, run, state, cause)
    select standing.name, new.at, new.run, 'open', new.cause
    from standing, unnest($3::timestamptz[], $4::text[], $5::text[]) as new (at, run, cause)
    order by new.at
    on conflict (run) where run is not null do nothing
    returning run
), passed as (
    insert into acklast.firings (schedule, scheduled_at, state, cause, skipped, skipped_from, finished_at)
    select standing.name, $7::timestamptz, 'skipped', 'late', $6::bigint, $8::timestamptz, clock_timestamp()
    from standing where $6::bigint > 0
    on conflict (schedule, scheduled_at) where run is null do nothing
)
select run from fired
"""

# Due at once where it is there and waits for its next try.
_FIRE: Final = """
with fired as (
    insert into acklast.firings (schedule, scheduled_at, run, state, cause, actor)
    values ($1, $2, $3, 'open', 'operator', $4)
    on conflict (run) where run is not null do update
    set due_at = least(firings.due_at, clock_timestamp())
    returning schedule, (xmax = 0) as new
), told as (
    insert into acklast.audit (actor, action, run, detail)
    select $4, 'schedules.fire', $3,
           jsonb_build_object('login', $5::text, 'role', session_user, 'schedule', schedule, 'new', new)
    from fired
)
select schedule, new from fired
"""

_PAUSE: Final = """
with changed as (
    insert into acklast.schedules (name, lane, expression, timezone, paused_at, paused_by, paused_reason)
    values ($1, $6, $7, $8, clock_timestamp(), $2, $5)
    on conflict (name) do update set paused_at = clock_timestamp(), paused_by = $2, paused_reason = $5
    where schedules.paused_at is null
    returning name
)
insert into acklast.audit (actor, action, detail)
select $2, $3, $4::jsonb || jsonb_build_object('role', session_user, 'schedule', name) from changed
returning id
"""
_RESUME: Final = """
with changed as (
    update acklast.schedules
    set paused_at = null, paused_by = null, paused_reason = null,
        decided_until = greatest(decided_until, $5::timestamptz)
    where name = $1 and paused_at is not null
    returning name
)
insert into acklast.audit (actor, action, detail)
select $2, $3, $4::jsonb || jsonb_build_object('role', session_user, 'schedule', name) from changed
returning id
"""

_HISTORY: Final = """
select * from acklast.firing_views
where ($1::text is null or schedule = $1) and ($3::bigint is null or id < $3)
order by id desc limit $2
"""
_OF_RUN: Final = "select * from acklast.firing_views where run = $1"
_LATEST: Final = """
select v.* from unnest($1::text[]) as n (name)
cross join lateral (
    select * from acklast.firing_views
    where schedule = n.name and run is not null order by scheduled_at desc, id desc limit 1
) as v
"""


class Schedules:
    """Every method raises ``LedgerUnavailable`` where the ledger does not answer."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def look(self) -> Known:
        """How far every schedule is, and what time it is."""
        rows = await self._link.fetch(_LOOK)
        found = {row["name"]: _standing(row) for row in rows if row["name"] is not None}
        return Known(rows[0]["now"], found)

    async def enter(self, kinds: Sequence[Kind], now: datetime) -> None:
        """Make schedules known, from now on where they are new."""
        columns = zip(*((k.name, k.lane, k.expression, k.time_zone, k.enabled) for k in kinds), strict=True)
        await self._link.fetch(_ENTER, *map(list, columns), now)

    async def decided(self, names: Sequence[str], until: datetime) -> None:
        """Up to ``until`` nothing of these is left to decide."""
        await self._link.fetch(_DECIDED, list(names), until)

    async def decide(
        self, name: str, until: datetime, firings: Sequence[NewFiring], skip: Skipped | None
    ) -> list[str]:
        """Have these fire, unless it is paused; the runs that are new."""
        ats, runs = [one.scheduled_at for one in firings], [one.run for one in firings]
        passed = (skip.count, skip.last, skip.first) if skip else (0, None, None)
        causes = [one.cause.value for one in firings]
        rows = await self._link.fetch(_DECIDE, name, until, ats, runs, causes, *passed)
        return [row["run"] for row in rows]

    async def fire(self, name: str, firing: NewFiring, operator: Operator) -> tuple[str, bool]:
        """Have this fire now; the schedule whose it is, and whether it is new."""
        told = (operator.name, operator.login)
        [row] = await self._link.fetch(_FIRE, name, firing.scheduled_at, firing.run, *told)
        return row["schedule"], row["new"]

    async def pause(self, kind: Kind, operator: Operator, reason: str) -> bool:
        """Have it fire no more by itself; whether it did before."""
        told = (operator.name, "schedules.pause", _detail(operator, reason), reason)
        return bool(
            await self._link.fetch(_PAUSE, kind.name, *told, kind.lane, kind.expression, kind.time_zone)
        )

    async def resume(self, name: str, operator: Operator, reason: str, since: datetime) -> bool:
        """Have it fire again, from ``since`` on; whether it was paused."""
        told = (operator.name, "schedules.resume", _detail(operator, reason), since)
        return bool(await self._link.fetch(_RESUME, name, *told))

    async def history(self, name: str | None, limit: int) -> list[FiringView]:
        """What fired and what was skipped, the latest first."""
        return [_view(row) for row in await self._link.fetch(_HISTORY, name, limit, None)]

    async def of_run(self, run: str) -> FiringView | None:
        """The firing that made a run."""
        rows = await self._link.fetch(_OF_RUN, run)
        return _view(rows[0]) if rows else None

    async def latest(self, names: Sequence[str]) -> dict[str, FiringView]:
        """The latest firing of each that has any."""
        found = [_view(row) for row in await self._link.fetch(_LATEST, list(names))]
        return {view.schedule: view for view in found}


def _standing(row: asyncpg.Record) -> Standing:
    paused = None
    if row["paused_at"] is not None:
        paused = Paused(row["paused_at"], row["paused_by"] or "", row["paused_reason"] or "")
    return Standing(row["decided_until"], paused)


def _view(row: asyncpg.Record) -> FiringView:
    return FiringView(**(dict(row) | {"bad_rows": rows_shown(row["bad_rows"])}))


def _detail(operator: Operator, reason: str) -> str:
    return storable_json({"login": operator.login, "reason": reason})
