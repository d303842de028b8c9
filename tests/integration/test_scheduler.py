"""``acklast scheduler`` as a process: killed in the middle of a page, two at once, the ledger away."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from harness import Broker, eventually
from harness.daemon import Daemon
from harness.scripted import LANE, TYPE
from harness.site import site

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ROWS = 95
GATE = 4711

CALLABLE = """
from pathlib import Path
from acklast import Firing

HERE = Path(__file__).parent

async def rows(firing: Firing):
    with (HERE / "after").open("a") as log:
        log.write(f"{firing.after}\\n")
    for number in range((firing.after or 0) + 1, 96):
        if number == 55 and not (HERE / "open").exists():
            await __import__("asyncio").Event().wait()
        yield {"id": number}
"""

# The fourth page of a firing waits inside its own transaction for as long as somebody holds the gate.
STOP_AT_A_PAGE = f"""
create function stop() returns trigger language plpgsql as $$
begin perform pg_advisory_xact_lock({GATE}); return new; end $$;
create trigger stop before update on acklast.firings for each row
    when (old.pages = 3 and new.pages = 4) execute function stop()
"""


@pytest.fixture
async def sql(ledger_dsn: str) -> AsyncIterator[Sql]:
    connection = await asyncpg.connect(ledger_dsn)
    await connection.execute(f"create table people as select n as id from generate_series(1, {ROWS}) n")
    yield connection
    await connection.close()


@pytest.fixture
def minute() -> int:
    """Of every hour, and far from now: nothing fires by itself while a test runs."""
    return (datetime.now(UTC).minute + 30) % 60


def config(directory: Path, dsn: str, minute: int, more: str = "", lease_s: float = 3) -> Path:
    path = directory / "acklast.toml"
    path.write_text(
        f"""
app = "handlers:app"
state_dir = "state"
[broker]
url = "amqp://nobody/"
[ledger]
dsn = "{dsn}"
lease_s = {lease_s}
[lanes.{LANE}]
[schedules.digest]
lane = "{LANE}"
cron = "{minute} * * * *"
key = "{{run}}:{{id}}"
page = 10
catch_up = "all"
{more or 'sql = "select id from people"'}
"""
    )
    return path


def scheduler(path: Path, instance: str = "one") -> Daemon:
    return Daemon(path, instance, env={}, command="scheduler")


async def behind(sql: Sql, minute: int, hours: int) -> list[str]:
    """As if schedulers had been away for so long; the runs that were missed."""
    now = await sql.fetchval("select clock_timestamp()")
    since = now - timedelta(hours=hours)
    await sql.execute(
        "insert into acklast.schedules (name, lane, expression, decided_until) values ('digest', $1, '', $2)",
        LANE,
        since,
    )
    first = since.replace(minute=minute, second=0, microsecond=0)
    times = [first + timedelta(hours=n) for n in range(hours + 1)]
    return [f"digest-{at:%Y-%m-%dT%H%M%z}" for at in times if since < at <= now]


async def done(sql: Sql, count: int) -> None:
    async def all_done() -> bool:
        found = await sql.fetchval("select count(*) from acklast.firings where state = 'done'")
        return bool(found >= count)

    await eventually(all_done, 60, f"{count} firings are done")


async def each_once(sql: Sql, runs: list[str]) -> None:
    """Every row of every run is one job, promised once and in the outbox once."""
    wanted = sorted(f"{run}:{number}" for run in runs for number in range(1, ROWS + 1))
    for name in ("jobs", "outbox"):
        found = await sql.fetch(f"select key from acklast.{name}")
        assert sorted(row["key"] for row in found) == wanted, name
    promised = await sql.fetch("select run, manifest from acklast.runs order by run")
    assert [(row["run"], row["manifest"]) for row in promised] == [(run, ROWS) for run in sorted(runs)]


async def pages(sql: Sql, at_least: int) -> None:
    async def there() -> bool:
        found = await sql.fetchval("select coalesce(max(pages), 0) from acklast.firings")
        return bool(found >= at_least)

    await eventually(there, 60, f"{at_least} pages are promised")


async def test_killed_within_the_commit_of_a_page_it_goes_on_there(
    tmp_path: Path, ledger_dsn: str, minute: int, sql: Sql
) -> None:
    path = config(tmp_path, ledger_dsn, minute)
    [run] = await behind(sql, minute, 1)
    await sql.execute(STOP_AT_A_PAGE)
    holder = await asyncpg.connect(ledger_dsn)
    await holder.execute(f"select pg_advisory_lock({GATE})")
    with scheduler(path) as first:
        await pages(sql, 3)

        async def at_the_gate() -> bool:
            return bool(await sql.fetchval("select exists (select from pg_locks where not granted)"))

        await eventually(at_the_gate, 60, "the fourth page waits")
        first.signal(signal.SIGKILL)
        assert await first.ended() == -signal.SIGKILL
    assert await sql.fetchval("select count(*) from acklast.outbox") == 30
    await holder.close()
    with scheduler(path) as second:
        await done(sql, 1)
        assert await second.drained() == Exit.OK
    await each_once(sql, [run])
    [firing] = await sql.fetch("select pages, rows, promised, known from acklast.firings where fence > 1")
    assert tuple(firing.values()) == (10, ROWS, ROWS, 0)


@pytest.mark.parametrize("cursor", ["id", None])
async def test_killed_in_a_callable_it_goes_on_behind_the_last_page_or_reads_again(
    tmp_path: Path, ledger_dsn: str, minute: int, sql: Sql, cursor: str | None
) -> None:
    module = f"rows_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(CALLABLE)
    more = f'rows = "{module}:rows"\n' + (f'cursor = "{cursor}"' if cursor else "")
    path = config(tmp_path, ledger_dsn, minute, more)
    [run] = await behind(sql, minute, 1)
    with scheduler(path) as first:
        await pages(sql, 5)
        first.signal(signal.SIGKILL)
        await first.ended()
    (tmp_path / "open").touch()
    with scheduler(path) as second:
        await done(sql, 1)
        assert await second.drained() == Exit.OK
    await each_once(sql, [run])
    assert (tmp_path / "after").read_text().split() == ["None", "50" if cursor else "None"]


async def test_two_at_once_fire_each_time_once(
    tmp_path: Path, ledger_dsn: str, minute: int, sql: Sql
) -> None:
    path = config(tmp_path, ledger_dsn, minute, lease_s=30)
    runs = await behind(sql, minute, 12)
    with scheduler(path, "one") as one, scheduler(path, "two") as two:
        await done(sql, len(runs))
        assert [await one.drained(), await two.drained()] == [Exit.OK, Exit.OK]
        finished = [len(daemon.said("firing.done")) for daemon in (one, two)]
    await each_once(sql, runs)
    assert sum(finished) == len(runs)
    causes = await sql.fetch("select distinct cause from acklast.firings")
    assert {row["cause"] for row in causes} <= {"late", "time"}


async def test_stopped_in_the_middle_it_gives_the_firing_back_at_once(
    tmp_path: Path, ledger_dsn: str, minute: int, sql: Sql
) -> None:
    """The lease is an hour: nobody waits for it."""
    module = f"rows_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(CALLABLE)
    path = config(tmp_path, ledger_dsn, minute, f'rows = "{module}:rows"\ncursor = "id"', lease_s=3600)
    [run] = await behind(sql, minute, 1)
    with scheduler(path) as first:
        await pages(sql, 5)
        assert await first.drained() == Exit.OK
        assert first.said("scheduler.stopped")
    (tmp_path / "open").touch()
    with scheduler(path):
        await done(sql, 1)
    await each_once(sql, [run])


async def test_it_outlives_the_loss_of_its_connections(
    tmp_path: Path, ledger_dsn: str, minute: int, sql: Sql
) -> None:
    path = config(tmp_path, ledger_dsn, minute)
    with scheduler(path) as one:
        await one.says("scheduler.ready")
        entered = "select exists (select from acklast.schedules where decided_until is not null)"

        async def known() -> bool:
            return bool(await sql.fetchval(entered))

        await eventually(known, 60, "the schedule is known")

        async def noticed() -> bool:
            # Again and again: a connection that is lost between two looks is opened again without a word.
            await sql.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name like 'acklast/%' and datname = current_database()"
            )
            return bool(one.said("scheduler.unavailable"))

        await eventually(noticed, 60, "the ledger is away")
        await one.says("scheduler.resumed")
        await sql.execute(
            "insert into acklast.firings (schedule, scheduled_at, run, state, cause)"
            " values ('digest', clock_timestamp(), 'r', 'open', 'time')"
        )
        await done(sql, 1)
        assert await one.drained() == Exit.OK
    await each_once(sql, ["r"])


async def test_it_refuses_to_start_where_two_times_are_one_run(
    tmp_path: Path, ledger_dsn: str, minute: int
) -> None:
    path = config(tmp_path, ledger_dsn, minute, 'sql = "select id from people"\nrun = "x-%Y-%m-%d"')
    with scheduler(path) as one:
        assert await one.ended() == Exit.CONFIG
        assert "as the same run" in one.text()


async def test_what_fires_is_done_by_the_lane(
    broker: Broker, ledger_dsn: str, sql: Sql, tmp_path: Path
) -> None:
    steps = json.dumps({"steps": [{"do": "done"}]})
    query = f"select id, steps.* from people, jsonb_to_record('{steps}') as steps (steps jsonb) where id < 4"
    more = f"""
[schedules.digest]
lane = "{LANE}"
type = "{TYPE}"
cron = "0 7 * * MON"
key = "{{run}}:{{id}}"
sql = '''{query}'''
"""
    async with site(tmp_path, broker.url, ledger_dsn, more=more) as place:
        fired = await place.command("schedule", "fire", "digest", "--as", "anna")
        assert (fired["new"], fired["firing"]["actor"], fired["firing"]["promised"]) == (True, "anna", 3)
        with place.daemon() as daemon:
            await daemon.ready()
            for number in (1, 2, 3):
                await place.reaches(f"{fired['run']}:{number}", State.DONE)
            assert await daemon.drained() == 0
        view = await place.ledger.run(fired["run"])
        assert view is not None
        assert view.balanced
