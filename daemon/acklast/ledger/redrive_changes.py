"""What people do to redrives: each change is one commit with its entry in the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import asyncpg

from acklast.errors import AcklastError, Exit
from acklast.ledger.audit import put_down
from acklast.ledger.connect import Connection
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.redrives import NoSuchRedrive, RedriveStatus

PLANNED: Final = RedriveStatus.PLANNED
RUNNING: Final = RedriveStatus.RUNNING
PAUSED: Final = RedriveStatus.PAUSED
CANCELLED: Final = RedriveStatus.CANCELLED
WAITING: Final = (RedriveStatus.ASKING, RedriveStatus.STOPPED)

_REMEDY: Final = {
    RedriveStatus.PLANNED: "Start it: acklast redrive start {id}",
    RedriveStatus.RUNNING: "See how far it is: acklast redrive status {id}",
    RedriveStatus.PAUSED: "Let it go on: acklast redrive resume {id}",
    RedriveStatus.ASKING: "It waits for a verdict: acklast redrive verdict {id}",
    RedriveStatus.STOPPED: "It waits for a verdict: acklast redrive verdict {id}",
    RedriveStatus.FINISHED: "It is over; what is dead again can be planned anew: acklast redrive plan",
    RedriveStatus.CANCELLED: "It is over; what it left can be planned anew: acklast redrive plan",
}


class WrongStatus(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """A redrive cannot be changed like this as it is now."""

    exit = Exit.USAGE

    def __init__(self, redrive: int, status: RedriveStatus, what: str) -> None:
        super().__init__(
            f"redrive {redrive} is {status}: it cannot be {what}", _REMEDY[status].format(id=redrive)
        )


@dataclass(frozen=True, slots=True)
class Start:
    """How a plan is to be tried.

    ``steps``: how many letters have been released at the end of each, the last all of them. ``tolerate``: the
    part of those released that may fail, 0 to 1. ``forced``: why unchanged failures are tried too.
    """

    steps: Sequence[int]
    rate_per_s: float
    tolerate: float
    forced: str | None


_LOCK: Final = "select id, lane, status, same, other from acklast.redrives where id = $1 for no key update"
_START: Final = """
update acklast.redrives
set status = 'running', reason = $2, steps = $3, rate_per_s = $4, tolerate = $5, forced = $6, session = null,
    started_at = clock_timestamp(), step = 0, step_at = clock_timestamp()
where id = $1
"""
_SET: Final = """
update acklast.redrives
set status = $2, ended_at = case when $2 = 'cancelled' then clock_timestamp() end where id = $1
"""
# What has failed so far is accepted: one more is not, unless ``tolerate`` covers it.
_GO_ON: Final = """
update acklast.redrives
set status = 'running', tolerate = greatest(tolerate, coalesce($2::float8, 0)),
    said = coalesce(said, '{}') || jsonb_build_object(
        'accepted', jsonb_build_object('same', same, 'other', other, 'live',
            coalesce(said->>'why' = 'live_fails_more', false)
            or coalesce((said#>>'{accepted,live}')::boolean, false)))
where id = $1
"""

Row: TypeAlias = asyncpg.Record


async def start(operations: Operations, redrive: int, given: Start, why: str, operator: Operator) -> None:
    """Have the lane's daemons try a plan.

    Raises:
        NoSuchRedrive: there is none.
        WrongStatus: it was started before, or cancelled.
        LedgerUnavailable: it may or may not have been started.
    """
    async with operations.changing() as connection:
        row = await _locked(connection, redrive)
        _require(row, (PLANNED,), "started")
        steps = list(given.steps)
        told = (why, steps, given.rate_per_s, given.tolerate, given.forced)
        await connection.execute(_START, redrive, *told)
        await _audit(connection, operator, "start", row, why, **{**asdict(given), "steps": steps})


async def pause(operations: Operations, redrive: int, why: str, operator: Operator) -> bool:
    """Release nothing more until it is resumed; False where it was paused before.

    Raises:
        NoSuchRedrive, WrongStatus: it cannot be.
        LedgerUnavailable: it may or may not have been done.
    """
    return await _set(operations, redrive, PAUSED, (RUNNING,), "paused", "pause", why, operator)


async def resume(operations: Operations, redrive: int, why: str, operator: Operator) -> bool:
    """Let a paused one go on; False where it runs.

    Raises:
        NoSuchRedrive, WrongStatus: it cannot be.
        LedgerUnavailable: it may or may not have been done.
    """
    return await _set(operations, redrive, RUNNING, (PAUSED,), "resumed", "resume", why, operator)


async def cancel(operations: Operations, redrive: int, why: str, operator: Operator) -> bool:
    """Release nothing more for good; False where it was cancelled before. What is out comes to its end.

    Raises:
        NoSuchRedrive, WrongStatus: it cannot be.
        LedgerUnavailable: it may or may not have been done.
    """
    came_from = (PLANNED, RUNNING, PAUSED, *WAITING)
    return await _set(operations, redrive, CANCELLED, came_from, "cancelled", "cancel", why, operator)


async def go_on(
    operations: Operations, redrive: int, tolerate: float | None, why: str, operator: Operator
) -> None:
    """Accept what has failed so far, and let it go on. ``tolerate``: the part that may fail from now on.

    Raises:
        NoSuchRedrive, WrongStatus: it does not wait for a verdict.
        LedgerUnavailable: it may or may not have been done.
    """
    async with operations.changing() as connection:
        row = await _locked(connection, redrive)
        _require(row, WAITING, "told to go on")
        await connection.execute(_GO_ON, redrive, tolerate)
        effect = {"verdict": "go-on", "same": row["same"], "other": row["other"], "tolerate": tolerate}
        await _audit(connection, operator, "verdict", row, why, **effect)


async def stop(operations: Operations, redrive: int, why: str, operator: Operator) -> None:
    """End one that waits for a verdict, for good.

    Raises:
        NoSuchRedrive, WrongStatus: it does not wait for a verdict.
        LedgerUnavailable: it may or may not have been done.
    """
    async with operations.changing() as connection:
        row = await _locked(connection, redrive)
        _require(row, WAITING, "stopped by a verdict")
        await connection.execute(_SET, redrive, CANCELLED.value)
        effect = {"verdict": "stop", "same": row["same"], "other": row["other"]}
        await _audit(connection, operator, "verdict", row, why, **effect)


async def _set(
    operations: Operations,
    redrive: int,
    status: RedriveStatus,
    came_from: Sequence[RedriveStatus],
    done: str,
    action: str,
    why: str,
    operator: Operator,
) -> bool:
    async with operations.changing() as connection:
        row = await _locked(connection, redrive)
        if row["status"] == status:
            return False
        _require(row, came_from, done)
        await connection.execute(_SET, redrive, status.value)
        await _audit(connection, operator, action, row, why)
    return True


async def _locked(connection: Connection, redrive: int) -> Row:
    row = await connection.fetchrow(_LOCK, redrive)
    if row is None:
        raise NoSuchRedrive(redrive)
    return row


def _require(row: Row, statuses: Sequence[RedriveStatus], done: str) -> None:
    status = RedriveStatus(row["status"])
    if status not in statuses:
        raise WrongStatus(row["id"], status, done)


async def _audit(
    connection: Connection, operator: Operator, action: str, row: Row, why: str, **effect: Any
) -> None:
    told = {"redrive": str(row["id"]), "from": row["status"], **effect}
    await put_down(connection, operator, f"redrive.{action}", told, lane=row["lane"], reason=why or None)
