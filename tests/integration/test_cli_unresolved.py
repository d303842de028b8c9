"""Unresolved jobs by the commands: listed, shown, decided on, asked about."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from acklast.errors import Exit
from acklast.ledger.api import Claim, Fresh, Letter, Record
from acklast.ledger.postgres import PostgresLedger
from acklast.outcome import Bury, Hold
from harness.asking import Asking
from harness.command import Command

LANE = "cleanup"
WHY = ("--why", "seen in the provider's list")
HTTP = """
[lanes.hook]
[lanes.hook.http]
url = "https://hook.example/"
"""


@pytest.fixture
def command(tmp_path: Path, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    made = Command(tmp_path, "amqp://nobody/", ledger_dsn, capsys)
    with made.config.open("a") as file:
        file.write('[dead]\nredact = ["$.email"]\n' + HTTP)
    asyncio.run(filled(ledger_dsn))
    return made


async def filled(dsn: str) -> None:
    """Unresolved jobs: one key in two lanes, one that is an id, one of an HTTP lane; and a dead one."""
    ledger = await PostgresLedger.connect(dsn)
    session = await ledger.open_session("one", worker="w:1", version="1.2.3", lease_s=600)
    for lane, key, verdict in (
        (LANE, "a", Hold("timeout")),
        (LANE, "both", Hold("crashed")),
        ("other", "both", Hold("timeout")),
        (LANE, "1", Hold("timeout")),
        ("hook", "call", Hold("timeout")),
        (LANE, "dead", Bury("gone")),
    ):
        claimed = await ledger.claim(session, Claim(lane, key, b"f" * 32, type="cleanup.v1", run="r1"))
        assert isinstance(claimed, Fresh)
        body = json.dumps({"id": key, "email": "secret@example"}).encode()
        letter = Letter(lane, verdict.reason, body, key, "r1", "cleanup.v1")
        now = claimed.now
        record = Record(lane, key, claimed.fence, verdict, "unknown", "no", now, now, letter=letter)
        await ledger.record(session, record)
    await ledger.close()


def keys(command: Command, *options: str) -> list[str]:
    listed = command("unresolved", "list", *options, "--json").document["unresolved"]
    return [one["key"] for one in listed]


def state_of(command: Command, key: str, lane: str = LANE) -> str:
    jobs = command("jobs", "show", key, "--json").document["jobs"]
    return str(next(one["state"] for one in jobs if one["lane"] == lane))


def test_pages_have_those_that_wait_and_no_content(command: Command) -> None:
    assert keys(command) == ["call", "1", "both", "both", "a"]
    assert keys(command, "--lane", LANE, "--reason", "timeout", "--since", "1h") == ["1", "a"]
    first = command("unresolved", "list", "--limit", "4", "--json")
    assert keys(command, "--after", first.document["next"]) == ["a"]
    assert "secret" not in first.out
    plain = command("unresolved", "list").out
    assert f"{LANE}  a: timeout" in plain
    assert "no unresolved jobs" in command("unresolved", "list", "--lane", "nowhere").out


def test_one_is_shown_with_what_can_be_done(command: Command) -> None:
    shown = command("unresolved", "show", "a", "--json").document
    assert (shown["key"], shown["state"], shown["can_reconcile"]) == ("a", "unresolved", False)
    assert [one["outcome"] for one in shown["history"]] == ["unknown"]
    assert "payload" not in shown
    assert (
        command("unresolved", "show", "both", "--lane", "other", "--json").document["can_reconcile"] is None
    )
    command("dead", "note", str(shown["id"]), "asked the provider", "--as", "day-shift")
    text = command("unresolved", "show", str(shown["id"]), "--by", "id", "--payload").out
    assert "dead.note by day-shift: asked the provider" in text
    assert "no reconcile" in text
    assert "[redacted]" in text
    assert "secret" not in text


def test_a_name_must_be_of_one_job(command: Command) -> None:
    both = command("unresolved", "show", "both")
    assert both.exit == Exit.USAGE
    assert "cleanup, other" in both.err
    twice = command("unresolved", "resolve", "1", "--as", "dead", *WHY)
    assert twice.exit == Exit.USAGE
    assert "--by id or --by key" in twice.err
    assert command("unresolved", "show", "1", "--by", "id", "--json").document["key"] == "a"
    assert command("unresolved", "show", "1", "--by", "key", "--json").document["key"] == "1"
    assert command("unresolved", "show", "dead").exit == Exit.NOT_FOUND


def test_a_decision_is_made_counted_and_told(command: Command) -> None:
    dry = command("unresolved", "resolve", "a", "--as", "done", *WHY, "--dry-run", "--json")
    assert (dry.document["changed"], dry.document["dry_run"], state_of(command, "a")) == (
        1,
        True,
        "unresolved",
    )
    done = command(
        "unresolved",
        "resolve",
        "a",
        "--as",
        "done",
        "--result",
        '{"id": 7}',
        *WHY,
        "--as-operator",
        "day-shift",
    )
    assert (done.exit, done.out) == (Exit.OK, "1 jobs are done\n")
    assert command("jobs", "show", "a", "--json").document["jobs"][0]["result"] == {"id": 7}
    dead = command("unresolved", "resolve", "--reason", "crashed", "--as", "dead", *WHY, "--json")
    assert dead.document == {"changed": 1, "refused": {}, "redrives": [], "as": "dead", "dry_run": False}
    assert state_of(command, "both") == "dead"
    assert state_of(command, "both", "other") == "unresolved"
    again = command("unresolved", "resolve", "a", "nobody", "call", "--as", "retry", *WHY, "--json")
    assert again.exit == Exit.INCOMPLETE
    assert (again.document["changed"], again.document["refused"]) == (1, {"not_unresolved": 2})
    [redrive] = again.document["redrives"]
    released = command("redrive", "status", str(redrive), "--json").document
    assert (released["status"], released["lane"], released["letters"]) == ("running", "hook", 1)
    assert f"{redrive}" in command("redrive", "list").out
    assert command("redrive", "status", str(redrive)).exit == Exit.OK
    assert "to run again" in command("unresolved", "list", "--lane", "hook").out
    told = command("audit", "--action", "unresolved.resolve", "--json").document["entries"]
    assert [(one["key"], one["effect"]["as"]) for one in told] == [
        ("call", "retry"),
        ("both", "dead"),
        ("a", "done"),
    ]
    assert (told[-1]["operator"], told[-1]["reason"]) == ("day-shift", WHY[1])
    assert "7" not in json.dumps(told[-1]["effect"])  # a result is content: it can be erased, an entry cannot
    shown = command("unresolved", "show", str(told[-1]["effect"]["letter"]), "--by", "id", "--json").document
    assert (shown["state"], shown["closed_as"]) == ("done", "done")


def test_what_cannot_be_meant_is_refused(command: Command) -> None:
    for words in (
        ("resolve", "--as", "done", *WHY),
        ("resolve", "a", "--reason", "timeout", "--as", "done", *WHY),
        ("resolve", "a", "--as", "gone", *WHY),
        ("resolve", "a", "--as", "done"),
        ("resolve", "a", "--as", "done", "--why", " "),
        ("resolve", "a", "--as", "dead", "--result", "1", *WHY),
        ("resolve", "a", "--as", "done", "--result", "{", *WHY),
        ("reconcile", *WHY),
        ("reconcile", "--lane", "hook", *WHY),
        ("list", "--after", "yesterday"),
    ):
        assert command("unresolved", *words).exit == Exit.USAGE, words
    assert state_of(command, "a") == "unresolved"


def test_questions_are_put_and_wait_for_a_daemon(command: Command, ledger_dsn: str) -> None:
    asked = command("unresolved", "reconcile", "--run", "r1", *WHY, "--no-wait", "--json")
    assert asked.exit == Exit.INCOMPLETE
    told: dict[str, Any] = asked.document
    assert (told["asked"], told["refused"], told["open"]) == (4, {"no_reconcile": 1}, 4)
    assert told["unserved"] == [LANE, "other"]
    assert f"no living daemon runs lane {LANE}" in asked.err
    again = command("unresolved", "reconcile", "a", *WHY, "--timeout", "1s")
    assert again.exit == Exit.INCOMPLETE
    assert "1 of them by somebody before" in again.out
    assert "1 are not answered yet" in again.out
    assert "(being asked)" in command("unresolved", "list").out
    assert command("unresolved", "resolve", "a", "--as", "done", *WHY).exit == Exit.OK
    sql = Asking(ledger_dsn)
    rows = sql("select key, effect from acklast.reconciliations where done_at is not null")
    sql.close()
    assert [tuple(row) for row in rows] == [("a", "superseded")]
