"""What the shape of ``acklast.jobs`` costs: fillfactor, indexes and kind of key, beside millions of rows.

Drives the ledger alone (no broker): claim, complete and note the acknowledgement, hundreds in flight, through
the same batches as the daemon. Each shape has a database of its own, so that the rounds can take turns.

    python -m dev.stack run -- python -m bench.ledger_shape

Needs 25 GB of disk with the 10 million rows that it fills in by itself; ``--rows`` makes it smaller. With
servers that stay up (``dev.stack up``), ``--prepare`` fills and leaves the measuring to a later call.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg
from rich.console import Console

from acklast.ledger.api import Claim, Fresh, Record, Recorded, Session
from acklast.ledger.migrate import migrate
from acklast.ledger.postgres import PostgresLedger
from acklast.outcome import Complete
from bench.processes import cpu_s, listeners
from bench.progress import Progress
from bench.queues import BenchError
from bench.report import Report, show, spread, write_json
from bench.stats import Spread
from dev.stack import LEDGER

_LANES: Final = 4
_RUN_JOBS: Final = 10_000
_SETTINGS: Final = ("server_version", "fsync", "full_page_writes", "shared_buffers", "max_wal_size")


class Keys(StrEnum):
    """How keys are made."""

    RUN = "run-prefixed"
    RANDOM = "random"
    TIME = "time-ordered"

    def new(self, number: int) -> str:
        """The key of the n-th job of a measurement. ``_FILL`` makes those that are there already."""
        match self:
            case Keys.RUN:
                return f"run-2026-11-30-{number // _RUN_JOBS:04}/{number % _RUN_JOBS:06}"
            case Keys.RANDOM:
                return hashlib.md5(b"new %d" % number, usedforsecurity=False).hexdigest()
            case Keys.TIME:
                tail = hashlib.md5(b"new %d" % number, usedforsecurity=False).hexdigest()
                return f"0193{number // 8:08x}-{tail[:16]}"


_OLD: Final = {
    Keys.RUN: f"'run-2026-11-29-' || lpad((n / {_RUN_JOBS})::text, 4, '0')"
    f" || '/' || lpad((n % {_RUN_JOBS})::text, 6, '0')",
    Keys.RANDOM: "md5(n::text)",
    Keys.TIME: "'0192' || lpad(to_hex(n / 8), 8, '0') || '-' || left(md5(n::text), 16)",
}

# In the order of their arrival, as a ledger that has lived. The primary key comes afterwards, in a fraction
# of the time; where keys are random its pages are as full as splits leave them. The triggers would have them
# all in a file of their own first, for counts that nothing here reads.
_FILL: Final = """
alter table acklast.jobs disable trigger user;
alter table acklast.jobs set (fillfactor = {fillfactor});
drop index acklast.jobs_run;
alter table acklast.jobs drop constraint jobs_pkey;
insert into acklast.jobs (lane, key, state, fence, attempts, claims, session, ticket, enqueued_at,
                          published_at, claimed_at, effect_at, recorded_at, settled_at, fingerprint, type,
                          run)
select 'lane-' || (n / {run} % {lanes}), {key}, 'done', 1, 1, 1, 1, n, t, t, t, t, t, t,
       sha256(n::text::bytea), 'bench.v1', 'run-2026-11-29-' || lpad((n / {run})::text, 4, '0')
from generate_series(1, {rows}) n, lateral (select now() - interval '1 day' + n * interval '5 ms') as m (t);
alter table acklast.jobs add constraint jobs_pkey primary key (lane, key) with (fillfactor = {packed});
create index jobs_run on acklast.jobs (run) where run is not null;
alter table acklast.jobs enable trigger user;
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A table to measure. ``then`` is what is changed once it is filled."""

    name: str
    rows: int
    keys: Keys = Keys.RUN
    fillfactor: int = 50
    then: str = ""
    notes: bool = True

    @property
    def base(self) -> str:
        """The database that is filled like this one."""
        return f"shape_{self.rows}_{self.keys.name.lower()}_{self.fillfactor}"

    @property
    def database(self) -> str:
        return (
            self.base
            if not self.then
            else f"{self.base}_{hashlib.sha256(self.then.encode()).hexdigest()[:8]}"
        )


_KEY_FIRST: Final = """
alter table acklast.jobs drop constraint jobs_pkey;
alter table acklast.jobs add constraint jobs_pkey primary key (key, lane);
"""
_NO_SHARED_ENTRIES: Final = """
alter index acklast.jobs_run set (deduplicate_items = off);
reindex index acklast.jobs_run;
"""


def shapes(rows: int) -> Iterator[Shape]:
    """All that are compared. What does not depend on the size of the table is measured on a tenth of it."""
    few = rows // 10
    yield Shape("no rows", 0)
    yield Shape("a tenth of the rows", few)
    yield Shape("as it is", rows)
    yield Shape("no notes of acks", rows, notes=False)
    yield from (Shape(f"fillfactor {n}", rows, fillfactor=n) for n in (70, 85, 100))
    yield from (Shape(f"keys {keys}", rows, keys=keys) for keys in (Keys.TIME, Keys.RANDOM))
    yield Shape("key before lane", few, then=_KEY_FIRST)
    yield Shape("no index on run", few, then="drop index acklast.jobs_run")
    yield Shape("run not deduplicated", few, then=_NO_SHARED_ENTRIES)
    brin = "create index jobs_enqueued on acklast.jobs using brin (enqueued_at)"
    yield Shape("BRIN on enqueued_at", few, then=brin)


# --- filling -------------------------------------------------------------------------------------------


async def prepare(dsn: str, shape: Shape, progress: Progress) -> str:
    """The shape's database, filled unless it was there; its address."""
    connection = await asyncpg.connect(dsn)
    try:
        there = {row[0] for row in await connection.fetch("select datname from pg_database")}
        if shape.base not in there:
            progress.say(f"filling {shape.base}")
            # Under another name until it is whole: half a fill would pass for one.
            await connection.execute(f"drop database if exists {shape.base}_new")
            await connection.execute(f"create database {shape.base}_new")
            await _fill(_beside(dsn, f"{shape.base}_new"), shape)
            await connection.execute(f"alter database {shape.base}_new rename to {shape.base}")
        if shape.database not in there and shape.then:
            progress.say(f"copying {shape.base} for: {shape.name}")
            await connection.execute(f"create database {shape.database} template {shape.base}")
            await _execute(_beside(dsn, shape.database), shape.then, "vacuum analyze acklast.jobs")
    finally:
        await connection.close()
    place = _beside(dsn, shape.database)
    await migrate(place)  # it may have been filled by an earlier version
    return place


async def _fill(dsn: str, shape: Shape) -> None:
    await migrate(dsn)
    fill = _FILL.format(
        fillfactor=shape.fillfactor,
        rows=shape.rows,
        key=_OLD[shape.keys],
        run=_RUN_JOBS,
        lanes=_LANES,
        packed=70 if shape.keys is Keys.RANDOM else 90,
    )
    await _execute(dsn, fill, "vacuum (analyze, freeze) acklast.jobs", "checkpoint")


async def _execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


def _beside(dsn: str, database: str) -> str:
    return urlsplit(dsn)._replace(path=f"/{database}").geturl()


# --- measuring -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counters:
    """What the server has counted so far."""

    wal_bytes: int
    images: int
    updates: int
    hot: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One round of one shape, per job where it is not a rate or a share."""

    jobs_per_s: float
    postgres_us: float
    python_us: float
    wal_bytes: float
    page_images: float
    hot: float


_COUNTERS: Final = """
select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, wal_fpi, n_tup_upd, n_tup_hot_upd
from pg_stat_wal, pg_stat_user_tables where relid = 'acklast.jobs'::regclass
"""


async def _counters(connection: asyncpg.Connection[Any], updates: int = 0) -> Counters:
    """The counters, once ``updates`` are in them: a connection that ends delivers its own a little later."""
    for _ in range(200):
        found = Counters(*(await connection.fetch(_COUNTERS))[0])
        if found.updates >= updates:
            return found
        await asyncio.sleep(0.05)
    raise BenchError(f"Postgres has counted {found.updates} updates and not {updates}")


async def measure(dsn: str, shape: Shape, first: int, jobs: int, flying: int) -> Measured:
    """Take jobs ``first`` and following through their life. A checkpoint comes before."""
    servers = listeners(urlsplit(dsn).port or 5432)
    connection = await asyncpg.connect(dsn)
    ledger = await PostgresLedger.connect(dsn)
    session = await ledger.open_session("bench", worker="bench", version="0", lease_s=3600)
    await connection.execute("checkpoint")
    before = await _counters(connection)
    cpu, own, began = cpu_s({"postgres": servers}), time.process_time(), time.monotonic()
    numbers = iter(range(first, first + jobs))
    await asyncio.gather(*(worker(ledger, session, shape, numbers) for _ in range(flying)))
    took_s, own_s = time.monotonic() - began, time.process_time() - own
    await ledger.close()
    used_s = cpu_s({"postgres": servers})["postgres"] - cpu["postgres"]
    after = await _counters(connection, before.updates + jobs)
    await connection.close()
    return Measured(
        jobs / took_s,
        used_s / jobs * 1e6,
        own_s / jobs * 1e6,
        (after.wal_bytes - before.wal_bytes) / jobs,
        (after.images - before.images) / jobs,
        (after.hot - before.hot) / max(1, after.updates - before.updates),
    )


async def worker(ledger: PostgresLedger, session: Session, shape: Shape, numbers: Iterator[int]) -> None:
    """One slot of a daemon whose handler takes no time."""
    now = datetime.now(UTC)
    for number in numbers:
        lane, key = f"lane-{number // _RUN_JOBS % _LANES}", shape.keys.new(number)
        fingerprint = hashlib.sha256(key.encode()).digest()
        run = f"run-2026-11-30-{number // _RUN_JOBS:04}"
        fresh = await ledger.claim(session, Claim(lane, key, fingerprint, "bench.v1", run, now))
        if not isinstance(fresh, Fresh):
            raise BenchError(f"{lane}/{key} was there already")
        record = Record(lane, key, fresh.fence, Complete(), "done", "", now, now)
        if await ledger.record(session, record) is not Recorded.RECORDED:
            raise BenchError(f"{lane}/{key} was not recorded")
        if shape.notes:
            await ledger.settled(lane, key, fresh.fence)


_SIZES: Final = """
select pg_relation_size('acklast.jobs'), pg_relation_size('acklast.jobs_pkey'),
       pg_indexes_size('acklast.jobs') - pg_relation_size('acklast.jobs_pkey')
"""


async def sizes(dsn: str) -> list[int]:
    """Bytes of the table, of its primary key, of its other indexes."""
    connection = await asyncpg.connect(dsn)
    found = list((await connection.fetch(_SIZES))[0])
    await connection.close()
    return found


# --- the table -----------------------------------------------------------------------------------------

_HEADINGS: Final = (
    *("shape", "rows before", "jobs/s", "Postgres\nCPU us", "Python\nCPU us", "WAL bytes", "page images"),
    *("HOT %", "table MB", "key MB", "other MB"),
)
_NOTES: Final = (
    "Per job: claimed, completed, acknowledgement noted. Postgres' CPU is that of all its processes.",
    "A checkpoint comes before each round: the first touch of a page after it logs the whole page.",
)


async def compare(options: argparse.Namespace, dsn: str, progress: Progress) -> Report:
    """Prepare and measure what ``options`` ask for."""
    names = options.only.split(",")
    wanted = [each for each in shapes(options.rows) if any(name in each.name for name in names)]
    places = {each: await prepare(dsn, each, progress) for each in wanted}
    found: dict[Shape, list[Measured]] = {each: [] for each in wanted}
    rounds = 0 if options.prepare else options.rounds
    progress.begin("shape", rounds * len(wanted))
    for _ in range(rounds):
        for each in wanted:
            first = await unused(places[each])
            measured = await measure(places[each], each, first, options.jobs, options.flying)
            found[each].append(measured)
            progress.step(f"{each.name}: {measured.jobs_per_s:,.0f} jobs/s, {measured.postgres_us:.1f} us")
    rows = {each: _row(each, found[each], await sizes(places[each])) for each in wanted if found[each]}
    figures = {each.name: {"rounds": [str(one) for one in found[each]]} for each in rows}
    return Report("shape", "The shape of the ledger", _HEADINGS, list(rows.values()), figures, _NOTES)


async def unused(dsn: str) -> int:
    """The first number that no earlier round of this database has used, at the start of a run."""
    connection = await asyncpg.connect(dsn)
    # The walk over the table would cost minutes; tickets are not ours. The sessions were opened one a round.
    rounds: int = await connection.fetchval("select count(*) from acklast.workers")
    await connection.close()
    return rounds * 10 * _RUN_JOBS


def _row(shape: Shape, rounds: Sequence[Measured], bytes_: Sequence[int]) -> list[str]:
    def of(name: str, digits: int = 0, scale: float = 1) -> str:
        return spread(Spread.of([getattr(each, name) * scale for each in rounds]), digits)

    return [
        shape.name,
        f"{shape.rows:,}",
        of("jobs_per_s"),
        of("postgres_us", 1),
        of("python_us", 1),
        of("wal_bytes"),
        of("page_images", 3),
        of("hot", 1, 100),
        *(f"{size / 1e6:,.0f}" for size in bytes_),
    ]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ledger_shape", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--rows", type=int, default=10_000_000, help="in the ledger before (default 10000000)")
    add("--jobs", type=int, default=15_000, help="of one round (default 15000, at most 100000)")
    add("--flying", type=int, default=300, help="jobs in flight (default 300)")
    add("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    add("--only", default="", help="shapes whose name has one of these in it, separated by commas")
    add("--prepare", action="store_true", help="only fill the databases")
    add("--json", type=Path, metavar="FILE", help="write every round's figures there")
    return parser.parse_args(argv)


async def _machine(dsn: str) -> dict[str, str]:
    connection = await asyncpg.connect(dsn)
    told = {name: str(await connection.fetchval(f"show {name}")) for name in _SETTINGS}
    await connection.close()
    return told


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    errors = Console(stderr=True)
    try:
        report = asyncio.run(compare(options, os.environ[LEDGER], Progress(errors)))
    except KeyError:
        errors.print(f"bench: {LEDGER} is not set; start it under python -m dev.stack run --", markup=False)
        return 69
    except BenchError as problem:
        errors.print(f"bench: {problem}", style="red", markup=False)
        return 69
    if report.rows:
        console = Console(width=180)
        show(console, report)
        told = asyncio.run(_machine(os.environ[LEDGER]))
        console.print("  " + ", ".join(f"{name} {value}" for name, value in told.items()), highlight=False)
        if options.json:
            write_json(options.json, told, vars(options), [report])
    return 0


if __name__ == "__main__":
    sys.exit(main())
