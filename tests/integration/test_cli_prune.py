"""``acklast ledger prune`` for real: what it tells, what the audit knows, and a kill in the middle."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.prune import BATCH
from harness import until
from harness.command import Command

MANY = 4 * BATCH
# Of ten rows nine have expired; every third of them is dead, with a letter.
_FILL = """
with made as (
    insert into acklast.jobs (lane, key, state, fence, attempts, claims, recorded_at, run)
    select $1, to_char(n, 'FM000000'), case when n % 3 = 0 then 'dead' else 'done' end, 1, 1, 1,
           now() - make_interval(days => case when n % 10 = 0 then 1 else 100 end), 'r' || n % 2
    from generate_series(1, $2::int) n
    returning lane, key, state, fence, recorded_at, run
),
letters as (
    insert into acklast.dead_letters (lane, key, fence, run, reason, failure, payload, first_failure_at,
                                      last_failure_at, worker, version)
    select lane, key, fence, run, 'refused', 'f', 'body', recorded_at, recorded_at, 'w', '1'
    from made where state = 'dead'
)
insert into acklast.runs (run, manifest) select run, count(*) from made group by run
"""
EXPIRED = {
    "done": sum(n % 3 != 0 and n % 10 != 0 for n in range(1, MANY + 1)),
    "dead": sum(n % 3 == 0 and n % 10 != 0 for n in range(1, MANY + 1)),
}


@pytest.fixture
def command(tmp_path: Path, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    made = Command(tmp_path, "amqp://127.0.0.1:1/", ledger_dsn, capsys)
    fetch(ledger_dsn, _FILL, "cleanup", MANY)
    return made


def fetch(dsn: str, statement: str, *args: object) -> list[asyncpg.Record]:
    async def do() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(statement, *args)
        finally:
            await connection.close()

    return asyncio.run(do())


def left(dsn: str) -> int:
    count: int = fetch(dsn, "select count(*) from acklast.jobs")[0][0]
    return count


def pruned(document: dict[str, Any]) -> dict[str, int]:
    """The counts that are not zero."""
    return {name: count for name, count in document["pruned"].items() if count}


def accounts(command: Command) -> list[dict[str, Any]]:
    """Both runs, which must balance."""
    found = [command("runs", "show", run, "--json") for run in ("r0", "r1")]
    assert [one.exit for one in found] == [Exit.OK, Exit.OK], found
    return [one.document for one in found]


def test_expired_rows_go_and_the_runs_balance(command: Command) -> None:
    before = accounts(command)
    told = command("ledger", "prune", "--dry-run", "--json")
    assert told.document["dry_run"] is True
    assert accounts(command) == before
    done = command("ledger", "prune", "--json")
    assert done.exit == Exit.OK
    assert done.document["complete"] is True
    assert done.document["lanes"] == ["cleanup"]
    assert pruned(done.document) == pruned(told.document) == EXPIRED | {"letters": EXPIRED["dead"]}
    after = accounts(command)
    assert [run["counts"] for run in after] == [run["counts"] for run in before]
    assert sum(run["pruned"]["done"] for run in after) == EXPIRED["done"]
    assert left(command.dsn) == MANY / 10
    assert pruned(command("ledger", "prune", "--json").document) == {}


def test_people_read_what_went_and_what_it_was(command: Command) -> None:
    assert (
        f"{MANY // 10 * 9 + EXPIRED['dead']} rows would be removed"
        in command("ledger", "prune", "--dry-run").out
    )
    told = command("ledger", "prune").out
    assert f"done       {EXPIRED['done']:>9}  jobs past keep_done_s" in told
    assert "rows removed or emptied\n" in told
    shown = command("runs", "show", "r0").out
    assert "of them pruned" in shown
    assert shown.endswith("balances\n")


def test_the_audit_knows_who_pruned_what(command: Command) -> None:
    command("ledger", "prune", "--dry-run")
    command("ledger", "prune")
    entries = fetch(command.dsn, "select actor, action, detail from acklast.audit order by id")
    assert [entry["action"] for entry in entries] == ["prune", "prune.ended"]
    began, ended = (json.loads(entry["detail"]) for entry in entries)
    assert began["lanes"]["cleanup"]["done_s"] == 30 * 86_400
    assert (ended["complete"], pruned(ended)["done"]) == (True, EXPIRED["done"])
    assert entries[0]["actor"]


def test_only_the_lanes_that_are_named(command: Command) -> None:
    with command.config.open("a") as config:
        config.write("[lanes.other]\n")
    assert command("ledger", "prune", "--lane", "other", "--json").document["lanes"] == ["other"]
    assert left(command.dsn) == MANY
    assert command("ledger", "prune", "--lane", "othr").exit == Exit.CONFIG


def test_a_rate_of_nothing_is_no_rate(command: Command) -> None:
    assert command("ledger", "prune", "--rate", "0").exit == Exit.USAGE


@contextmanager
def slowly(command: Command) -> Iterator[subprocess.Popen[str]]:
    """A prune of its own process that has removed its first batch, and now pauses for minutes."""
    prune = ["ledger", "prune", "--json", "--rate", "1", "--config", str(command.config)]
    process = subprocess.Popen(
        [sys.executable, "-m", "acklast", *prune],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: left(command.dsn) < MANY, what="the first batch is gone")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_kill_leaves_whole_batches_and_accounts_that_balance(command: Command) -> None:
    with slowly(command) as process:
        process.kill()
        process.wait()
    assert left(command.dsn) == MANY - BATCH
    gone = [run["pruned"] for run in accounts(command)]
    assert sum(run["done"] + run["dead"] for run in gone) == BATCH
    letters = fetch(command.dsn, "select count(*) from acklast.dead_letters")[0][0]
    assert letters == MANY // 3 - sum(run["dead"] for run in gone)
    actions = fetch(command.dsn, "select action from acklast.audit")
    assert [row[0] for row in actions] == ["prune"]
    until(lambda: command("ledger", "prune").exit == Exit.OK, what="the dead one's lock is free")
    assert left(command.dsn) == MANY / 10
    accounts(command)


@pytest.mark.soak
def test_ctrl_c_tells_what_was_removed(command: Command) -> None:
    with slowly(command) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    document = json.loads(out)
    assert (document["complete"], sum(pruned(document)[name] for name in EXPIRED)) == (False, BATCH)
    ended = fetch(command.dsn, "select detail from acklast.audit where action = 'prune.ended'")
    assert pruned(json.loads(ended[0][0])) == pruned(document)


@pytest.mark.soak
def test_a_second_pass_is_told_to_wait(command: Command) -> None:
    with slowly(command):
        second = command("ledger", "prune", "--json")
        assert second.exit == Exit.INCOMPLETE
        assert json.loads(second.err)["error"]["exit"] == Exit.INCOMPLETE
        assert command("ledger", "prune", "--dry-run").exit == Exit.OK
