"""Schedules on a real ledger: each time is one run, each row of it one job, and every failure is told."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest

from acklast.config import Config, load
from acklast.errors import Exit
from acklast.ledger.connect import Address, Link
from acklast.ledger.firings import Firings
from acklast.ledger.schedules import Schedules
from acklast.schedule.scheduler import Scheduler
from acklast.telemetry.events import Emitter, Event, Notice
from harness.command import Command, Ended

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
QUERY = "select id, name from people"
MONDAY = datetime(2026, 8, 3, 5, tzinfo=UTC)  # 07:00 in Berlin
RUN = "digest-2026-W32"


def table(sql: str = QUERY, more: str = "", name: str = "digest", cron: str = "0 7 * * MON") -> str:
    return f"""
[schedules.{name}]
lane = "cleanup"
cron = "{cron}"
time_zone = "Europe/Berlin"
sql = "{sql}"
key = "{{run}}:{{id}}"
type = "cleanup.v1"
page = 10
{more}
"""


@pytest.fixture
async def sql(ledger_dsn: str) -> AsyncIterator[Sql]:
    """An application's table beside the ledger: 25 rows."""
    connection = await asyncpg.connect(ledger_dsn)
    await connection.execute("create table people (id int primary key, name text, extra jsonb)")
    await connection.execute("insert into people select n, 'name ' || n from generate_series(1, 25) n")
    yield connection
    await connection.close()


@pytest.fixture
def command(tmp_path: Path, ledger_dsn: str, capsys: pytest.CaptureFixture[str], sql: Sql) -> Command:
    made = Command(tmp_path, "amqp://nobody/", ledger_dsn, capsys)
    made.configure(more=table())
    return made


async def jobs(sql: Sql, run: str = RUN) -> list[str]:
    """The keys that are promised and in the outbox, each once."""
    rows = await sql.fetch(
        "select j.key from acklast.jobs j join acklast.outbox o on o.lane = j.lane and o.key = j.key"
        " where j.run = $1 and o.run = $1 order by o.id",
        run,
    )
    return [row["key"] for row in rows]


def keys(run: str = RUN, count: int = 25) -> list[str]:
    return [f"{run}:{number}" for number in range(1, count + 1)]


async def ask(command: Command, *arguments: str) -> Ended:
    """Run a command beside what runs in this loop."""
    return await asyncio.to_thread(command, *arguments)


class Bench:
    """A scheduler whose time is given."""

    def __init__(self, config: Config, dsn: str, worker: str = "w:1") -> None:
        self.said = list[Notice]()
        address = Address.of(dsn)
        self.scheduler = Scheduler(config, address, Emitter(self._hear), worker)
        self._link = Link(address)

    def _hear(self, event: Event) -> None:
        assert isinstance(event, Notice)
        self.said.append(event)

    async def at(self, now: datetime) -> list[str]:
        """One look at this time, everything that is due worked off; what was said."""
        heard = len(self.said)
        known = replace(await Schedules(self._link).look(), now=now)
        await self.scheduler.decide(known)
        await self.scheduler.begin()
        await self.scheduler.settled()
        return [event.name for event in self.said[heard:]]

    async def close(self) -> None:
        await self.scheduler.close()
        await self._link.close()


@pytest.fixture
async def bench(command: Command, ledger_dsn: str) -> AsyncIterator[Bench]:
    made = Bench(load(command.config, {}), ledger_dsn)
    yield made
    await made.close()


# --- firing -----------------------------------------------------------------------------------------------


async def test_a_time_that_comes_is_a_run_of_every_row(bench: Bench, sql: Sql) -> None:
    assert await bench.at(MONDAY - timedelta(seconds=2)) == []
    assert await bench.at(MONDAY - timedelta(seconds=1)) == []
    assert await bench.at(MONDAY) == ["schedule.fired", "firing.done"]
    assert await bench.at(MONDAY + timedelta(seconds=1)) == []
    assert await jobs(sql) == keys()
    row = await sql.fetchrow("select * from acklast.outbox order by id limit 1")
    assert row is not None
    assert (row["type"], row["content_type"]) == ("cleanup.v1", "application/json")
    assert row["payload"] == b'{"id":1,"name":"name 1"}'
    [firing] = await sql.fetch("select * from acklast.firings")
    assert (firing["state"], firing["pages"], firing["rows"], firing["promised"]) == ("done", 3, 25, 25)
    assert await sql.fetchval("select manifest from acklast.runs where run = $1", RUN) == 25


async def test_a_new_schedule_catches_nothing_up(bench: Bench, sql: Sql) -> None:
    assert await bench.at(MONDAY + timedelta(days=3)) == []
    assert await sql.fetchval("select count(*) from acklast.firings") == 0


async def test_two_schedulers_make_one_run_of_a_time(command: Command, ledger_dsn: str, sql: Sql) -> None:
    benches = [Bench(load(command.config, {}), ledger_dsn, f"w:{n}") for n in range(2)]
    for one in benches:
        await one.at(MONDAY - timedelta(seconds=1))
    said = await asyncio.gather(*(one.at(MONDAY) for one in benches))
    assert sorted(name for names in said for name in names) == ["firing.done", "schedule.fired"]
    assert await jobs(sql) == keys()
    for one in benches:
        await one.close()


async def test_what_the_jobs_and_the_run_are_told(command: Command, sql: Sql, ledger_dsn: str) -> None:
    more = 'deadline_s = 3600\nrun_deadline_s = 7200\nowner = "mail"\nlabels = { team = "a" }'
    command.configure(more=table(more=more))
    bench = Bench(load(command.config, {}), ledger_dsn)
    at = datetime.now(UTC).replace(microsecond=0)
    assert (await ask(command, "schedule", "fire", "digest")).exit == Exit.OK
    deadlines = await sql.fetch("select distinct deadline from acklast.outbox")
    assert [row["deadline"] - at < timedelta(seconds=3660) for row in deadlines] == [True]
    run = await sql.fetchrow("select * from acklast.runs")
    assert run is not None
    assert (run["owner"], json.loads(run["labels"])) == ("mail", {"team": "a"})
    assert timedelta(seconds=7200) <= run["deadline"] - at < timedelta(seconds=7260)
    await bench.close()


async def test_a_fan_out_is_a_job_of_each_row_in_each_lane(
    command: Command, ledger_dsn: str, sql: Sql
) -> None:
    lanes = '[lanes.mail]\n[fan_out.news]\nlanes = ["cleanup", "mail"]\n'
    command.configure(more=lanes + table().replace('"cleanup"', '"news"'))
    bench = Bench(load(command.config, {}), ledger_dsn)
    await bench.at(MONDAY - timedelta(seconds=1))
    await bench.at(MONDAY)
    found = await sql.fetch("select lane, count(*) from acklast.outbox group by lane order by lane")
    assert [tuple(row.values()) for row in found] == [("cleanup", 25), ("mail", 25)]
    assert await sql.fetchval("select manifest from acklast.runs where run = $1", RUN) == 50
    await bench.close()


async def test_no_row_is_a_run_without_jobs(bench: Bench, sql: Sql) -> None:
    await sql.execute("delete from people")
    await bench.at(MONDAY - timedelta(seconds=1))
    assert await bench.at(MONDAY) == ["schedule.fired", "firing.done"]
    assert await sql.fetchval("select manifest from acklast.runs where run = $1", RUN) == 0


async def test_the_query_is_told_its_time_and_its_run(command: Command, ledger_dsn: str, sql: Sql) -> None:
    query = "select id, $1::text as at, $2 as run from people where $1 > timestamptz '2026-01-01' and id < 3;"
    command.configure(more=table(query))
    bench = Bench(load(command.config, {}), ledger_dsn)
    await bench.at(MONDAY - timedelta(seconds=1))
    await bench.at(MONDAY)
    body = json.loads(await sql.fetchval("select payload from acklast.outbox order by id limit 1"))
    assert datetime.fromisoformat(body["at"]) == MONDAY
    assert body["run"] == RUN
    await bench.close()


async def test_what_nobody_saw_is_caught_up_by_the_ledgers_word(bench: Bench, sql: Sql) -> None:
    await bench.at(MONDAY - timedelta(days=15))
    assert await bench.at(MONDAY + timedelta(hours=3)) == [
        "schedule.skipped",
        "schedule.fired",
        "firing.done",
    ]
    rows = await sql.fetch("select run, state, cause, skipped from acklast.firings order by id")
    assert sorted(tuple(row.values()) for row in rows if row["run"]) == [(RUN, "done", "late", None)]
    assert [row["skipped"] for row in rows if row["state"] == "skipped"] == [2]


async def test_a_paused_schedule_does_not_fire_and_makes_nothing_up_for(bench: Bench, sql: Sql) -> None:
    await bench.at(MONDAY - timedelta(seconds=2))
    await sql.execute("update acklast.schedules set paused_at = clock_timestamp()")
    assert await bench.at(MONDAY) == []
    await sql.execute("update acklast.schedules set paused_at = null, decided_until = $1", MONDAY)
    assert await bench.at(MONDAY + timedelta(seconds=1)) == []
    assert await bench.at(MONDAY + timedelta(days=7)) == ["schedule.fired", "firing.done"]


async def test_a_cron_that_has_changed_makes_nothing_up_for(
    command: Command, ledger_dsn: str, sql: Sql
) -> None:
    """Neither does a schedule that was disabled: as long as a scheduler ran meanwhile."""
    for change in (table(cron="0 6 * * MON"), table(more="enabled = false"), table()):
        command.configure(more=change)
        bench = Bench(load(command.config, {}), ledger_dsn)
        await bench.at(MONDAY + timedelta(minutes=30))
        assert await bench.at(MONDAY + timedelta(minutes=31)) == []
        await bench.close()


# --- what goes wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select id from nothing", 'relation "nothing" does not exist'),
        ("select name from people", "no column 'id'; its columns are: name"),
        ("select null::int as id from people", "is the cursor, and is null in a row"),
        (
            "select 'kept-to-itself' as id from people",
            "not different in each row: rows 10 and 11 of those that were left have the same",
        ),
        ("select name::int as id from people", "InvalidTextRepresentationError (22P02)"),
        ("delete from people returning id", "syntax error"),
        ("select id from people where nextval('s') > 0", "read-only"),
        ("select 1/(id - 5) as x, id from people", "DivisionByZeroError (22012)"),
    ],
)
async def test_a_query_that_does_not_do_is_recorded_and_tried_again(
    command: Command, ledger_dsn: str, sql: Sql, query: str, said: str
) -> None:
    await sql.execute("create sequence s")
    command.configure(more=table(query))
    bench = Bench(load(command.config, {}), ledger_dsn)
    await bench.at(MONDAY - timedelta(seconds=1))
    assert await bench.at(MONDAY) == ["schedule.fired", "firing.failed"]
    [firing] = await sql.fetch(
        "select state, tries, error, due_at > clock_timestamp() as later from acklast.firings"
    )
    assert (firing["state"], firing["tries"], firing["later"]) == ("open", 1, True)
    assert said in firing["error"]
    assert not {"kept-to-itself", "name 1"} & set(re.findall(r"kept-to-itself|name \d+", firing["error"]))
    assert await bench.at(MONDAY + timedelta(seconds=1)) == []  # not at once again
    await sql.execute("update acklast.firings set due_at = clock_timestamp()")
    assert await bench.at(MONDAY + timedelta(seconds=2)) == ["firing.failed"]
    [listed] = (await ask(command, "schedule", "list", "--json")).document["schedules"]
    assert (listed["state"], said in listed["last"]["error"]) == ("failing", True)
    await bench.close()


async def test_a_failure_in_the_middle_goes_on_behind_the_last_page(
    command: Command, ledger_dsn: str, sql: Sql
) -> None:
    command.configure(more=table("select id, 1/(id - 25) as x from people"))
    bench = Bench(load(command.config, {}), ledger_dsn)
    await bench.at(MONDAY - timedelta(seconds=1))
    assert await bench.at(MONDAY) == ["schedule.fired", "firing.failed"]
    assert await jobs(sql) == keys(count=20)
    # Rows behind the place that it has reached are seen as they are then, and those before it no more.
    await sql.execute("delete from people where id in (3, 25)")
    await sql.execute("insert into people values (0, 'before'), (30, 'behind')")
    await sql.execute("update acklast.firings set due_at = clock_timestamp()")
    assert await bench.at(MONDAY + timedelta(seconds=2)) == ["firing.done"]
    assert await jobs(sql) == [*keys(count=24), f"{RUN}:30"]
    assert await sql.fetchval("select error from acklast.firings") is None
    await bench.close()


async def test_a_firing_is_given_up_after_many_tries_and_can_be_fired_by_hand(
    bench: Bench, command: Command, sql: Sql
) -> None:
    await sql.execute("alter table people rename to persons")
    await bench.at(MONDAY - timedelta(seconds=1))
    await bench.at(MONDAY)
    await sql.execute("update acklast.firings set tries = 19, due_at = clock_timestamp()")
    assert await bench.at(MONDAY + timedelta(seconds=2)) == ["firing.given_up"]
    [listed] = (await ask(command, "schedule", "list", "--json")).document["schedules"]
    assert listed["state"] == "failed"
    await sql.execute("alter table persons rename to people")
    assert await bench.at(MONDAY + timedelta(seconds=3)) == []
    fired = await ask(command, "schedule", "fire", "digest", "--at", MONDAY.isoformat(), "--json")
    assert (fired.exit, fired.document["new"], fired.document["firing"]["state"]) == (Exit.OK, False, "done")
    assert await jobs(sql) == keys()


async def test_a_row_without_a_key_does_not_stop_the_rest(
    command: Command, ledger_dsn: str, sql: Sql
) -> None:
    query = "select id, case when id % 10 = 3 then '' else id::text end as code from people"
    text = table(query, "cursor = 'id'").replace("{run}:{id}", "{run}:{code}")
    command.configure(more=text)
    bench = Bench(load(command.config, {}), ledger_dsn)
    await bench.at(MONDAY - timedelta(seconds=1))
    await bench.at(MONDAY)
    assert await jobs(sql) == [key for key in keys() if not key.endswith("3")]
    [entry] = (await ask(command, "schedule", "history", "digest", "--json")).document["history"]
    assert (entry["rows"], entry["promised"], entry["bad"]) == (25, 22, 3)
    assert entry["bad_rows"][0] == {"row": "3", "problem": "field 'code' of the key is empty"}
    assert "3: field 'code' of the key is empty" in (await ask(command, "schedule", "history")).out
    await bench.close()


async def test_a_key_that_is_there_is_left_alone(command: Command, ledger_dsn: str, sql: Sql) -> None:
    command.configure(more=table(cron="0 7 * * *").replace("{run}:{id}", "person:{id}"))
    bench = Bench(load(command.config, {}), ledger_dsn)
    await bench.at(MONDAY - timedelta(seconds=1))
    await bench.at(MONDAY)
    await sql.execute("update people set name = 'changed' where id = 1")
    await sql.execute("insert into people values (26, 'new')")
    await bench.at(MONDAY + timedelta(days=1))
    [entry, _] = (await ask(command, "schedule", "history", "--json")).document["history"]
    assert (entry["rows"], entry["promised"], entry["known"], entry["conflicts"]) == (26, 1, 24, 1)
    assert await sql.fetchval("select count(*) from acklast.outbox") == 26
    await bench.close()


async def test_a_run_that_was_cancelled_takes_no_more(bench: Bench, sql: Sql) -> None:
    await sql.execute(
        "insert into acklast.cancelled_runs (run, actor, login, reason) values ($1, 'a', 'a', 'why')", RUN
    )
    await bench.at(MONDAY - timedelta(seconds=1))
    assert await bench.at(MONDAY) == ["schedule.fired", "firing.given_up"]
    assert await jobs(sql) == []


async def test_a_firing_whose_jobs_would_be_too_late_is_given_up(
    command: Command, ledger_dsn: str, sql: Sql
) -> None:
    command.configure(more=table(more="deadline_s = 60"))
    fired = await ask(command, "schedule", "fire", "digest", "--at", MONDAY.isoformat(), "--json")
    if datetime.now(UTC) > MONDAY:
        assert fired.exit == Exit.INCOMPLETE
        assert "deadline of its jobs has passed" in fired.document["firing"]["error"]
    assert await jobs(sql) == []


# --- claims -----------------------------------------------------------------------------------------------


async def test_a_lost_claim_changes_nothing(command: Command, ledger_dsn: str, sql: Sql) -> None:
    """A worker that was away for longer than its lease finds another at its firing."""
    from acklast.ledger.firings import FiringLost, Page, Pages

    ledger, link = Address.of(ledger_dsn), Link(Address.of(ledger_dsn))
    await sql.execute(
        "insert into acklast.firings (schedule, scheduled_at, run, state, cause)"
        " values ('digest', now(), 'r', 'open', 'time')"
    )
    firings = Firings(link, "w", lease_s=30)
    first = await firings.claim(["digest"])
    assert first is not None
    assert await firings.claim(["digest"]) is None  # somebody's
    await sql.execute("update acklast.firings set lease_until = clock_timestamp()")
    second = await firings.claim_run("r")
    assert second is not None
    assert second.fence > first.fence
    async with Pages(ledger) as pages:
        with pytest.raises(FiringLost):
            await pages.commit(first, Page(cursor="1"))
        await pages.commit(second, Page(cursor="2"))
    assert not await firings.renew(first)
    assert await firings.renew(second)
    await firings.fail(first, "late", 5)
    assert dict(await one_firing(sql)) == {"cursor": "2", "tries": 0, "state": "open"}
    await firings.give_back(second)
    third = await firings.claim(["digest"])
    assert third is not None
    assert third.cursor == "2"
    await link.close()


async def one_firing(sql: Sql) -> dict[str, Any]:
    [row] = await sql.fetch("select cursor, tries, state from acklast.firings")
    return dict(row)


async def test_a_firing_of_a_schedule_that_is_not_configured_is_left_to_others(
    bench: Bench, sql: Sql
) -> None:
    await sql.execute(
        "insert into acklast.firings (schedule, scheduled_at, run, state, cause)"
        " values ('other', now(), 'r', 'open', 'time')"
    )
    assert await bench.at(MONDAY) == []
    assert (await one_firing(sql))["state"] == "open"
