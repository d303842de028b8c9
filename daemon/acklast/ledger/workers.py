"""The daemons as the ledger knows them: who runs what, since when, and who is asked to drain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from acklast.ledger.audit import put_down
from acklast.ledger.controls import CHANNEL
from acklast.ledger.operate import Operations, Operator

LATELY_S: Final = 86_400.0
"""Sessions that ended longer ago are nobody's news any more."""
SILENT_S: Final = 3600.0
"""The same of those that only ceased to renew their lease."""


class State(StrEnum):
    """How a session stands."""

    LIVE = "live"
    DRAINING = "draining"
    SILENT = "silent"
    """Its lease ran out, and nobody has ended it: the daemon was killed, or cannot reach the ledger."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker session. ``worker`` is its instance, host and process, for people."""

    session: int
    instance: str
    worker: str
    version: str
    """The application's."""
    release: str | None
    """acklast's own."""
    state: State
    started_at: datetime
    heartbeat_at: datetime
    """When its lease was last renewed."""
    lease_s: float
    lease_left_s: float
    ended_at: datetime | None
    lanes: tuple[str, ...]
    in_flight: int | None
    """Over its lanes; None where it has not told, or has ended."""
    held: int | None
    draining_at: datetime | None
    drain_asked_at: datetime | None
    drain_by: str | None
    drain_reason: str | None


# Few rows; retention removes the old ones.
_WORKERS: Final = """
    select w.id as session, split_part(w.instance, ':', 1) as instance, w.worker, w.version, w.release,
           case when w.ended_at is not null then 'ended' when w.lease_until <= t.now then 'silent'
                when w.draining_at is not null then 'draining' else 'live' end as state,
           w.started_at, w.lease_until - make_interval(secs => w.lease_s) as heartbeat_at, w.lease_s,
           case when w.ended_at is null then greatest(0, extract(epoch from w.lease_until - t.now)) else 0
           end::float8 as lease_left_s,
           w.ended_at, coalesce(r.lanes, '{}') as lanes, r.in_flight, r.held,
           w.draining_at, w.drain_asked_at, w.drain_by, w.drain_reason
    from (select clock_timestamp()) as t (now) cross join acklast.workers w
    left join lateral (
        select array_agg(l.lane order by l.lane) as lanes, sum(l.in_flight) as in_flight, sum(l.held) as held
        from acklast.lane_reports l where l.session = w.id and w.ended_at is null
    ) as r on true
    where case when w.ended_at is null and not $1 then w.lease_until > t.now - make_interval(secs => $2)
               when w.ended_at is null or $1
               then coalesce(w.ended_at, w.lease_until) > t.now - make_interval(secs => $3)
               else false end
    order by w.id
"""


async def read_workers(operations: Operations, *, ended: bool) -> list[WorkerView]:
    """The sessions that have not ended, the oldest first; with ``ended`` those that did lately too.

    Raises:
        LedgerUnavailable: it does not answer.
    """
    rows = await operations.fetch(_WORKERS, ended, SILENT_S, LATELY_S)
    return [_view(dict(row)) for row in rows]


def _view(row: dict[str, Any]) -> WorkerView:
    return WorkerView(**row | {"state": State(row["state"]), "lanes": tuple(row["lanes"])})


def named(views: Sequence[WorkerView], name: str) -> list[WorkerView]:
    """Those that a name means: a session's number, a whole worker, its host and process, or an instance."""
    ways = (
        [view for view in views if view.worker == name],
        [view for view in views if view.instance == name or view.worker.partition("@")[2] == name],
        [view for view in views if str(view.session) == name],
    )
    return next((found for found in ways if found), [])


_ASK: Final = """
    update acklast.workers set drain_asked_at = clock_timestamp(), drain_by = $2, drain_reason = $3
    where id = $1 and ended_at is null and drain_asked_at is null returning id
"""
_NOTIFY: Final = "select pg_notify($1, '')"


async def ask_to_drain(operations: Operations, view: WorkerView, operator: Operator, why: str) -> bool:
    """Ask one daemon to drain, in one commit with its audit; False where it is asked already or has ended.

    Raises:
        LedgerUnavailable: it may or may not be asked; the audit tells.
    """
    async with operations.changing() as connection:
        if not await connection.fetch(_ASK, view.session, operator.name, why):
            return False
        effect = {"session": view.session, "worker": view.worker}
        await put_down(connection, operator, "workers.drain", effect, reason=why)
        await connection.execute(_NOTIFY, CHANNEL)
    return True
