"""What people give commands that no command can use: told with a remedy, and nothing is harmed by it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable
from datetime import UTC, datetime, timedelta, timezone
from io import BytesIO
from pathlib import Path
from threading import Thread

import pytest

from acklast.cli.given import Input, opened
from acklast.cli.order import Order, Source
from acklast.cli.refused_rows import refused_rows
from acklast.cli.root import run
from acklast.cli.rows import DataError, Kind, read_rows
from acklast.cli.spans import parse_moment
from acklast.cli.whole_file import Unwritable, whole_file
from acklast.errors import Exit
from acklast.pacing.controls import Refused
from acklast.schedule.query import sql_row
from acklast.schedule.rows import NoRow
from acklast.template import KeyTemplate
from acklast_topology.items import Enqueued, Entry, Fate
from acklast_topology.job import Job

LAST = "9999-12-31T23:59:59-14:00"
"""A time that UTC puts behind the end of the calendar."""
BAD = Enqueued(1, None, Fate.MALFORMED, "is no job", Source(2, b"row"))


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--run", ""], "run '' is not valid"),
        (["--run", "a\nb"], r"run 'a\nb' is not valid"),
        (["--run", "r" * 256], "1 to 255 bytes"),
        (["--run", "a", "--type", "t" * 256], "type must be at most 255 bytes"),
        (["--run", "a", "--deadline", LAST], LAST),
        (["--run", "a", "--run-deadline", LAST], LAST),
        (["--run", "a\udcff"], r"'a\udcff' is not UTF-8"),
    ],
)
def test_what_all_rows_would_suffer_from_is_told_once(
    capsys: pytest.CaptureFixture[str], arguments: list[str], what: str
) -> None:
    assert run(["enqueue", "work", "rows.csv", "--key", "{id}", *arguments]) == Exit.USAGE
    told = capsys.readouterr().err
    assert what in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    "arguments",
    [["runs", "show"], ["runs", "cancel"], ["jobs", "show"], ["runs", "list", "--owner"], ["audit", "--as"]],
)
def test_an_argument_that_no_database_takes_is_refused_by_every_command(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run([*arguments, "\udcff"]) == Exit.USAGE
    assert "is not UTF-8" in capsys.readouterr().err


def test_a_moment_behind_the_end_of_the_calendar_is_none() -> None:
    with pytest.raises(Refused, match="is no time"):
        parse_moment(LAST)
    behind = datetime.max.replace(tzinfo=timezone(-timedelta(hours=14)))
    with pytest.raises(ValueError, match="deadline of job 'k' is out of range"):
        Job("work", "k", b"", deadline=behind)
    assert Job("work", "k", b"", deadline=datetime.max.replace(tzinfo=UTC)).deadline is not None


def test_the_report_never_empties_the_input(tmp_path: Path) -> None:
    rows, link = tmp_path / "rows.csv", tmp_path / "link.csv"
    rows.write_text("id\n1\n")
    link.symlink_to(rows)
    for report in (rows, link):
        with pytest.raises(DataError, match="is the input itself"), refused_rows(report, rows):
            pass
    assert rows.read_text() == "id\n1\n"


def test_a_report_that_cannot_be_written_on_is_told() -> None:
    with pytest.raises(DataError, match="No space left"), refused_rows(Path("/dev/full"), None) as put:
        put(BAD)


def test_a_file_is_never_put_in_the_place_of_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(Unwritable, match="not a regular file"), whole_file(pipe):
        pass
    assert pipe.is_fifo()


class Failing(BytesIO):
    def readline(self, _size: int | None = -1) -> bytes:
        if line := super().readline():
            return line
        raise OSError(5, "Input/output error")


def test_an_input_that_fails_half_way_is_told_behind_its_rows() -> None:
    rows = read_rows(Failing(b'{"id": 1}\n'), Kind.JSONL)
    next(rows)
    with pytest.raises(DataError, match="cannot be read: Input/output error"):
        next(rows)


async def test_rows_come_through_a_named_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = Thread(target=pipe.write_bytes, args=[b'{"id": 1}\n{"id": 2}\n'])
    writing.start()
    order = Order("work", "r", KeyTemplate.parse("{id}"))
    with opened(Input(pipe, Kind.JSONL), order) as jobs:
        assert isinstance(jobs, AsyncIterable)
        assert [one.job.key async for one in jobs if isinstance(one, Entry)] == ["1", "2"]
    writing.join()


def test_a_row_of_a_query_that_python_cannot_read_is_told_and_passes() -> None:
    for text in ('{"n": ' + "9" * 5000 + "}", '{"a":' * 3000 + "1" + "}" * 3000):
        assert isinstance(sql_row("7", text), NoRow)


@pytest.mark.parametrize("text", [b"\n", b"\xef\xbb\xbf", b"\r\nid\r\n1\r\n"])
def test_a_csv_file_that_begins_with_a_blank_line_is_told(text: bytes) -> None:
    with pytest.raises(DataError, match="first line is blank"):
        list(read_rows(BytesIO(text), Kind.CSV))


def test_a_disk_that_is_full_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "out.part").symlink_to("/dev/full")
    with pytest.raises(Unwritable, match="No space left"), whole_file(tmp_path / "out") as file:
        file.write("a line\n")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionError), whole_file(tmp_path / "out"):
        raise ConnectionResetError("of a server")
