"""Cancelling a run: it is marked in one commit, and what is idle is cancelled in pieces after that.

From the mark on nothing of the run starts, since every claim looks for it. So the pieces need not hurry: they
may be interrupted, killed and repeated, and whatever they leave is cancelled when its message comes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import asyncpg

from acklast.ledger.about import Cancellation
from acklast.ledger.api import State
from acklast.ledger.audit import put_down
from acklast.ledger.connect import unavailable_as_error
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.run_changes import is_known
from acklast.ledger.stopping import STOP

PIECE: Final = 2_000
"""Jobs of one commit: its locks are held for some ten milliseconds."""

# Whoever promises more of this run locks its row too: one of both comes first, and the other sees it.
_LOCK: Final = "select from acklast.runs where run = $1 for no key update"
_MARK: Final = """
insert into acklast.cancelled_runs (run, actor, login, reason) values ($1, $2, $3, $4)
on conflict (run) do nothing returning at, actor, reason
"""
_MARKED: Final = "select at, actor, reason from acklast.cancelled_runs where run = $1"


@dataclass(frozen=True, slots=True)
class Marked:
    """A run's cancellation. ``new``: it was not cancelled before."""

    cancellation: Cancellation
    new: bool


async def mark_cancelled(operations: Operations, run: str, reason: str, operator: Operator) -> Marked | None:
    """Let nothing more of the run start; None where the ledger has not heard of it.

    Raises:
        LedgerUnavailable: it may or may not have been done; a repeat is safe.
    """
    async with operations.changing() as connection:
        if not await is_known(connection, run):
            return None
        await connection.execute(_LOCK, run)
        rows = await connection.fetch(_MARK, run, operator.name, operator.login, reason)
        if not rows:
            return Marked(Cancellation(**dict((await connection.fetch(_MARKED, run))[0])), new=False)
        await put_down(connection, operator, "runs.cancel", {}, reason=reason, run=run)
        return Marked(Cancellation(**dict(rows[0])), new=True)


# The list is made once, and lives outside of any transaction: there is no index by run and state, so that
# each piece that looked for itself would walk past all that is cancelled already.
_LIST: Final = """
declare acklast_idle cursor with hold for
select lane, key from acklast.jobs
where run = $1 and state in ('queued', 'waiting') and not ambiguous
"""
_NEXT: Final = f"fetch {PIECE} from acklast_idle"
_END: Final = "close acklast_idle"


async def cancel_idle(operations: Operations, run: str) -> AsyncGenerator[int, None]:
    """Cancel what is idle, piece by piece; yields how many each piece has cancelled.

    What somebody holds locked at that moment is left: call it again.

    Raises:
        LedgerUnavailable: it is as far as it has come.
    """
    with unavailable_as_error():
        connection = operations.connection
        async with connection.transaction():
            await connection.fetch(_LIST, run)
        try:
            while rows := await connection.fetch(_NEXT):
                lanes, keys = [row["lane"] for row in rows], [row["key"] for row in rows]
                yield int(await connection.fetchval(STOP, lanes, keys, [run] * len(rows)))
        finally:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await connection.execute(_END)


_LEFT: Final = """
select state, ambiguous, count(*) as jobs from acklast.jobs where run = $1 group by state, ambiguous
"""


@dataclass(frozen=True, slots=True)
class Left:
    """What a cancelled run still has. ``idle`` is locked by somebody, or was just given back."""

    idle: int
    in_flight: int
    uncertain: int
    """Jobs that may have had their effect: each is found out, or unresolved, when its message comes."""


async def left_of(operations: Operations, run: str) -> Left:
    """
    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    idle = in_flight = uncertain = 0
    for row in await operations.fetch(_LEFT, run):
        match State(row["state"]):
            case State.CLAIMED:
                in_flight += row["jobs"]
            case State.QUEUED | State.WAITING if row["ambiguous"]:
                uncertain += row["jobs"]
            case State.QUEUED | State.WAITING:
                idle += row["jobs"]
            case _:
                pass
    return Left(idle, in_flight, uncertain)


async def note_end(operations: Operations, run: str, jobs: int, operator: Operator) -> None:
    """Put down how many jobs a call has cancelled.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    if jobs:
        async with operations.changing() as connection:
            await put_down(connection, operator, "runs.cancelled", {"jobs": jobs}, run=run)
