"""``acklast why`` of a key that a schedule is to make, or has failed to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from acklast.errors import Exit
from harness import Broker
from harness.command import Command

WEEKLY = """
[schedules.weekly]
lane = "cleanup"
cron = "0 7 * * 1"
sql = "select 7 as id"
key = "{run}:{id}"
"""
FIRED = """
insert into acklast.firings (schedule, scheduled_at, run, state, cause, tries, error, rows, promised)
values ('weekly', now(), $1, $2, 'time', 3, 'no such table', 20, 10)
"""


def reasons(command: Command, key: str, code: int) -> Mapping[str, Any]:
    done = command("why", key, "--json")
    assert done.exit == code, done
    [answer] = done.document["answers"]
    assert answer["state"] is None
    return {reason["code"]: reason for reason in answer["reasons"]}


def test_a_key_of_a_run_that_is_to_come_is_told_as_such(
    tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def enter(run: str, state: str) -> None:
        connection = await asyncpg.connect(ledger_dsn)
        await connection.execute(FIRED, run, state)
        await connection.close()

    command = Command(tmp_path, broker.url, ledger_dsn, capsys)
    with command.config.open("a") as file:
        file.write(WEEKLY)
    [weekly] = command("schedule", "next", "weekly", "--json").document["schedules"]
    first, second = (moment["run"] for moment in weekly["next"][:2])

    found = reasons(command, f"{second}:7", Exit.OK)
    assert [*found] == ["not_fired", "unknown"]
    assert (found["not_fired"]["evidence"]["run"], found["not_fired"]["certain"]) == (second, False)
    assert reasons(command, f"weekly-of-old:{7}", Exit.NOT_FOUND).keys() == {"unknown"}

    command("schedule", "pause", "weekly", "--reason", "no data", "--as", "duty")
    paused = reasons(command, f"{first}:7", Exit.UNFIT)["not_fired"]
    assert (paused["evidence"]["paused_by"], paused["helps"]) == ("duty", "acklast schedule resume weekly")

    asyncio.run(enter(f"{first}-of-before", "failed"))
    failed = reasons(command, f"{first}-of-before:7", Exit.UNFIT)["firing_failed"]
    assert (failed["evidence"]["error"], failed["helps"]) == (
        "no such table",
        "acklast schedule history weekly",
    )
