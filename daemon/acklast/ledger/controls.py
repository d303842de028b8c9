"""What operators ask of lanes and budgets, as the ledger keeps it for every daemon.

A control is in force from the commit of the change until its time is up, or until somebody takes it back. A
daemon reads all of them when it starts, whenever it hears of a change, and every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

import asyncpg

from acklast.ledger.connect import Address
from acklast.ledger.evidence import storable_json
from acklast.ledger.listen import ListeningLink

CHANNEL: Final = "acklast_controls"


class Target(StrEnum):
    """What a control is about."""

    LANE = "lane"
    BUDGET = "budget"


class Kind(StrEnum):
    """What is asked."""

    PAUSE = "pause"
    """Nothing starts."""
    QUOTA = "quota"
    """A budget's quota is so low; never above the configured one."""
    CONCURRENCY = "concurrency"
    """So many at once: of a lane in each daemon, of a budget in all of them."""


@dataclass(frozen=True, slots=True)
class Control:
    """One thing that is asked of one lane or budget, by whom and why."""

    target: Target
    name: str
    kind: Kind
    actor: str
    reason: str
    at: datetime
    amount: int | None = None
    period_s: float | None = None
    until: datetime | None = None
    left_s: float | None = None
    """Seconds until it is over, when it was read; None where it stays until it is taken back."""


@dataclass(frozen=True, slots=True)
class Report:
    """How one lane stands in one daemon."""

    lane: str
    concurrency: int
    in_flight: int
    held: int
    started: int
    window_s: float
    permits: int | None
    busy: int | None
    rate_per_s: float | None
    state: str
    left_s: float | None = None
    """Seconds until the state is over, where that is known."""


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """A daemon is to drain: by whom, and why."""

    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Read:
    """All that is in force. ``heard`` is the number of the last change that is in it."""

    heard: int
    controls: tuple[Control, ...]
    drain: DrainAsked | None = None


class Wire(Protocol):
    """A daemon's side of the controls. Every method raises ``LedgerUnavailable``."""

    async def read(self, sessions: Sequence[int] = ()) -> Read:
        """What is in force now; and whether the daemon whose sessions these are is to drain."""

    async def report(
        self, session: int, heard: int, reports: Sequence[Report], *, draining: bool = False
    ) -> None:
        """Tell how this daemon's lanes stand, up to which change it follows, and whether it drains."""

    async def close(self) -> None: ...


class PostgresWire:
    """Implements ``Wire`` on one connection, which also hears of every change at once."""

    def __init__(self, address: Address, on_change: Callable[[], None]) -> None:
        """``on_change``: read again. Also called where a notice may have been missed."""
        self._link = ListeningLink(address, CHANNEL, lambda _: on_change(), on_change)

    async def close(self) -> None:
        await self._link.close()

    # One snapshot: whoever has read this number has read all that was changed up to it.
    _READ: Final = """
        select coalesce((select max(id) from acklast.audit where action like 'lanes.%'), 0) as heard,
               c.target, c.name, c.control, c.amount, c.period_s, c.until, c.actor, c.reason, c.at,
               extract(epoch from c.until - t.now)::float8 as left_s, d.drain_by, d.drain_reason
        from (select clock_timestamp()) as t (now)
        left join acklast.controls c on c.until is null or c.until > t.now
        left join lateral (
            select w.drain_by, w.drain_reason from acklast.workers w
            where w.id = any($1::bigint[]) and w.drain_asked_at is not null order by w.id desc limit 1
        ) as d on true
        order by c.target, c.name, c.control
    """

    async def read(self, sessions: Sequence[int] = ()) -> Read:
        rows = await self._link.fetch(self._READ, list(sessions))
        first = rows[0]
        asked = None if first["drain_by"] is None else DrainAsked(first["drain_by"], first["drain_reason"])
        return Read(first["heard"], tuple(control_of(row) for row in rows if row["name"] is not None), asked)

    # Rows of sessions that ended are removed by whoever reports next: they say nothing any more. A session
    # whose lease has only run out stays: that it does not answer is worth telling.
    _REPORT: Final = """
        with gone as (
            delete from acklast.lane_reports r
            where r.session <> $1 and not exists (
                select from acklast.workers w where w.id = r.session and w.ended_at is null
            )
        ),
        drains as (
            update acklast.workers set draining_at = clock_timestamp()
            where $4 and id = $1 and draining_at is null
        )
        insert into acklast.lane_reports (session, lane, heard, concurrency, in_flight, held, started,
                                          window_s, permits, busy, rate_per_s, state, until)
        select $1, r.lane, $2, r.concurrency, r.in_flight, r.held, r.started, r.window_s, r.permits, r.busy,
               r.rate_per_s, r.state, clock_timestamp() + make_interval(secs => r.left_s)
        from jsonb_to_recordset($3::jsonb) as r (
            lane text, concurrency integer, in_flight integer, held integer, started integer,
            window_s float8, permits integer, busy integer, rate_per_s float8, state text, left_s float8)
        on conflict (session, lane) do update
        set heard = excluded.heard, concurrency = excluded.concurrency, in_flight = excluded.in_flight,
            held = excluded.held, started = excluded.started, window_s = excluded.window_s,
            permits = excluded.permits, busy = excluded.busy, rate_per_s = excluded.rate_per_s,
            state = excluded.state, until = excluded.until, at = clock_timestamp()
    """

    async def report(
        self, session: int, heard: int, reports: Sequence[Report], *, draining: bool = False
    ) -> None:
        rows = [{name: getattr(report, name) for name in Report.__slots__} for report in reports]
        await self._link.fetch(self._REPORT, session, heard, storable_json(rows), draining)


def control_of(row: asyncpg.Record | dict[str, Any]) -> Control:
    return Control(
        target=Target(row["target"]),
        name=row["name"],
        kind=Kind(row["control"]),
        actor=row["actor"],
        reason=row["reason"],
        at=row["at"],
        amount=row["amount"],
        period_s=row["period_s"],
        until=row["until"],
        left_s=row["left_s"],
    )
