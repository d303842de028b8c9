"""The ledger in Postgres: the authority in production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from acklast import __version__
from acklast.ledger import flush
from acklast.ledger.about import NOTHING, RunAbout
from acklast.ledger.api import (
    Claim,
    Claimed,
    JobView,
    Letter,
    ManifestRow,
    Record,
    Recorded,
    RunView,
    Session,
)
from acklast.ledger.audit import put_down
from acklast.ledger.batch import Answer, Batch, Batcher
from acklast.ledger.changes import change_for
from acklast.ledger.connect import Address, Dsn, Link, unavailable_as_error
from acklast.ledger.evidence import clean, storable_json
from acklast.ledger.growth import Growth
from acklast.ledger.manifest import promise
from acklast.ledger.migrate import check_schema_of
from acklast.ledger.operate import Operator
from acklast.ledger.outbox import promise_jobs
from acklast.ledger.pool import Handle, Pool
from acklast.ledger.prune import prune
from acklast.ledger.reading import read_jobs, read_run
from acklast.ledger.refusals import claim_lost
from acklast.ledger.retention import Dues, Keeps, Step
from acklast.outcome import Complete
from acklast.progress import Part
from acklast.telemetry.events import Emitter, Flushed
from acklast_topology.items import Manifested


class PostgresLedger:
    """Implements ``acklast.ledger.api.Ledger``. Connections come back by themselves once Postgres does.

    Claims and records share one connection, leases another, and messages that break the contract a third:
    no lease runs out behind a flood of those, and nothing waits behind a handler's transaction, which takes
    one of the pool's.
    """

    def __init__(self, address: Address, pool: Pool, emitter: Emitter | None = None) -> None:
        """``emitter`` hears of each flush."""
        self._emitter = emitter or Emitter()
        self._address = address
        self._pool = pool
        self._dues = Dues()
        self._leases = Link(address)
        self._strays = Link(address)
        self._flushes = Link(address, flush.SETTINGS)
        self._growth = Growth()
        self._batcher = Batcher(self._flush, self._flushed)

    @classmethod
    async def connect(
        cls,
        dsn: Dsn,
        *,
        pool_size: int = 4,
        allow_unsafe_server: bool = False,
        emitter: Emitter | None = None,
    ) -> PostgresLedger:
        """Connect to the first server of ``dsn`` that may be written to, and make sure that it is fit.

        Raises:
            ConfigError: the server refuses the connection, or would lose commits in a crash.
            SchemaError: the schema is older or newer than this program.
            LedgerUnavailable: no server answers.
        """
        address = Address.of(dsn, allow_unsafe_server=allow_unsafe_server)
        connection = await address.open()
        try:
            await check_schema_of(connection)
        finally:
            connection.terminate()
        return cls(address, await Pool.make(address, pool_size), emitter)

    async def close(self) -> None:
        await self._batcher.close()
        # Side by side: each of them waits a moment for a server that is silent.
        await asyncio.gather(self._flushes.close(), self._leases.close(), self._strays.close())
        await self._pool.close()

    # --- sessions -----------------------------------------------------------------------------------

    # The predecessor of the same instance is gone, as the caller's lock proves: its claims are free at once.
    _OPEN_SESSION: Final = """
        with predecessors as (
            update acklast.workers set ended_at = clock_timestamp() where instance = $1 and ended_at is null
        )
        insert into acklast.workers (instance, worker, version, lease_s, lease_until, release)
        values ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $4), $5)
        returning id
    """

    async def open_session(self, instance: str, *, worker: str, version: str, lease_s: float) -> Session:
        told = (instance, worker, version, float(lease_s), __version__)
        rows = await self._leases.fetch(self._OPEN_SESSION, *told)
        return Session(rows[0]["id"], instance, lease_s)

    # Never revives: whoever finds a lease run out may already have taken its jobs.
    _RENEW: Final = """
        update acklast.workers set lease_until = clock_timestamp() + make_interval(secs => lease_s)
        where id = $1 and ended_at is null and lease_until > clock_timestamp()
        returning id
    """

    async def renew(self, session: Session) -> bool:
        return bool(await self._leases.fetch(self._RENEW, session.id))

    _CLOSE_SESSION: Final = """
        update acklast.workers set ended_at = clock_timestamp() where id = $1 and ended_at is null
    """

    async def close_session(self, session: Session) -> None:
        await self._leases.fetch(self._CLOSE_SESSION, session.id)

    # --- jobs ---------------------------------------------------------------------------------------

    def claim(self, session: Session, claim: Claim) -> Awaitable[Claimed]:
        return self._batcher.claim(session.id, claim)

    def record(self, session: Session, record: Record) -> Awaitable[Recorded]:
        return self._batcher.record(session.id, record, change_for(record))

    async def settled(self, lane: str, key: str, fence: int) -> None:
        self._batcher.note((lane, key), fence)

    def part(self, now: float) -> Part:
        """Whether what was asked is worked on, at a moment of the monotonic clock."""
        return self._batcher.part(now)

    def _flushed(self, size: int, seconds: float, ok: bool) -> None:
        self._emitter.emit(Flushed("jobs", size, seconds, ok))

    async def _flush(self, batch: Batch) -> Mapping[int, Answer]:
        if self._growth.outgrown(sum(item.claim is not None for item in batch.items)):
            await self._flushes.fetch("discard plans")
        return await flush.flush(self._flushes, batch)

    # The effect is in the same database: one commit makes both, or neither. The row is locked at the very
    # end, so that a slow handler holds up nobody, and this statement does wait for whoever holds it.
    _COMPLETE: Final = """
        with me as materialized (
            select t.now, coalesce(w.worker, '') as worker, coalesce(w.version, '') as version
            from (select clock_timestamp()) as t (now) left join acklast.workers w on w.id = $1
        ),
        done as (
            update acklast.jobs j
            set state = 'done', result = $5::jsonb, reason = null, effect_at = me.now, recorded_at = me.now
            from me
            where j.lane = $2 and j.key = $3 and j.fence = $4 and j.state = 'claimed'
            returning j.lane, j.key, j.fence, j.attempts, j.claims
        ),
        tried as (
            insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, started_at, ended_at,
                                          worker, version)
            select d.lane, d.key, d.fence, d.attempts, 'done', '', $6, me.now, me.worker, me.version
            from done d cross join me where d.claims > 1
        ),
        freed as (
            delete from acklast.custody c using done d where c.lane = d.lane and c.key = d.key
        )
        select fence from done
    """

    @asynccontextmanager
    async def transaction(self, session: Session, record: Record) -> AsyncIterator[Handle]:
        """A connection in a transaction that also completes the job at its end.

        Each statement may take a minute, and wait five seconds for a lock.

        Raises:
            ClaimLost: the fence has moved on; everything was rolled back.
            LedgerUnavailable: the connection was lost; whether it was committed is in the ledger.
            ValueError: ``record`` is not a Complete.
        """
        if not isinstance(record.verdict, Complete):
            raise ValueError(f"a transaction completes its job: {record.verdict} cannot be part of it")
        result = None if record.verdict.result is None else storable_json(record.verdict.result)
        completed = (session.id, record.lane, record.key, record.fence, result, record.started_at)
        async with self._pool.lend() as connection, connection.transaction():
            yield connection
            with unavailable_as_error():
                await promise_jobs(connection, record.follow_ups)
                done = await connection.fetch(self._COMPLETE, *completed)
            if not done:
                raise claim_lost(record)

    # A letter that retention has emptied is whole again when its message comes again, and one that was closed
    # waits for somebody again.
    _BURY_STRAY: Final = """
        insert into acklast.dead_letters as d (
            lane, key, run, type, content_type, reason, detail, failure, exchange, routing_key, headers,
            properties, payload, trace_id, first_failure_at, last_failure_at, worker, version, digest,
            held
        )
        select $1, $2, l.run, l.type, l.content_type, l.reason, l.detail, l.failure, l.exchange,
               l.routing_key, l.headers, l.properties, $4, l.trace_id, t.now, t.now, $6, $7, $5, false
        from (select clock_timestamp()) as t (now) cross join jsonb_to_record($3::jsonb) as l (
            run text, type text, content_type text, reason text, detail text, failure text, exchange text,
            routing_key text, headers jsonb, properties jsonb, trace_id text)
        on conflict (lane, digest) where digest is not null
        do update set seen = d.seen + 1, last_failure_at = clock_timestamp(), closed_at = null,
                      closed_as = null,
                      headers = case when d.payload is null then excluded.headers else d.headers end,
                      properties = case when d.payload is null then excluded.properties
                                        else d.properties end,
                      payload = coalesce(d.payload, excluded.payload)
    """

    async def bury_stray(self, letter: Letter, *, worker: str, version: str) -> None:
        fields = storable_json(flush.letter_fields(letter))
        key = None if letter.key is None else clean(letter.key)
        await self._strays.fetch(
            self._BURY_STRAY, letter.lane, key, fields, letter.payload, letter.digest, worker, version
        )

    _CANCEL: Final = """
        with job as (
            select lane, key, state from acklast.jobs
            where lane = $1 and key = $2 and state not in ('done', 'dead', 'cancelled')
            for no key update
        ),
        cancelled as (
            update acklast.jobs j
            set state = 'cancelled', fence = j.fence + 1, reason = 'cancelled', available_at = null,
                recorded_at = clock_timestamp()
            from job where j.lane = job.lane and j.key = job.key
        ),
        undecided as (
            update acklast.dead_letters d set held = false
            from job where d.lane = job.lane and d.key = job.key and d.held and d.closed_at is null
        ),
        freed as (
            delete from acklast.custody c using job where c.lane = job.lane and c.key = job.key
        )
        insert into acklast.audit (action, lane, key, detail)
        select 'cancel', lane, key, jsonb_build_object('from', state) from job
        returning id
    """

    async def cancel(self, lane: str, key: str) -> bool:
        async with self._pool.ask() as connection:
            return bool(await connection.fetch(self._CANCEL, lane, key))

    # --- accounts -----------------------------------------------------------------------------------

    async def manifest(
        self, run: str, rows: Sequence[ManifestRow], about: RunAbout = NOTHING
    ) -> Sequence[Manifested]:
        async with self._pool.ask() as connection:
            return await promise(connection, run, rows, about)

    async def jobs(self, key: str, lane: str | None = None) -> Sequence[JobView]:
        async with self._pool.ask() as connection:
            return await read_jobs(connection, key, lane)

    async def run(self, run: str) -> RunView | None:
        async with self._pool.ask() as connection:
            return await read_run(connection, run)

    # --- retention ----------------------------------------------------------------------------------

    def prune(self, keeps: Keeps, *, dry_run: bool = False) -> AsyncGenerator[Step, None]:
        return prune(self._address, keeps, self._dues, dry_run=dry_run)

    async def note(
        self,
        operator: Operator,
        action: str,
        effect: Mapping[str, Any],
        *,
        lane: str | None = None,
        run: str | None = None,
    ) -> None:
        """Put down in the audit what a person has done."""
        async with self._pool.ask() as connection:
            await put_down(connection, operator, action, effect, lane=lane, run=run)
