"""When daemons lived, and when operators had something paused: a rate is told of the time in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from acklast.ledger.backlog import PACE_MIN, Asked
from acklast.ledger.controls import Target


@dataclass(frozen=True, slots=True)
class Session:
    """A daemon's session. ``end`` is None while it lives; a killed one ended when it was last heard of."""

    session: int
    begin: datetime
    end: datetime | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """A lane or budget was paused. ``begin`` None: from before what was read; ``end`` None: it still is, or
    until a time that is not over.
    """

    target: Target
    name: str
    begin: datetime | None
    end: datetime | None


@dataclass(frozen=True, slots=True)
class Changed:
    """One change by an operator: whether it was paused before, and after it, and until when."""

    at: datetime
    target: Target
    name: str
    was: bool
    is_: bool
    until: datetime | None = None


# Few rows: retention keeps them for days, and daemons start rarely.
_SESSIONS: Final = """
    select w.id as session, w.started_at as begin,
           case when w.ended_at <= w.lease_until then w.ended_at
                when w.lease_until <= t.now then w.lease_until - make_interval(secs => w.lease_s) end as end
    from (select clock_timestamp()) as t (now) cross join acklast.workers w
    where coalesce(w.ended_at, w.lease_until) > t.now - make_interval(mins => $1)
    order by w.id
"""
# A day of it: a pause of the last hour may have begun before. The audit is found by its time.
_CHANGES: Final = """
    select a.at, a.detail->>'target' as target, a.detail->>'name' as name,
           coalesce(a.detail->'before' @> '[{"control": "pause"}]', false) as was, p.pause is not null as is_,
           (p.pause->>'until')::timestamptz as until
    from acklast.audit a
    left join lateral (
        select e as pause from jsonb_array_elements(a.detail->'after') as e
        where e->>'control' = 'pause' limit 1
    ) as p on true
    where a.action like 'lanes.%' and a.at > clock_timestamp() - interval '1 day'
    order by a.id desc limit 500
"""


async def read_sessions(operations: Asked) -> tuple[Session, ...]:
    """Those that lived in the minutes of which the completions are known.

    Raises:
        LedgerUnavailable: it does not answer.
    """
    rows = await operations.fetch(_SESSIONS, PACE_MIN + 1)
    return tuple(Session(row["session"], row["begin"], row["end"]) for row in rows)


async def read_stops(operations: Asked) -> tuple[Stop, ...]:
    """What was paused in the last hour, or somewhat longer ago.

    Raises:
        LedgerUnavailable: it does not answer.
    """
    rows = await operations.fetch(_CHANGES)
    changes = [
        Changed(row["at"], Target(row["target"]), row["name"], row["was"], row["is_"], row["until"])
        for row in reversed(rows)
    ]
    return tuple(stops_of(changes))


def stops_of(changes: Sequence[Changed]) -> list[Stop]:
    """``changes``: the oldest first. A pause goes until the next change, unless its own end comes sooner."""
    found: list[Stop] = []
    for target, name in dict.fromkeys((one.target, one.name) for one in changes):
        found += _stops(target, name, [one for one in changes if (one.target, one.name) == (target, name)])
    return found


def _stops(target: Target, name: str, changes: Sequence[Changed]) -> Iterable[Stop]:
    if changes[0].was:
        yield Stop(target, name, None, changes[0].at)
    for one, later in zip(changes, [*changes[1:], None], strict=True):
        if one.is_:
            ends = [end for end in (one.until, later.at if later else None) if end is not None]
            yield Stop(target, name, one.at, min(ends, default=None))
