"""A redrive as the daemon that works on it sees it: whose it is, what is next, and what became of it.

One daemon works on a redrive at a time: its session stands in the row. Every write asks for that session
again, and for the status, in the statement itself: who was taken for dead, or has been told to stop, changes
nothing more. Each transition is one statement, so that a crash leaves all of it or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg

from acklast.canary import Accepted, Live, Standing, Traffic
from acklast.ledger.api import Kept
from acklast.ledger.connect import Address, Link
from acklast.ledger.evidence import storable_json
from acklast.ledger.flush import SETTINGS
from acklast.ledger.redrive_sql import (
    COLUMNS,
    KINDS,
    LIVE,
    NEXT,
    OWN,
    RELEASE,
    SENT,
    SETTLE,
    TELL,
    TRAFFIC,
    UNSENT,
)
from acklast_topology.message import Envelope

BATCH: Final = 500
"""Letters that one statement takes."""
BATCH_BYTES: Final = 16 * 2**20
"""Of their messages, unless one alone is larger: they are in memory together."""


@dataclass(frozen=True, slots=True)
class Redrive:
    """One redrive, as it stands. ``queued``: of those that are out, what has not been started."""

    id: int
    lane: str
    status: str
    rate_per_s: float
    started_at: datetime
    now: datetime
    standing: Standing

    @property
    def running(self) -> bool:
        return self.status == "running"


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter of a redrive with its message. ``due``: its job still waits for it."""

    position: int
    key: str
    reason: str
    exchange: str
    routing_key: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    payload: bytes | None
    due: bool


@dataclass(frozen=True, slots=True)
class Attempted:
    """A letter that may be released, by its position. Without a message it is refused."""

    position: int
    message: tuple[Kept, Envelope] | None


@dataclass(frozen=True, slots=True)
class Rules:
    """What a release is held to: tries of one job at most, and the version at work."""

    most: int
    version: str


@dataclass(frozen=True, slots=True)
class Released:
    """What became of the letters of one release. ``later``: so many were left for another one.

    ``refused`` counts those that are not tried, by why, and ``example`` is the key of one. ``decided``: a
    person has said that their jobs are to run again.
    """

    redrive: Redrive
    later: int
    refused: Mapping[str, int]
    example: str | None
    decided: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """From when on the lane's other failures are counted, and the failures of redrives up to then."""

    at: datetime
    failed: int


class Redriving:
    """One daemon's connection for its redrives. Every method raises ``LedgerUnavailable``."""

    def __init__(self, address: Address) -> None:
        # As a flush has them: everything is found by its key, in tables of any size.
        self._link = Link(address, SETTINGS)

    async def close(self) -> None:
        await self._link.close()

    async def own(self, session: int, lanes: Sequence[str]) -> list[Redrive]:
        """The redrives of these lanes that this session works on, those included that it takes over now."""
        return [_redrive(row) for row in await self._link.fetch(OWN, session, list(lanes))]

    async def unsent(self, redrive: int) -> list[Letter]:
        """The next of what is released and not known to be in the broker, as many as a batch has room for."""
        return [_letter(row) for row in await self._link.fetch(UNSENT, redrive, 1, BATCH, BATCH_BYTES)]

    async def sent(self, redrive: int, session: int, positions: Sequence[int]) -> None:
        """The broker has confirmed these."""
        await self._link.fetch(SENT, redrive, session, list(positions))

    async def settle(self, redrive: int, session: int) -> Redrive | None:
        """Put down what became of those that are out; how it stands then, None where nothing is new."""
        rows = await self._link.fetch(SETTLE, redrive, session, BATCH)
        return _redrive(rows[0]) if rows else None

    async def next(self, redrive: int, first: int, count: int) -> list[Letter]:
        """The next that are not tried yet, from position ``first`` on, as many as a batch has room for."""
        rows = await self._link.fetch(NEXT, redrive, first, min(count, BATCH), BATCH_BYTES)
        return [_letter(row) for row in rows]

    async def release(
        self, redrive: Redrive, session: int, letters: Sequence[Attempted], rules: Rules
    ) -> Released | None:
        """Queue the jobs of these letters again, or refuse them. None where somebody else has the redrive, or
        it is not to go on."""
        rows = await self._link.fetch(
            RELEASE,
            redrive.id,
            session,
            redrive.standing.step,
            rules.most,
            rules.version,
            *map(list, zip(*map(_columns, letters), strict=True)),
        )
        return _released(rows[0]) if rows else None

    async def traffic(self, redrive: int, lane: str) -> tuple[Traffic, int, int]:
        """How the lane stands in the fleet, and how many of this redrive's jobs, and of all redrives', have
        not started."""
        [row] = await self._link.fetch(TRAFFIC, redrive, lane)
        found = Traffic(row["held"], row["starts_per_s"], row["open"], row["most_per_s"])
        return found, row["queued"], row["ours"]

    async def live(self, redrive: Redrive, mark: Mark | None) -> tuple[Live, Mark]:
        """What the lane's other jobs fail, since ``mark`` and before the start; and a mark of now."""
        since = redrive.now if mark is None else mark.at
        [row] = await self._link.fetch(LIVE, redrive.lane, since, redrive.started_at)
        own = 0 if mark is None else max(0, row["out"] + row["failed"] - mark.failed)
        return Live(row["before"], max(0, row["since"] - own)), Mark(row["now"], row["failed"])

    async def kinds(self, redrive: int, lane: str, since: datetime) -> list[dict[str, Any]]:
        """What its letters came to but for those that are done, the most frequent first.

        ``live`` counts the failures of the same kind that are not its own, since ``since``.
        """
        return [dict(row) for row in await self._link.fetch(KINDS, redrive, lane, since)]

    async def tell(
        self,
        redrive: Redrive,
        session: int,
        status: str,
        step: int,
        said: Mapping[str, Any],
        *,
        worker: str,
        action: str | None,
    ) -> bool:
        """Put down a decision about a running redrive; False where it is not this session's, or has been
        told something else meanwhile. ``action`` names the audit's entry."""
        rows = await self._link.fetch(
            TELL,
            redrive.id,
            session,
            redrive.standing.step,
            status,
            step,
            storable_json(said),
            worker,
            action,
        )
        return bool(rows)


def _columns(one: Attempted) -> tuple[Any, ...]:
    if one.message is None:
        return (one.position, *(None,) * 6)
    kept, envelope = one.message
    told = (envelope.fingerprint, envelope.type, envelope.run, envelope.deadline, envelope.published_at)
    return (one.position, kept.header, *told)


def _redrive(row: asyncpg.Record) -> Redrive:
    said = json.loads(row["said"] or "{}")
    accepted = Accepted(**(said.get("accepted") or {}))
    counts = {name: row[name] for name in COLUMNS}
    standing = Standing(tuple(row["steps"]), accepted=accepted, **counts)
    return Redrive(
        row["id"],
        row["lane"],
        row["status"],
        row["rate_per_s"],
        row["started_at"],
        row["now"],
        standing,
    )


def _released(row: asyncpg.Record) -> Released:
    refused = json.loads(row["refusals"] or "{}")
    return Released(_redrive(row), row["later"], refused, row["refused_key"], row["decided"])


def _letter(row: asyncpg.Record) -> Letter:
    return Letter(
        row["position"],
        row["key"],
        row["reason"] or "",
        row["exchange"] or "",
        row["routing_key"] or "",
        json.loads(row["headers"] or "{}"),
        json.loads(row["properties"] or "{}"),
        row["payload"],
        row["due"],
    )
