"""Every command that changes state is put down, with who, why and to what effect."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.migrate import migrate
from harness import Broker
from harness.command import Command

WHO = ("--as", "day-shift")


def actions(command: Command, *options: str) -> list[str]:
    found = command("audit", *options, "--json").document["entries"]
    assert all(one["login"] and one["role"] for one in found)
    return [one["action"] for one in found]


def test_commands_on_the_ledger_are_put_down(
    tmp_path: Path, ledger_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(tmp_path, "amqp://nobody/", ledger_dsn, capsys)
    assert command("ledger", "prune", *WHO).exit == Exit.OK
    assert command("lanes", "pause", "cleanup", "--reason", "provider incident", *WHO).exit == Exit.OK
    assert actions(command) == ["lanes.pause", "prune.ended", "prune"]
    assert actions(command, "--action", "lanes", "--operator", "day-shift", "--lane", "cleanup") == [
        "lanes.pause"
    ]
    first = command("audit", "--limit", "2", "--json").document
    assert actions(command, "--before", str(first["next"])) == ["prune"]
    said = command("audit", "--action", "lanes").out
    assert "lanes.pause, lane cleanup  by day-shift (" in said
    assert "why: provider incident" in said
    assert "next: --before" in command("audit", "--limit", "1").out
    assert "nothing was put down" in command("audit", "--key", "nobody").out
    assert command("audit", "--since", "yesterday").exit == Exit.USAGE


def test_a_migration_is_put_down(tmp_path: Path, empty_dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(tmp_path, "amqp://nobody/", empty_dsn, capsys)
    applied = command("ledger", "migrate", "--json", *WHO).document["applied"]
    [entry] = command("audit", "--json").document["entries"]
    assert (entry["action"], entry["operator"], entry["effect"]) == (
        "ledger.migrate",
        "day-shift",
        {"applied": applied},
    )
    assert command("ledger", "migrate").exit == Exit.OK
    assert actions(command) == ["ledger.migrate"]


@pytest.mark.soak
def test_commands_on_the_broker_are_put_down(
    tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(tmp_path, broker.url, ledger_dsn, capsys)
    assert command("topology", "apply", *WHO).exit == Exit.OK
    assert command("topology", "apply", *WHO).exit == Exit.OK  # changes nothing
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "1"}\n{"id": "2"}\n')
    words = ("enqueue", "cleanup", str(rows), "--run", "r1", "--key", "{id}", *WHO)
    assert command(*words).exit == Exit.OK
    assert command("jobs", "missing", "--republish", *WHO).exit == Exit.OK
    found = command("audit", "--operator", "day-shift", "--json").document["entries"]
    assert [one["action"] for one in found] == [
        "jobs.republish.ended",
        "jobs.republish",
        "enqueue",
        "topology.apply",
    ]
    assert (found[2]["lane"], found[2]["run"]) == ("cleanup", "r1")
    assert found[2]["effect"] == {"counts": {"accepted": 2}}
    assert "queue acklast.v1.cleanup.work" in found[3]["effect"]["created"]


def test_a_topology_without_a_ledger_is_made_all_the_same(
    tmp_path: Path, broker: Broker, empty_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(tmp_path, broker.url, empty_dsn, capsys)
    ended = command("topology", "apply", *WHO)
    assert ended.exit == Exit.OK
    assert "the audit has no entry of this" in ended.err
    asyncio.run(migrate(empty_dsn))


async def test_a_role_that_may_do_everything_with_the_tables_changes_no_entry(ledger_dsn: str) -> None:
    owner = await asyncpg.connect(ledger_dsn)
    role = "acklast_auditee"
    await owner.execute(f"drop role if exists {role}")
    await owner.execute(
        f"create role {role}; grant usage on schema acklast to {role};"
        f"grant select, insert, update, delete, truncate on all tables in schema acklast to {role};"
        f"set role {role}; insert into acklast.audit (actor, action) values ('a', 'x')"
    )
    try:
        for statement in (
            "update acklast.audit set actor = 'b'",
            "delete from acklast.audit",
            "truncate acklast.audit",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="only ever added to"):
                await owner.execute(statement)
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="owner"):
            await owner.execute("alter table acklast.audit disable trigger audit_stays")
    finally:
        await owner.execute(f"reset role; drop owned by {role}; drop role {role}")
        await owner.close()
