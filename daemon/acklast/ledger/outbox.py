"""The outbox as the relay sees it: what is due, taken by one relay at a time, gone once it is published."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg

from acklast import __version__
from acklast.errors import LedgerUnavailable
from acklast.fingerprint import fingerprint
from acklast.ledger.connect import CLOSE_S, Address, Connection, unavailable_as_error
from acklast.ledger.evidence import clean, storable_json
from acklast.ledger.pool import Handle
from acklast.ledger.promises import COLUMNS, INTO, RECORD, VALUES, job_fields, values_of
from acklast.unquoted import unquoted
from acklast_topology.job import Job
from acklast_topology.value import value

BATCH: Final = 500
"""Rows that are taken at once, at most."""
BATCH_BYTES: Final = 16 * 2**20
"""Of their payloads and headers, unless one alone is larger: they are in memory together."""
UNPUBLISHABLE: Final = "unpublishable"
"""The reason of a dead letter that was promised and breaks the contract."""


@value
class Promised:
    """One row: a job to be published. ``tries`` counts the publishes that were not confirmed.

    What Postgres takes, and neither Python nor the contract, is text still: a row that cannot be read is its
    own trouble, and must not keep others from being taken.
    """

    id: int
    lane: str
    key: str
    payload: bytes
    plain: Mapping[str, Any]
    deadline: str | None
    not_before: str | None
    headers: str
    tries: int

    def job(self) -> Job:
        """
        Raises:
            ValueError: no job can be made of it; says why.
        """
        deadline, not_before = _moment("deadline", self.deadline), _moment("not_before", self.not_before)
        try:
            headers = json.loads(self.headers)
        except RecursionError:
            raise ValueError("the headers are nested too deeply") from None
        return Job(
            self.lane,
            self.key,
            self.payload,
            deadline=deadline,
            not_before=not_before,
            headers=headers,
            **self.plain,
        )


@value
class Later:
    """A row that was not published: when to try again, in seconds, and why."""

    id: int
    wait_s: float
    error: str


@value
class Dead:
    """A row of which no job can be made, and why."""

    id: int
    detail: str


# Rows that another relay holds are passed over; so is whatever comes after an earlier row of its key, which
# may be one of those. Rows stay locked until they are published: a relay that dies leaves them for others.
# Which rows others hold is known once ours are locked, so what is too much in bytes is left only then: locked
# for as long as the others take, and not read, since the size of a payload is known without it.
_TAKE: Final = """
select t.id, t.lane, t.key, t.payload, t.type, t.content_type, t.run, t.priority, t.routing_suffix, t.tries,
       t.headers::text, to_json(t.deadline at time zone 'UTC') #>> '{}' as deadline,
       to_json(t.not_before at time zone 'UTC') #>> '{}' as not_before, t.locked
from (
    select d.*, sum(octet_length(d.payload) + coalesce(pg_column_size(d.headers), 0)) over before as bytes,
           row_number() over before as place, count(*) over () as locked
    from (
        select o.* from acklast.outbox o
        where o.due_at <= clock_timestamp()
          and not exists (select from acklast.outbox e
                          where e.lane = o.lane and e.key = o.key and e.id < o.id)
        order by o.due_at, o.id
        limit $1
        for update of o skip locked
    ) as d
    window before as (order by d.due_at, d.id rows unbounded preceding)
) as t
where t.bytes <= $2 or t.place = 1
order by t.due_at, t.id
"""
_IS_DUE: Final = "select exists (select from acklast.outbox where due_at <= clock_timestamp())"
_GONE: Final = "delete from acklast.outbox where id = any($1::bigint[])"
_LATER: Final = """
update acklast.outbox o
set tries = o.tries + 1, due_at = clock_timestamp() + make_interval(secs => l.wait_s), error = l.error
from unnest($1::bigint[], $2::float8[], $3::text[]) as l (id, wait_s, error)
where o.id = l.id
"""
# What can never be published is evidence of a defect where it was promised.
_DEAD: Final = """
with gone as (
    delete from acklast.outbox o using unnest($1::bigint[], $2::text[], $3::text[]) as d (id, detail, failure)
    where o.id = d.id
    returning o.*, d.detail, d.failure
)
insert into acklast.dead_letters (lane, key, run, type, content_type, reason, detail, failure, routing_key,
                                  headers, payload, first_failure_at, last_failure_at, worker, version,
                                  digest, trace_id, held)
select lane, key, run, type, content_type, $4, detail, failure, routing_suffix, headers, payload, created_at,
       clock_timestamp(), $5, $6, sha256(convert_to('outbox ' || id, 'UTF8')),
       substring(headers->>'traceparent' from '^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$'), false
from gone
on conflict (lane, digest) where digest is not null do nothing
"""
_PLAIN: Final = ("type", "content_type", "run", "priority", "routing_suffix")


class Taken:
    """Rows that are this relay's until the transaction ends. ``more``: others are due, as far as is known."""

    def __init__(self, connection: Connection, rows: Sequence[Promised], *, more: bool) -> None:
        self._connection = connection
        self.rows = rows
        self.more = more

    async def settle(
        self, published: Sequence[int], later: Sequence[Later], dead: Sequence[Dead], worker: str
    ) -> None:
        """Remove what is published, put off what was not, and file what can never be as dead letters.

        Raises:
            LedgerUnavailable: the ledger does not answer: all of it is published again.
        """
        with unavailable_as_error():
            await self._connection.execute(_GONE, published)
            if later:
                put_off = zip(*((one.id, one.wait_s, clean(one.error)) for one in later), strict=True)
                await self._connection.execute(_LATER, *map(list, put_off))
            if dead:
                buried = zip(*map(_told, dead), strict=True)
                await self._connection.execute(_DEAD, *map(list, buried), UNPUBLISHABLE, worker, __version__)


def _told(dead: Dead) -> tuple[int, str, str]:
    return dead.id, clean(dead.detail), fingerprint(UNPUBLISHABLE, dead.detail)


class Outbox:
    """One relay's connection, opened again when it was lost."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Connection | None = None

    async def is_due(self) -> bool:
        """Whether anything is to be published now.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        connection = await self._ready()
        try:
            with unavailable_as_error():
                return bool(await connection.fetchval(_IS_DUE))
        except BaseException:
            await self.close()
            raise

    @asynccontextmanager
    async def take(self, count: int = BATCH, most_bytes: int = BATCH_BYTES) -> AsyncIterator[Taken]:
        """Take what is due, oldest first, so many rows at most and no more than fit in so many bytes, but
        one at least; whatever is not settled before the end is as it was.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        connection = await self._ready()
        try:
            async with connection.transaction():
                with unavailable_as_error():
                    rows = await connection.fetch(_TAKE, count, most_bytes)
                more = bool(rows) and (len(rows) == count or len(rows) < rows[0]["locked"])
                yield Taken(connection, [_promised(row) for row in rows], more=more)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            await self.close()
            what = f"the ledger does not answer: {unquoted(error)}"
            raise LedgerUnavailable(what, "It is tried again") from error
        except BaseException:
            await self.close()
            raise

    async def _ready(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._address.open()
        return self._connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                await connection.close(timeout=CLOSE_S)


def _promised(row: asyncpg.Record) -> Promised:
    return Promised(
        row["id"],
        row["lane"],
        row["key"],
        row["payload"],
        {name: row[name] for name in _PLAIN},
        row["deadline"],
        row["not_before"],
        row["headers"],
        row["tries"],
    )


def _moment(name: str, text: str | None) -> datetime | None:
    """A time in UTC as Postgres writes it into JSON: beyond the years 1 to 9999, and infinity, too."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{name} is not within the years 1 to 9999") from None


_PROMISE: Final = f"""
insert into {INTO}
select {VALUES} from unnest($1::text[], $2::bytea[]) with ordinality as p (job, payload, number)
     cross join lateral {RECORD}
order by p.number
"""  # noqa: S608 - names of the module of promises alone


async def promise_jobs(connection: Handle, jobs: Sequence[Job]) -> None:
    """Put jobs into the outbox in their order, in the transaction that the connection is in."""
    if jobs:
        fields = [storable_json(job_fields(job)) for job in jobs]
        await connection.execute(_PROMISE, fields, [job.payload for job in jobs])


async def promise_many(connection: Handle, jobs: Sequence[Job]) -> None:
    """The same for thousands at once, by COPY."""
    if jobs:
        await connection.copy_records_to_table(
            "outbox", schema_name="acklast", columns=COLUMNS, records=map(values_of, jobs)
        )
