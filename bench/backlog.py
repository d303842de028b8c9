"""How long a reading of the backlog takes beside millions of jobs, while other jobs go on.

Fills a database of its own, counts what is in it as a migration does, and reads the counts again and again:
with nobody else there, and while jobs are claimed and completed and the counts are kept short.

    python -m dev.stack run -- python -m bench.backlog

Needs 5 GB of disk with the 10 million rows that it fills in by itself; ``--rows`` makes it smaller.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg
from rich.console import Console

from acklast.ledger.backlog import Backlog, read_backlog
from acklast.ledger.connect import Address
from acklast.ledger.job_counts import count_all, sum_up
from acklast.ledger.migrate import migrate
from acklast.ledger.operate import Operations
from acklast.ledger.postgres import PostgresLedger
from acklast.ledger.sampling import Sampling
from bench.ledger_shape import Shape, unused, worker
from bench.report import Report, show, spread, write_json
from bench.stats import Spread
from dev.stack import LEDGER

_FLYING: Final = 300

# No trigger sees them come: they are counted afterwards, as those from before a migration are.
_FILL: Final = """
alter table acklast.jobs disable trigger user;
drop index acklast.jobs_run;
alter table acklast.jobs drop constraint jobs_pkey;
insert into acklast.jobs (lane, key, state, fence, attempts, claims, session, ticket, enqueued_at,
                          published_at, claimed_at, effect_at, recorded_at, settled_at, fingerprint, type,
                          run)
select 'lane-' || (n / 10000 % 8), 'old-' || lpad((n / 10000)::text, 4, '0') || '/' || n,
       case when n % 1000 = 0 then 'dead' else 'done' end, 1, 1, 1, 1, n, t, t, t, t, t, t,
       sha256(n::text::bytea), 'bench.v1', 'old-' || lpad((n / 10000)::text, 4, '0')
from generate_series(1, {rows} - {opened}) n,
     lateral (select now() - interval '1 day' + n * interval '5 ms') as m (t);
insert into acklast.jobs (lane, key, state, fence, attempts, claims, session, ticket, enqueued_at,
                          available_at, recorded_at, fingerprint, type, run, priority)
select 'lane-' || (n % {runs} % 8), 'new-' || lpad((n % {runs})::text, 4, '0') || '/' || n,
       case when turn < 15 then 'queued' when turn < 19 then 'waiting' else 'claimed' end, 1, 1, 1, 1, n,
       now() - interval '1 hour' + (n % {runs}) * interval '5 s',
       case when turn between 15 and 18 then now() - interval '5 min' + random() * interval '6 hours' end,
       case when turn between 15 and 18 then now() - random() * interval '10 min' end,
       sha256(n::text::bytea), 'bench.v1', 'new-' || lpad((n % {runs})::text, 4, '0'),
       (array[null, null, null, 0, 9])[1 + n / {runs} % 5]
from generate_series(0, {opened} - 1) n, lateral (select n / {runs} % 20) as m (turn);
insert into acklast.runs (run, manifest, deadline)
select 'new-' || lpad(n::text, 4, '0'), {opened} / {runs}, now() + n * interval '1 min'
from generate_series(0, {runs} - 1) n;
alter table acklast.jobs add constraint jobs_pkey primary key (lane, key) with (fillfactor = 90);
create index jobs_run on acklast.jobs (run) where run is not null;
alter table acklast.jobs enable trigger user;
vacuum (analyze, freeze) acklast.jobs;
checkpoint;
"""
_PLAIN: Final = """
select lane, run, state, count(*) from acklast.jobs
where state in ('queued', 'waiting', 'claimed', 'unresolved', 'dead') group by lane, run, state
"""


async def prepare(dsn: str, options: argparse.Namespace, console: Console) -> tuple[str, float]:
    """The filled database, and how many seconds it took to count what is in it; 0 where it was there."""
    name = f"backlog_{options.rows}"
    place = urlsplit(dsn)._replace(path=f"/{name}").geturl()
    connection = await asyncpg.connect(dsn)
    there = await connection.fetchval("select count(*) from pg_database where datname = $1", name)
    if not there:
        await connection.execute(f"create database {name}")
    await connection.close()
    await migrate(place)
    if there:
        return place, 0.0
    console.print(f"filling {options.rows:,} rows")
    connection = await asyncpg.connect(place)
    for statement in _FILL.format(rows=options.rows, opened=options.open, runs=options.runs).split(";\n"):
        if statement.strip():
            await connection.execute(statement)
    began = time.monotonic()
    await count_all(connection)
    counted_s = time.monotonic() - began
    await sum_up(connection)
    await connection.execute("vacuum analyze acklast.job_counts, acklast.job_dues, acklast.job_counts_over")
    await connection.close()
    return place, counted_s


async def readings(place: str, count: int, pause_s: float) -> tuple[list[float], Backlog]:
    """Milliseconds that each took."""
    operations = await Operations.connect(Address.of(place))
    took = []
    for _ in range(count):
        began = time.monotonic()
        found = await read_backlog(operations)
        took.append((time.monotonic() - began) * 1e3)
        await asyncio.sleep(pause_s)
    operations.close()
    return took, found


async def beside(place: str, count: int) -> tuple[list[float], float]:
    """Readings while jobs go on; and how many a second went on."""
    ledger, over = await PostgresLedger.connect(place), asyncio.Event()
    session = await ledger.open_session("bench", worker="bench", version="0", lease_s=3600)
    first = await unused(place)
    numbers, done = iter(range(first, first + 90_000)), 0

    def going() -> Iterator[int]:
        nonlocal done
        for number in numbers:
            if over.is_set():
                return
            done += 1
            yield number

    async def tidies() -> None:
        sampling = Sampling(Address.of(place))
        while not over.is_set():
            backlog, _ = await sampling.read()
            await sampling.tidy(backlog)
            await asyncio.sleep(1)
        await sampling.close()

    async def reads() -> list[float]:
        took, _ = await readings(place, count, 0.2)
        over.set()
        return took

    began, line = time.monotonic(), going()
    workers = [worker(ledger, session, Shape("backlog", 0), line) for _ in range(_FLYING)]
    reading = asyncio.create_task(reads())
    await asyncio.gather(reading, tidies(), *workers)
    await ledger.close()
    return reading.result(), done / (time.monotonic() - began)


async def measure(options: argparse.Namespace, dsn: str, console: Console) -> Report:
    place, counted_s = await prepare(dsn, options, console)
    began = time.monotonic()
    connection = await asyncpg.connect(place)
    plain = await connection.fetch(_PLAIN) if options.plain else []
    plain_s = time.monotonic() - began
    await connection.close()
    alone, found = await readings(place, options.readings, 0)
    busy, per_s = await beside(place, options.readings)
    rows = [
        ["nobody else there", spread(Spread.of(alone), 1)],
        [f"while {per_s:,.0f} jobs/s are claimed and completed", spread(Spread.of(busy), 1)],
    ]
    notes = [
        f"{options.rows:,} jobs, {found.jobs():,} of them open or dead; {len(found.depths):,} figures of"
        f" {len(found.runs)} open runs. From the question to the values in Python, {options.readings} times.",
    ]
    if plain:
        notes.append(f"The same by count(*) over the jobs: {plain_s:,.1f} s.")
    if counted_s:
        notes.append(f"Counting all of them once, as after the migration: {counted_s:,.1f} s.")
    figures: dict[str, dict[str, Any]] = {"alone": {"ms": alone}, "beside": {"ms": busy, "jobs_per_s": per_s}}
    return Report("backlog", "A reading of the backlog", ("", "ms"), rows, figures, notes)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.backlog", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--rows", type=int, default=10_000_000, help="jobs in the ledger (default 10000000)")
    add("--open", type=int, default=200_000, help="of them open (default 200000)")
    add("--runs", type=int, default=500, help="in so many runs (default 500)")
    add("--readings", type=int, default=50, help="of each kind (default 50)")
    add("--plain", action="store_true", help="count the jobs themselves too, once")
    add("--json", type=Path, metavar="FILE", help="write every reading there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    console = Console(width=120)
    if LEDGER not in os.environ:
        console.print(f"bench: {LEDGER} is not set; start it under python -m dev.stack run --", markup=False)
        return 69
    report = asyncio.run(measure(options, os.environ[LEDGER], console))
    show(console, report)
    if options.json:
        write_json(options.json, {}, vars(options), [report])
    return 0


if __name__ == "__main__":
    sys.exit(main())
