"""The operators' side of the controls: every change is one transaction with its audit and its notice."""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

import asyncpg

from acklast.ledger.connect import Address, Connection, unavailable_as_error
from acklast.ledger.controls import CHANNEL, Control, Kind, Target, control_of
from acklast.ledger.evidence import storable_json
from acklast.ledger.migrate import check_schema_of

_PIECE: Final = 5_000
_PROMPT: Final = {"jit": "off"}
"""A page of a large table takes milliseconds, and looks so expensive that compiling it would take seconds."""
_PATIENT: Final = {**_PROMPT, "statement_timeout": "10min"}
_PATIENT_S: Final = 615.0
_LOCK: Final = int.from_bytes(hashlib.sha256(b"acklast controls").digest()[:8], signed=True)


@dataclass(frozen=True, slots=True)
class Operator:
    """Who asks: the name that goes into the audit, and the login that the command ran under."""

    name: str
    login: str

    @classmethod
    def of(cls, given: str | None) -> Operator:
        """``given`` is what they call themselves; without it the login is the name."""
        login = _login()
        return cls(given or login, f"{login}@{socket.gethostname()}")


def _login() -> str:
    with suppress(OSError, KeyError):  # a uid without an entry, as in a container
        return getpass.getuser()
    return "unknown"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One control that is to be in force from now on."""

    kind: Kind
    amount: int | None = None
    period_s: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one lane or budget. ``end`` names the controls that end, ``begin`` those that come."""

    action: str
    target: Target
    name: str
    end: tuple[Kind, ...]
    begin: tuple[Wanted, ...] = ()
    reason: str = ""
    until: datetime | timedelta | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """One entry of the history. ``before`` and ``after`` are what was and is in force for the target."""

    id: int
    at: datetime
    actor: str
    login: str
    action: str
    target: str
    name: str
    reason: str
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Follower:
    """A living daemon. ``heard``: up to which change it follows; None where it does not report at all."""

    worker: str
    heard: int | None
    lanes: tuple[str, ...]


class Operations:
    """One connection of a command."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, address: Address, *, patient: bool = False) -> Self:
        """``patient``: a statement may take minutes, as one that reads a run of many millions of jobs does.

        Raises:
            ConfigError, SchemaError: the ledger must not be used like this.
            LedgerUnavailable: it does not answer.
        """
        connection = await (
            address.open(_PATIENT, timeout_s=_PATIENT_S) if patient else address.open(_PROMPT)
        )
        try:
            await check_schema_of(connection)
        except BaseException:
            connection.terminate()
            raise
        return cls(connection)

    def close(self) -> None:
        self._connection.terminate()

    @property
    def connection(self) -> Connection:
        """For what is more than one statement and less than one transaction."""
        return self._connection

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Run one statement that only reads.

        Raises:
            LedgerUnavailable: it does not answer.
        """
        with unavailable_as_error():
            return await self._connection.fetch(sql, *args)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """All that is read meanwhile is of one moment.

        Raises:
            LedgerUnavailable: it does not answer.
        """
        with unavailable_as_error():
            async with self._connection.transaction(isolation="repeatable_read", readonly=True):
                yield

    async def walk(self, sql: str, *args: Any) -> AsyncIterator[asyncpg.Record]:
        """The rows of a statement, some thousand in memory at a time. Within a ``snapshot``.

        Raises:
            LedgerUnavailable: it does not answer.
        """
        with unavailable_as_error():
            async for row in self._connection.cursor(sql, *args, prefetch=_PIECE):
                yield row

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[Connection]:
        """The connection in a transaction: all that is done with it is one commit, or nothing.

        Raises:
            LedgerUnavailable: it may or may not have been committed.
        """
        with unavailable_as_error():
            async with self._connection.transaction():
                yield self._connection

    # --- changing -----------------------------------------------------------------------------------

    # Changes come one after another: so each has read what the one before it left, and whoever has read the
    # audit up to one of them has read its controls too.
    _ALONE: Final = "select pg_advisory_xact_lock($1)"

    _OVER: Final = "delete from acklast.controls where until <= clock_timestamp()"

    _IN_FORCE: Final = """
        select target, name, control, amount, period_s, until, actor, reason, at, null::float8 as left_s
        from acklast.controls where target = $1 and name = $2 order by control
    """

    _END: Final = "delete from acklast.controls where target = $1 and name = $2 and control = any($3)"

    _BEGIN: Final = """
        insert into acklast.controls (target, name, control, amount, period_s, until, actor, reason)
        values ($1, $2, $3, $4, $5, coalesce($6, clock_timestamp() + $7::interval), $8, $9)
    """

    _AUDIT: Final = """
        with entry as (
            insert into acklast.audit (actor, action, lane, detail)
            values ($1, $2, $3, $4::jsonb || jsonb_build_object('role', session_user)) returning id
        )
        select id, pg_notify($5, id::text) from entry
    """

    async def change(self, change: Change, operator: Operator) -> int | None:
        """Make the change for the whole fleet; its number, or None where there was nothing to end.

        Raises:
            LedgerUnavailable: it may or may not have been made; the history tells.
        """
        with unavailable_as_error():
            async with self._connection.transaction():
                return await self._change(change, operator)

    async def _change(self, change: Change, operator: Operator) -> int | None:
        connection, what = self._connection, (change.target.value, change.name)
        await connection.execute(self._ALONE, _LOCK)
        await connection.execute(self._OVER)
        before = await connection.fetch(self._IN_FORCE, *what)
        ended = await connection.execute(self._END, *what, [kind.value for kind in change.end])
        if ended == "DELETE 0" and not change.begin:
            return None
        at, after_s = change.until, None
        if isinstance(at, timedelta):
            at, after_s = None, at
        for one in change.begin:
            told = (one.kind.value, one.amount, one.period_s, at, after_s, operator.name, change.reason)
            await connection.execute(self._BEGIN, *what, *told)
        after = await connection.fetch(self._IN_FORCE, *what)
        detail = {
            "target": change.target.value,
            "name": change.name,
            "reason": change.reason,
            "login": operator.login,
            "before": [_shown(control_of(row)) for row in before],
            "after": [_shown(control_of(row)) for row in after],
        }
        lane = change.name if change.target is Target.LANE else None
        entry = (operator.name, f"lanes.{change.action}", lane, storable_json(detail), CHANNEL)
        number: int = (await connection.fetch(self._AUDIT, *entry))[0]["id"]
        return number

    # --- looking ------------------------------------------------------------------------------------

    _HISTORY: Final = """
        select id, at, actor, action, detail
        from acklast.audit
        where action like 'lanes.%'
          and ($1::text is null or (detail->>'target' = 'lane' and detail->>'name' = $1)
               or (detail->>'target' = 'budget' and detail->>'name' = $2))
        order by id desc limit $3
    """

    async def history(self, lane: str | None, budget: str | None, limit: int) -> list[Audited]:
        """What was changed, the latest last: of a lane and its budget, or of all."""
        rows = await self.fetch(self._HISTORY, lane, budget, limit)
        return [_audited(row) for row in reversed(rows)]

    _FOLLOWERS: Final = """
        select w.worker, min(r.heard) as heard, coalesce(array_agg(r.lane) filter (where r.lane is not null),
                                                         '{}') as lanes
        from acklast.workers w
        left join acklast.lane_reports r on r.session = w.id
        where w.ended_at is null and w.lease_until > clock_timestamp()
        group by w.id, w.worker order by w.id
    """

    async def followers(self) -> Sequence[Follower]:
        """The living daemons, and how far each has heard."""
        rows = await self.fetch(self._FOLLOWERS)
        return [Follower(row["worker"], row["heard"], tuple(row["lanes"])) for row in rows]


def _shown(control: Control) -> dict[str, Any]:
    """A control as the audit keeps it."""
    shown = {
        "control": control.kind.value,
        "amount": control.amount,
        "period_s": control.period_s,
        "until": control.until.isoformat() if control.until else None,
        "actor": control.actor,
        "reason": control.reason,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _audited(row: asyncpg.Record) -> Audited:
    detail = json.loads(row["detail"])
    return Audited(
        row["id"],
        row["at"],
        row["actor"],
        detail["login"],
        row["action"].removeprefix("lanes."),
        detail["target"],
        detail["name"],
        detail["reason"],
        detail["before"],
        detail["after"],
    )
