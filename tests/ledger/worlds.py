"""A ledger and the world around it, so that one test runs on every store: time passes, leases run out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import asyncpg

from acklast.ledger.api import Claim, Claimed, Fresh, JobView, Ledger, Letter, Record, Recorded, Session
from acklast.ledger.backlog import Backlog, read_backlog
from acklast.ledger.connect import Address
from acklast.ledger.memory import MemoryLedger
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.postgres import PostgresLedger
from acklast.ledger.run_cancel import cancel_idle, mark_cancelled
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry, Verdict

LANE = "cleanup"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

# Only what a test has used: to truncate a table makes its files anew, and most tests use a few. The audit is
# only ever added to; a test's owner of the tables may begin anew.
_EMPTY = """
do $$
declare
    name text;
begin
    foreach name in array array['jobs', 'attempts', 'dead_letters', 'runs', 'workers', 'audit', 'run_tallies',
                                'settlements', 'custody', 'outbox', 'cancelled_runs', 'dead_counts',
                                'redrive_letters', 'redrives', 'reconciliations', 'job_counts',
                                'job_dues', 'job_counts_over', 'lane_reports'] loop
        continue when pg_relation_size(('acklast.' || name)::regclass) = 0;
        if name = 'audit' then
            alter table acklast.audit disable trigger audit_stays;
        end if;
        execute format('truncate acklast.%I restart identity cascade', name);
        if name = 'audit' then
            alter table acklast.audit enable trigger audit_stays;
        end if;
    end loop;
end
$$
"""

_GROW_OLD = """
with t (ago) as (select make_interval(secs => 86400 * $1::float8)),
j as (update acklast.jobs set recorded_at = recorded_at - ago, claimed_at = claimed_at - ago,
                              enqueued_at = enqueued_at - ago, available_at = available_at - ago from t),
a as (update acklast.attempts set ended_at = ended_at - ago from t),
d as (update acklast.dead_letters set last_failure_at = last_failure_at - ago from t)
update acklast.workers set lease_until = lease_until - ago, ended_at = ended_at - ago from t
"""


# What the counts say of the jobs and is not so: in one snapshot, and none of it as the product reads it.
_MISCOUNTED = """
with truth as (
    select lane, coalesce(run, '') as run, state, count(*) as jobs, min(priority) as priority,
           case when coalesce(priority, 4) > 4 then 'high' when coalesce(priority, 4) < 4 then 'low'
                else 'normal' end as class
    from acklast.jobs group by lane, run, state, class
),
told as (
    select c.lane, c.run, s.state, sum(s.jobs) as jobs, c.priority as class
    from (select lane, run, priority, queued, waiting, claimed, unresolved, dead, done, cancelled
          from acklast.job_counts
          union all
          select lane, run, priority, 0, 0, 0, 0, 0, done, cancelled from acklast.job_counts_over) as c
         cross join lateral (values ('queued', c.queued), ('waiting', c.waiting), ('claimed', c.claimed),
                                    ('unresolved', c.unresolved), ('dead', c.dead), ('done', c.done),
                                    ('cancelled', c.cancelled)) as s (state, jobs)
    group by c.lane, c.run, s.state, c.priority having sum(s.jobs) <> 0
),
due as (
    select lane, min(at) as at, sum(n) as n
    from (select lane, coalesce(available_at, recorded_at, enqueued_at) as at, 1 as n
          from acklast.jobs where state in ('queued', 'waiting')) as j
    group by lane, ceil(extract(epoch from at) / 15)
),
told_due as (select lane, due, sum(startable) as n
             from (select lane, due, startable from acklast.job_counts where due is not null
                   union all select lane, due, startable from acklast.job_dues) as d
             group by lane, due having sum(startable) <> 0)
select t.lane, t.run, t.state || ' ' || t.class as what, t.jobs, o.jobs as told
from truth t full join told o using (lane, run, state, class)
where t.jobs is distinct from o.jobs
union all
select d.lane, null, 'due ' || d.at, d.n, o.n
from due d full join told_due o on o.lane = d.lane and o.due >= d.at and o.due < d.at + interval '15 s'
where d.n is distinct from o.n
"""


class World(Protocol):
    """One ledger, and what happens to it that no caller does."""

    @property
    def ledger(self) -> Ledger: ...

    async def another(self) -> Ledger:
        """Another store on the same jobs, as another daemon has it."""

    async def now(self) -> datetime:
        """The ledger's clock."""

    async def run_out(self, session: Session) -> None:
        """The session's lease runs out without a word."""

    async def wait_s(self, seconds: float) -> None:
        """Waiting jobs come nearer to their time."""

    async def grow_old(self, days: float) -> None:
        """What has happened so far happened so long before; every session's lease is over."""

    async def cancel_run(self, run: str) -> int:
        """Somebody cancels a run; how many jobs that cancels at once."""

    async def uncancel(self, run: str) -> None:
        """As if the run had never been cancelled: for the next case."""

    async def backlog(self) -> Backlog:
        """What is to be done, in numbers."""

    async def close(self) -> None: ...


@dataclass
class MemoryWorld:
    at: datetime = EPOCH

    def __post_init__(self) -> None:
        self.ledger = MemoryLedger(lambda: self.at)

    async def another(self) -> Ledger:
        return self.ledger

    async def now(self) -> datetime:
        return self.at

    async def run_out(self, session: Session) -> None:
        self.ledger.end_lease(session)

    async def wait_s(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    async def grow_old(self, days: float) -> None:
        self.at += timedelta(days=days)

    async def cancel_run(self, run: str) -> int:
        return self.ledger.cancel_run(run)

    async def uncancel(self, run: str) -> None:
        del self.ledger._rows.cancelled[run]

    async def backlog(self) -> Backlog:
        return await self.ledger.backlog()

    async def close(self) -> None:
        await self.ledger.close()


@dataclass
class PostgresWorld:
    dsn: str
    ledger: PostgresLedger
    others: list[PostgresLedger] = field(default_factory=list)

    @classmethod
    async def at(cls, dsn: str) -> PostgresWorld:
        """A world with nothing in its ledger yet."""
        world = cls(dsn, await PostgresLedger.connect(dsn))
        connection = await asyncpg.connect(dsn)
        await connection.execute(_EMPTY)
        await connection.close()
        return world

    async def another(self) -> PostgresLedger:
        self.others.append(await PostgresLedger.connect(self.dsn))
        return self.others[-1]

    async def sql(self, statement: str, *args: Any) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()

    async def now(self) -> datetime:
        at: datetime = (await self.sql("select clock_timestamp()"))[0][0]
        return at

    async def run_out(self, session: Session) -> None:
        await self.sql("update acklast.workers set lease_until = clock_timestamp() where id = $1", session.id)

    async def wait_s(self, seconds: float) -> None:
        await self.sql(
            "update acklast.jobs set available_at = available_at - make_interval(secs => $1)", seconds
        )

    async def grow_old(self, days: float) -> None:
        await self.sql(_GROW_OLD, days)

    async def cancel_run(self, run: str) -> int:
        operations = await Operations.connect(Address.of(self.dsn))
        try:
            assert await mark_cancelled(operations, run, "", Operator("somebody", "nobody@here"))
            return sum([count async for count in cancel_idle(operations, run)])
        finally:
            operations.close()

    async def uncancel(self, run: str) -> None:
        await self.sql("delete from acklast.cancelled_runs where run = $1", run)

    async def backlog(self) -> Backlog:
        operations = await Operations.connect(Address.of(self.dsn))
        try:
            return await read_backlog(operations)
        finally:
            operations.close()

    async def close(self) -> None:
        for ledger in (self.ledger, *self.others):
            await ledger.close()
        # Whatever a test did to the jobs: the counts say what they are.
        assert await miscounted(self) == []


async def miscounted(world: PostgresWorld) -> list[asyncpg.Record]:
    """Where the counts of jobs differ from the jobs."""
    return await world.sql(_MISCOUNTED)


async def start(ledger: Ledger, instance: str = "one", lease_s: float = 600) -> Session:
    return await ledger.open_session(instance, worker=f"{instance}:1", version="1.2.3", lease_s=lease_s)


def a_claim(key: str = "k", body: bytes = b"body", **more: Any) -> Claim:
    return Claim(lane=LANE, key=key, fingerprint=body.ljust(32, b"."), **more)


async def started(ledger: Ledger, session: Session, key: str = "k", **more: Any) -> Fresh:
    """A claim that must succeed."""
    answer = await ledger.claim(session, a_claim(key, **more))
    assert isinstance(answer, Fresh), answer
    return answer


def a_letter(key: str | None = "k", reason: str = "refused", **more: Any) -> Letter:
    given = {"payload": b"body", "headers": {}, "detail": "what happened"} | more
    return Letter(lane=LANE, reason=reason, key=key, **given)


_OUTCOMES: dict[type[Verdict], str] = {
    Complete: "done",
    Retry: "transient",
    Bury: "permanent",
    Hold: "unknown",
    GiveBack: "interrupted",
}


def a_record(fresh: Fresh, verdict: Verdict, key: str = "k", **more: Any) -> Record:
    """What a daemon would tell of an attempt that came to this verdict."""
    reason = getattr(verdict, "reason", "")
    given: dict[str, Any] = {
        "outcome": _OUTCOMES[type(verdict)],
        "reason": reason,
        "started_at": fresh.now,
        "effect_at": fresh.now,
        "letter": a_letter(key, reason) if isinstance(verdict, Bury | Hold) else None,
    }
    return Record(LANE, key, fresh.fence, verdict, **(given | more))


async def record(
    ledger: Ledger, session: Session, fresh: Fresh, verdict: Verdict, key: str = "k", **more: Any
) -> Recorded:
    return await ledger.record(session, a_record(fresh, verdict, key, **more))


async def view(ledger: Ledger, key: str = "k") -> JobView:
    """The account of the one job with this key."""
    (job,) = await ledger.jobs(key)
    return job


def is_fresh(answer: Claimed) -> bool:
    return isinstance(answer, Fresh)


@asynccontextmanager
async def elsewhere(world: PostgresWorld, *statements: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Another connection in an open transaction that has done these statements."""
    connection = await asyncpg.connect(world.dsn)
    transaction = connection.transaction()
    await transaction.start()
    try:
        for one in statements:
            await connection.execute(one)
        yield connection
        if connection.is_in_transaction():
            await transaction.commit()
    finally:
        # Its locks go with it, also where the test has failed.
        await connection.close()
