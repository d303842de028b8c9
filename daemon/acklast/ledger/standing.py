"""What daemons and the ledger say of the lanes, read for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from acklast.ledger.backlog import Asked
from acklast.ledger.controls import Control, control_of
from acklast.ledger.presence import Session, Stop, read_sessions, read_stops


@dataclass(frozen=True, slots=True)
class DaemonView:
    """One lane in one daemon, by the daemon's own word. ``live``: whether its session's lease holds."""

    session: int
    worker: str
    live: bool
    silent_s: float
    """Since its lease ran out; 0 while it is live."""
    heard: int
    concurrency: int
    in_flight: int
    held: int
    started: int
    window_s: float
    permits: int | None
    busy: int | None
    rate_per_s: float | None
    state: str
    until: datetime | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Pause:
    """A downstream asked for quiet, for the whole fleet."""

    until: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Standing:
    """All of it, at one moment of the ledger's clock."""

    now: datetime
    changed: int
    """The number of the last change by an operator."""
    lanes: Mapping[str, tuple[DaemonView, ...]]
    pauses: Mapping[str, Pause]
    controls: tuple[Control, ...]
    sessions: tuple[Session, ...] = ()
    """Of all daemons, and of those that have ended in the last hour."""
    stops: tuple[Stop, ...] = ()
    """What operators had paused lately."""


_SILENT_S: Final = 3600.0
"""A daemon whose lease ran out longer ago is nobody's news any more."""

_LANES: Final = """
    select t.now, r.*, w.worker, w.lease_until > t.now as live,
           greatest(0, extract(epoch from t.now - w.lease_until))::float8 as silent_s,
           coalesce((select max(id) from acklast.audit where action like 'lanes.%'), 0) as changed
    from (select clock_timestamp()) as t (now)
    left join (acklast.lane_reports r join acklast.workers w on w.id = r.session and w.ended_at is null)
        on w.lease_until > t.now - make_interval(secs => $1)
    order by r.lane, r.session
"""
_PAUSES: Final = """
    select name, paused_until, coalesce(paused_reason, '') as reason
    from acklast.budgets where paused_until > clock_timestamp()
"""
_CONTROLS: Final = """
    select target, name, control, amount, period_s, until, actor, reason, at,
           extract(epoch from until - clock_timestamp())::float8 as left_s
    from acklast.controls where until is null or until > clock_timestamp()
    order by target, name, control
"""


async def read_standing(operations: Asked) -> Standing:
    """
    Raises:
        LedgerUnavailable: it does not answer.
    """
    rows = await operations.fetch(_LANES, _SILENT_S)
    lanes: dict[str, list[DaemonView]] = {}
    for row in rows:
        if row["lane"] is not None:
            lanes.setdefault(row["lane"], []).append(_daemon(row))
    return Standing(
        rows[0]["now"],
        rows[0]["changed"],
        {lane: tuple(daemons) for lane, daemons in lanes.items()},
        {row["name"]: Pause(row["paused_until"], row["reason"]) for row in await operations.fetch(_PAUSES)},
        tuple(control_of(row) for row in await operations.fetch(_CONTROLS)),
        await read_sessions(operations),
        await read_stops(operations),
    )


def _daemon(row: asyncpg.Record) -> DaemonView:
    return DaemonView(**{name: row[name] for name in DaemonView.__slots__})
