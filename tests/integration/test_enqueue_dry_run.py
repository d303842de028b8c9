"""A dry run tells what would become of each row and when the run would be finished, and changes nothing."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from acklast.errors import Exit
from harness import Broker
from harness.command import Command, Ended

BUDGET = '[budgets.api]\nquota = "10 per 1 s"\n'


@pytest.fixture
def command(tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    made = Command(tmp_path, broker.url, ledger_dsn, capsys)
    text = made.config.read_text()
    made.config.write_text(f'{text}budget = "api"\n{BUDGET}')
    return made


def enqueue(command: Command, rows: list[str], run: str, *options: str) -> Ended:
    file = command.directory / f"{run}.csv"
    file.write_text("\n".join(["id,note", *rows]))
    return command("enqueue", "cleanup", str(file), "--run", run, "--key", "{id}", "--json", *options)


def in_(document: dict[str, str], name: str, since: datetime) -> float:
    return (datetime.fromisoformat(document[name]) - since).total_seconds()


async def _jobs(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("select count(*) from acklast.jobs"))
    finally:
        await connection.close()


def test_it_tells_fates_keys_and_the_finish_and_changes_nothing(command: Command, ledger_dsn: str) -> None:
    due = datetime.now().astimezone() + timedelta(seconds=600)
    first = enqueue(command, [f"o{n},x" for n in range(400)], "old", "--run-deadline", due.isoformat())
    assert first.exit == Exit.OK
    rows = ["o1,x", "o2,other", *(f"n{n},x" for n in range(200)), "n1,x", "n2,other", "bad"]
    began = datetime.now().astimezone()
    done = enqueue(command, rows, "new", "--dry-run", "--run-deadline", due.isoformat())
    assert done.exit == Exit.INCOMPLETE
    assert {item["line"]: item["fate"] for item in done.lines[:-1]} == {
        3: "conflict",
        205: "conflict",
        206: "malformed",
    }
    summary = done.lines[-1]
    counts = {fate: n for fate, n in summary["counts"].items() if n}
    assert counts == {"accepted": 200, "again": 1, "duplicate": 1, "conflict": 2, "malformed": 1}
    assert (summary["dry_run"], summary["first_keys"][:3]) == (True, ["o1", "o2", "n0"])
    cast = summary["forecast"]
    assert (cast["jobs"], cast["before"], cast["met"]) == (200, 400, True)
    assert 59 < in_(cast, "finish", began) < 90
    [other] = cast["others"]
    assert (other["run"], other["jobs"], other["met_with"]) == ("old", 400, True)
    assert 39 < in_(other, "finish_with", began) < 70
    assert any("no daemon" in note for note in summary["notes"])
    assert asyncio.run(_jobs(ledger_dsn)) == 400
    assert command("runs", "show", "new").exit == Exit.NOT_FOUND


def test_people_read_it(command: Command) -> None:
    file = command.directory / "rows.csv"
    file.write_text("id\n1\n2\n")
    done = command("enqueue", "cleanup", str(file), "--run", "r1", "--key", "{run}:{id}", "--dry-run")
    lines = done.out.splitlines()
    assert lines[:3] == [
        "dry run: nothing was promised or published",
        "run r1, lane cleanup: 2 rows",
        "  accepted           2  new: would be promised and published",
    ]
    assert lines[3] == "first keys: r1:1, r1:2"
    assert lines[4].startswith("forecast: 2 jobs, 0 of others in the lane before them; finished in 0 s")


def test_a_lane_without_a_budget_has_no_forecast_that_is_made_up(command: Command) -> None:
    command.configure()
    summary = enqueue(command, ["1,x"], "r", "--dry-run").lines[-1]
    assert summary["forecast"]["finish"] is None
    assert any("its pace is not known" in note for note in summary["notes"])
