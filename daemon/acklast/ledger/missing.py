"""Open jobs that nobody is at work on although they are due, and the messages that are kept of them.

How they are found: no index names a state (see the first migration), so the table is walked as retention
walks it, a stretch of pages per statement.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from acklast.errors import AcklastError, Exit
from acklast.ledger.api import Kept, State
from acklast.ledger.connect import CLOSE_S, Address, Connection, unavailable_as_error
from acklast.ledger.held import HELD
from acklast.ledger.migrate import check_schema_of
from acklast.ledger.prune import SETTINGS, STRETCH
from acklast_topology.value import value


class AlreadySearching(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """Another daemon or command looks through the same ledger."""

    exit = Exit.INCOMPLETE

    def __init__(self) -> None:
        super().__init__(
            "another daemon or command seeks missing jobs now", "Wait until it has ended, then try again"
        )


@value
class Overdue:
    """A job that should have been claimed. ``due_at``: since when, on the ledger's clock."""

    lane: str
    key: str
    state: State
    fence: int
    type: str | None
    run: str | None
    due_at: datetime
    kept: bool


_LOCK: Final = int.from_bytes(hashlib.sha256(b"acklast missing jobs").digest()[:8], signed=True)
_ALONE: Final = "select pg_try_advisory_lock($1)"
_PAGES: Final = """
select pg_relation_size('acklast.jobs') / current_setting('block_size')::int
"""

# A claim of a session that lives is somebody's work. A session that retention has removed is long dead.
_OVERDUE: Final = """
with opened as materialized (
    select j.lane, j.key, j.state, j.fence, j.type, j.run,
           case j.state when 'waiting' then j.available_at
                        when 'queued' then coalesce(j.recorded_at, j.claimed_at, j.enqueued_at)
                        else coalesce(w.ended_at, w.lease_until, j.claimed_at) end as due_at
    from acklast.jobs j left join acklast.workers w on j.state = 'claimed' and w.id = j.session
    where j.ctid >= $1 and j.ctid < $2 and j.state in ('queued', 'claimed', 'waiting')
      and j.lane = any($3::text[])
      and (j.state <> 'claimed' or w.id is null or w.ended_at is not null
           or w.lease_until <= clock_timestamp())
)
select o.lane, o.key, o.state, o.fence, o.type, o.run, greatest(o.due_at, c.sent_at) as due_at,
       c.key is not null as kept
from opened o left join acklast.custody c on c.lane = o.lane and c.key = o.key
where greatest(o.due_at, c.sent_at) < clock_timestamp() - make_interval(secs => $4)
order by o.lane, o.key
"""

# Marked before it is sent, and only as long as nothing has become of the job.
_TAKE: Final = """
update acklast.custody c set sends = c.sends + 1, sent_at = clock_timestamp()
from acklast.jobs j
where c.lane = $1 and c.key = $2 and j.lane = c.lane and j.key = c.key and j.fence = $3 and j.state = $4
returning c.header, c.body
"""

# What its job's end did not take along: where a person's hand ended it, or retention removed it.
_SWEEP: Final = """
delete from acklast.custody c
where not exists (select from acklast.jobs j where j.lane = c.lane and j.key = c.key
                                               and j.state in ('queued', 'claimed', 'waiting'))
"""


class Search:
    """A connection of its own to look through the ledger, alone. Made by ``connect``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, address: Address) -> Search:
        """
        Raises:
            AlreadySearching: somebody else does.
            SchemaError: the schema is not this program's.
            LedgerUnavailable: the ledger does not answer.
        """
        connection = await address.open(SETTINGS)
        try:
            await check_schema_of(connection)
            with unavailable_as_error():
                if not await connection.fetchval(_ALONE, _LOCK):
                    raise AlreadySearching
        except BaseException:
            connection.terminate()
            raise
        return cls(connection)

    async def close(self) -> None:
        with suppress(Exception):
            await self._connection.close(timeout=CLOSE_S)

    async def overdue(
        self, lanes: Sequence[str], older_s: float
    ) -> AsyncGenerator[tuple[Sequence[Overdue], int, int], None]:
        """The jobs of ``lanes`` that are overdue by more than ``older_s`` seconds, one stretch of the table
        at a time, with how far the search has come, in pages: pause between them.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        with unavailable_as_error():
            pages = await self._connection.fetchval(_PAGES)
        for first in range(0, pages, STRETCH):
            with unavailable_as_error():
                rows = await self._connection.fetch(
                    _OVERDUE, (first, 0), (first + STRETCH, 0), list(lanes), older_s
                )
            found = [Overdue(**(dict(row) | {"state": State(row["state"])})) for row in rows]
            yield found, min(first + STRETCH, pages), pages

    async def take(self, job: Overdue) -> Kept | None:
        """The message of a job, about to be sent again; None where something has become of the job since.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        with unavailable_as_error():
            rows = await self._connection.fetch(_TAKE, job.lane, job.key, job.fence, job.state.value)
        return Kept(rows[0]["header"], rows[0]["body"]) if rows else None

    async def sweep(self) -> None:
        """Let go of the messages whose jobs are not open any more."""
        with unavailable_as_error():
            await self._connection.execute(_SWEEP)

    async def held(self) -> tuple[datetime, Mapping[str, int]]:
        """The time, and how many deliveries the daemons hold that they have not started, by lane.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        with unavailable_as_error():
            row = await self._connection.fetchrow(HELD)
        assert row is not None
        return row["now"], json.loads(row["held"])
