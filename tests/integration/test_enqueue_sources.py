"""Enqueueing from standard input and from SQL, and the file of what was not accepted."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import aio_pika
import asyncpg
import pytest

from acklast.errors import Exit
from harness import Broker, eventually
from harness.command import Command, Ended

TABLE = """
create table public.vacated (
    id integer, note text, price numeric, at timestamptz, day date, took interval, ref uuid, blob bytea,
    tags text[], more jsonb, span int4range, address inet, bits bit(3)
)
"""
ROW = """
insert into public.vacated values
(7, 'süß', 12345678901234567890.10, '2030-01-02 03:04:05+00', '2030-01-02', '1 day 1.5 s',
 '00000000-0000-0000-0000-000000000001', '\\xff00', '{a,b}', '{"a": [1, null]}', '[1,3)', '10.0.0.1', '101')
"""


@pytest.fixture
def command(tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, broker.url, ledger_dsn, capsys)


def sql(dsn: str, *statements: str) -> None:
    async def do() -> None:
        connection = await asyncpg.connect(dsn)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(do())


def enqueue(command: Command, *options: str, key: str = "{run}:{id}") -> Ended:
    return command("enqueue", "cleanup", "--run", "r1", "--key", key, "--json", *options)


def query(command: Command, text: str, **more: str) -> Ended:
    dsn_file = command.directory / "dsn"
    dsn_file.write_text(f"{command.dsn}\n")
    return enqueue(command, "--sql", text, "--dsn-file", str(dsn_file), **more)


def message(broker: Broker) -> aio_pika.abc.AbstractIncomingMessage:
    async def take() -> aio_pika.abc.AbstractIncomingMessage:
        async with await broker.connect() as connection:
            queue = await (await connection.channel()).get_queue("acklast.v1.cleanup.work")
            return await queue.get(no_ack=True, timeout=10)

    return asyncio.run(take())


def counts(ended: Ended) -> dict[str, int]:
    return {fate: count for fate, count in ended.lines[-1]["counts"].items() if count}


# --- SQL ------------------------------------------------------------------------------------------------


def test_a_querys_rows_are_json_and_what_json_lacks_is_text(command: Command, broker: Broker) -> None:
    sql(command.dsn, TABLE, ROW)
    done = query(command, "select * from public.vacated;", key="{run}:{ref}")
    assert (done.exit, counts(done)) == (Exit.OK, {"accepted": 1})
    sent = message(broker)
    assert sent.headers["job-key"] == "r1:00000000-0000-0000-0000-000000000001"
    assert json.loads(sent.body) == {
        "id": 7,
        "note": "süß",
        "price": "12345678901234567890.10",
        "at": "2030-01-02T03:04:05+00:00",
        "day": "2030-01-02",
        "took": "P1DT1.5S",
        "ref": "00000000-0000-0000-0000-000000000001",
        "blob": "ff00",
        "tags": ["a", "b"],
        "more": {"a": [1, None]},
        "span": "[1,3)",
        "address": "10.0.0.1",
        "bits": "101",
    }


@pytest.mark.soak
def test_a_query_of_many_rows_in_a_file_and_the_dsn_in_the_environment(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = command.directory / "rows.sql"
    file.write_text("select n as id, case when n % 1000 = 0 then 'NaN'::float8 else 1 end as x\n")
    file.write_text(file.read_text() + "from generate_series(1, 3000) n order by n;\n")
    done = enqueue(command, "--sql", f"@{file}", "--dsn", command.dsn)
    assert counts(done) == {"accepted": 2997, "malformed": 3}
    assert [item["line"] for item in done.lines[:-1]] == [1000, 2000, 3000]
    assert counts(enqueue(command, "--sql", f"@{file}", "--dsn", command.dsn))["again"] == 2997


@pytest.mark.parametrize(
    ("text", "exit_", "what"),
    [
        ("select", Exit.OK, ""),
        ("selec 1", Exit.DATA, "syntax error"),
        ("select $1 as id", Exit.DATA, "not $1"),
        ("select 1 as id, 2 as id", Exit.DATA, "two columns 'id'"),
        ("select 1 as number", Exit.DATA, "the key needs column 'id'"),
        ("delete from acklast.jobs returning key as id", Exit.DATA, "read-only"),
        ("select 1/(n-2) as id from generate_series(1, 3) n", Exit.DATA, "division by zero"),
    ],
)
def test_a_query_that_cannot_be_used_is_told(command: Command, text: str, exit_: Exit, what: str) -> None:
    done = query(command, text if text != "select" else "select 1 as id where false")
    assert done.exit == exit_
    assert what in done.err


def test_a_value_that_python_cannot_read_is_told(command: Command) -> None:
    numbers = """select id, (case when id = 2 then '{"n": ' || repeat('9', 5000) || '}' else '{}' end)::json
                 as more from generate_series(1, 3) id"""
    ended = query(command, numbers)
    assert (ended.exit, counts(ended)["accepted"], counts(ended)["malformed"]) == (Exit.INCOMPLETE, 2, 1)
    ended = query(command, "select 9 as id, '0044-03-15 BC'::date as day")
    assert ended.exit == Exit.DATA
    assert "::text" in ended.err


@pytest.mark.parametrize(
    ("dsn", "exit_"),
    [("postgresql://u:secret@127.0.0.1:1/x", Exit.UNAVAILABLE), ("postgres://u:se/cret@h/x", Exit.DATA)],
)
def test_a_database_that_is_away_is_told_without_its_password(
    command: Command, dsn: str, exit_: Exit
) -> None:
    done = enqueue(command, "--sql", "select 1 as id", "--dsn", dsn)
    assert done.exit == exit_
    assert "cret" not in done.err + done.out


# --- standard input -------------------------------------------------------------------------------------


async def test_rows_of_a_pipe_are_accepted_as_they_come(command: Command, broker: Broker) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
    options = ["--run", "r1", "--key", "{run}:{id}", "--format", "jsonl", "--json"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "acklast", "enqueue", "cleanup", "-", *options),
        *("--config", str(command.config)),
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b'{"id": 1}\n{"id": 2}\nbad\n')
    await process.stdin.drain()
    async with await broker.connect() as connection:

        async def arrived() -> bool:
            async with connection.channel() as channel:
                queue = await channel.declare_queue("acklast.v1.cleanup.work", passive=True)
                return queue.declaration_result.message_count == 2

        async def there() -> bool:
            try:
                return await arrived()
            except aio_pika.exceptions.ChannelNotFoundEntity:
                return False

        await eventually(there, 60, "the rows are published while the pipe is open")
    out, _ = await process.communicate(b'{"id": 3}')
    assert process.returncode == Exit.INCOMPLETE
    summary = json.loads(out.splitlines()[-1])
    assert (summary["rows"], summary["counts"]["accepted"], summary["complete"]) == (4, 3, False)


# --- the report -----------------------------------------------------------------------------------------


def test_what_was_not_accepted_is_in_the_report_as_it_came_and_can_be_fed_again(
    command: Command, broker: Broker
) -> None:
    file, report = command.directory / "rows.csv", command.directory / "bad.jsonl"
    rows = [b"id,note", b'1,"two\nlines"', b"2", b",x", b"1,other", b"3,\xff", b"4,d"]
    file.write_bytes(b"\r\n".join(rows) + b"\r\n")
    done = enqueue(command, str(file), "--on-error", "report", "--report", str(report))
    assert (done.exit, counts(done)) == (Exit.INCOMPLETE, {"accepted": 2, "conflict": 1, "malformed": 3})
    told = [json.loads(line) for line in report.read_text().splitlines()]
    assert {(one["line"], one["fate"], one["row"]) for one in told} == {
        (4, "malformed", "2"),
        (5, "malformed", ",x"),
        (6, "conflict", "1,other"),
        (7, "malformed", "3,\udcff"),
    }
    assert all(one["detail"] for one in told)
    again = command.directory / "again.csv"
    again.write_text("id,note\n" + "".join(f"9{n},{one['fate']}\n" for n, one in enumerate(told)))
    assert counts(enqueue(command, str(again))) == {"accepted": 4}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "name one source"),
        (("-",), "csv or jsonl"),
        (("-", "--format", "csv", "--sql", "select 1"), "name one source"),
        (("--sql", "select 1"), "ACKLAST_SOURCE_DSN"),
        (("--sql", "select 1", "--dsn", "x", "--format", "csv"), "--format"),
        (("nothing.csv",), "does not exist"),
        ((".", "--format", "csv"), "is a directory"),
        (("-", "--format", "csv", "--on-error", "report"), "--report FILE"),
        (("-", "--format", "csv", "--report", "x"), "--on-error report"),
        (("-", "--format", "csv", "--label", "x"), "NAME=VALUE"),
        (("-", "--format", "csv", "--owner", " "), "owner"),
        (("-", "--format", "csv", "--run-deadline", "2020-01-01T00:00:00Z"), "--run-deadline"),
    ],
)
def test_a_command_line_that_says_too_little_or_too_much(
    command: Command, options: tuple[str, ...], problem: str
) -> None:
    done = enqueue(command, *options)
    assert done.exit == Exit.USAGE
    assert problem in done.err


def test_what_the_run_is_about_is_kept_and_not_contradicted(command: Command) -> None:
    file = command.directory / "rows.csv"
    file.write_text("id\n1\n")
    about = ("--owner", "day shift", "--label", "city=ulm", "--run-deadline", "2040-01-01T00:00:00Z")
    assert enqueue(command, str(file), *about).exit == Exit.OK
    shown = command("runs", "show", "r1", "--json").document
    assert (shown["owner"], shown["labels"]) == ("day shift", {"city": "ulm"})
    other = enqueue(command, str(file), "--owner", "night shift")
    assert other.exit == Exit.USAGE
    assert "day shift" in other.err
