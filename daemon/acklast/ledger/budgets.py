"""Who holds how many permits of a budget, as the ledger keeps it.

Permits move by two acts: ``read`` what all hold, and ``write`` what this session holds from now on, which is
done only where nothing has changed since. No start of a job comes here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import asyncpg

from acklast.ledger.connect import Address
from acklast.ledger.listen import ListeningLink

CHANNEL: Final = "acklast_budgets"


@dataclass(frozen=True, slots=True)
class Holding:
    """One session's permits of one budget, and what it told of itself."""

    session: int
    held: int
    needs: int
    fresh: bool
    quota: int
    period_s: float
    hot_s: float
    live: bool = True
    hot_left_s: float = 0.0
    """Where the session has ended: seconds until its permits are cool, by the ledger's clock; negative where
    they have been for so long.
    """
    proved: bool = False
    """Its end is more than a lease that ran out: it said so itself, or its successor holds its lock."""
    waited_s: float = 0.0
    """How long it has needed some and had none."""

    def says_as(self, other: Holding) -> bool:
        """Whether both tell others the same, but for numbers that matter little."""
        return (
            self.held == other.held
            and self.fresh == other.fresh
            and bool(self.needs) == bool(other.needs)
            and abs(self.needs - other.needs) <= max(1, self.needs // 4)
            and (self.quota, self.period_s, self.hot_s) == (other.quota, other.period_s, other.hot_s)
        )


@dataclass(frozen=True, slots=True)
class Account:
    """A budget as the ledger has it. ``live``: whether the session that asks is."""

    name: str
    version: int
    paused_s: float
    live: bool
    holdings: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """What another daemon says: look again, or stop for ``paused_s``."""

    budget: str
    session: int | None = None
    paused_s: float | None = None


class Book(Protocol):
    """Keeps the budgets. Every method raises ``LedgerUnavailable`` where the store cannot be reached."""

    async def open(self, name: str, quota: int, period_s: float) -> None:
        """Make sure that the budget is known."""

    async def read(self, name: str, session: int) -> Account:
        """What all hold."""

    async def write(
        self, account: Account, mine: Holding, gone: Sequence[int], *, quota: int, period_s: float, tell: bool
    ) -> bool:
        """This session holds what ``mine`` says, and the permits of the sessions ``gone`` are nobody's.

        False, and nothing is done, where anything has changed since ``account`` was read, or the session has
        ended. ``tell`` has every daemon look again.
        """

    async def pause(self, name: str, seconds: float, reason: str) -> None:
        """Have every daemon start nothing for ``seconds``, unless a longer pause is known."""

    async def listen(self) -> None:
        """Make sure that notices arrive: after a lost connection the caller reads anew."""

    async def close(self) -> None: ...


def heard_of(payload: str) -> Heard | None:
    """A notice as it was sent; None for what is none."""
    try:
        said = json.loads(payload)
        return Heard(str(said["budget"]), said.get("session"), said.get("paused_s"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class PostgresBook:
    """Implements ``Book`` on one connection, which also hears what the others say."""

    def __init__(
        self, address: Address, on_heard: Callable[[Heard], None], on_lost: Callable[[], None]
    ) -> None:
        """``on_lost``: the connection has ended, so notices may have been missed."""

        def hear(payload: str) -> None:
            if (heard := heard_of(payload)) is not None:
                on_heard(heard)

        self._link = ListeningLink(address, CHANNEL, hear, on_lost)

    async def close(self) -> None:
        await self._link.close()

    async def listen(self) -> None:
        await self._link.fetch("select 1")

    _OPEN: Final = """
        insert into acklast.budgets (name, quota, period_s) values ($1, $2, $3) on conflict (name) do nothing
    """

    async def open(self, name: str, quota: int, period_s: float) -> None:
        await self._link.fetch(self._OPEN, name, quota, period_s)

    # One snapshot. A session is over where its end is written or its lease has run out; then its permits are
    # hot for a period more. One that is known to nobody any more ended long ago. Whoever ends a session
    # because its lease has run out does so after that: an earlier end was told by somebody who knew.
    _READ: Final = """
        select b.version, extract(epoch from b.paused_until - t.now)::float8 as paused_s,
               coalesce((select w.ended_at is null and w.lease_until > t.now
                         from acklast.workers w where w.id = $2), false) as asker_live,
               p.session, p.held, p.needs, p.fresh, p.quota, p.period_s, p.hot_s,
               coalesce(w.ended_at is null and w.lease_until > t.now, false) as live,
               coalesce(extract(epoch from coalesce(w.ended_at, w.lease_until) - t.now)::float8 + p.hot_s,
                        '-infinity') as hot_left_s,
               coalesce(w.ended_at < w.lease_until, false) as proved,
               coalesce(extract(epoch from t.now - p.since)::float8, 0) as waited_s
        from (select clock_timestamp()) as t (now)
        join acklast.budgets b on b.name = $1
        left join acklast.permits p on p.budget = b.name
        left join acklast.workers w on w.id = p.session
        order by p.session
    """

    async def read(self, name: str, session: int) -> Account:
        rows = await self._link.fetch(self._READ, name, session)
        first = rows[0]
        return Account(
            name,
            first["version"],
            max(0.0, first["paused_s"] or 0.0),
            first["asker_live"],
            tuple(_holding(row) for row in rows if row["session"] is not None),
        )

    # The update of the budget's row is the guard: a concurrent one waits for it, then finds another version
    # and does nothing. All else hangs on it. A lapsed session is ended for good before its permits are
    # anybody's: a clock that goes back must not bring it to life again.
    _WRITE: Final = """
        with guard as (
            update acklast.budgets b
            set version = b.version + 1, quota = $4, period_s = $5, updated_at = clock_timestamp()
            where b.name = $1 and b.version = $2
              and exists (select from acklast.workers w
                          where w.id = $3 and w.ended_at is null and w.lease_until > clock_timestamp())
              and not exists (select from acklast.workers w
                              where w.id = any($6) and w.ended_at is null
                                and w.lease_until > clock_timestamp())
            returning b.name
        ),
        ended as (
            update acklast.workers w set ended_at = w.lease_until from guard
            where w.id = any($6) and w.ended_at is null
        ),
        gone as (
            delete from acklast.permits p using guard g where p.budget = g.name and p.session = any($6)
        ),
        mine as (
            insert into acklast.permits as p (budget, session, held, needs, fresh, quota, period_s, hot_s,
                                              since)
            select g.name, $3, $7, $8, $9, $10, $11, $12,
                   case when $7::int = 0 and $8::int > 0 then clock_timestamp() end
            from guard g
            on conflict (budget, session) do update
            set held = excluded.held, needs = excluded.needs, fresh = excluded.fresh, quota = excluded.quota,
                period_s = excluded.period_s, hot_s = excluded.hot_s, updated_at = clock_timestamp(),
                since = case when excluded.since is null then null else coalesce(p.since, excluded.since) end
        )
        select case when $13 then pg_notify('acklast_budgets', json_build_object(
                   'budget', name, 'session', $3::bigint)::text) end
        from guard
    """

    async def write(
        self, account: Account, mine: Holding, gone: Sequence[int], *, quota: int, period_s: float, tell: bool
    ) -> bool:
        rows = await self._link.fetch(
            self._WRITE,
            account.name,
            account.version,
            mine.session,
            quota,
            period_s,
            list(gone),
            mine.held,
            mine.needs,
            mine.fresh,
            mine.quota,
            mine.period_s,
            mine.hot_s,
            tell,
        )
        return bool(rows)

    # Who listens hears how long the pause still is, so that no two clocks have to agree.
    _PAUSE: Final = """
        with paused as (
            update acklast.budgets
            set paused_until = clock_timestamp() + make_interval(secs => $2), paused_reason = $3,
                updated_at = clock_timestamp()
            where name = $1
              and coalesce(paused_until < clock_timestamp() + make_interval(secs => $2), true)
            returning name, extract(epoch from paused_until - clock_timestamp())::float8 as left_s
        )
        select pg_notify('acklast_budgets', json_build_object('budget', name, 'paused_s', left_s)::text)
        from paused
    """

    async def pause(self, name: str, seconds: float, reason: str) -> None:
        await self._link.fetch(self._PAUSE, name, seconds, reason)


def _holding(row: asyncpg.Record) -> Holding:
    return Holding(
        session=row["session"],
        held=row["held"],
        needs=row["needs"],
        fresh=row["fresh"],
        quota=row["quota"],
        period_s=row["period_s"],
        hot_s=row["hot_s"],
        live=row["live"],
        hot_left_s=0.0 if row["live"] else row["hot_left_s"],
        proved=row["proved"],
        waited_s=max(0.0, row["waited_s"]),
    )
