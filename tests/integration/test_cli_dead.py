"""Dead letters by the commands: shown, exported, dropped and noted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from acklast.errors import Exit
from acklast.ledger.api import Claim, Fresh, Letter, Record
from acklast.ledger.postgres import PostgresLedger
from acklast.outcome import Bury, Hold
from harness.command import Command

LANE = "cleanup"
REDACTED = '[dead]\nredact = ["$.email", "headers.token"]\n'


@pytest.fixture
def command(tmp_path: Path, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    made = Command(tmp_path, "amqp://nobody/", ledger_dsn, capsys)
    with made.config.open("a") as file:
        file.write(REDACTED)
    asyncio.run(filled(ledger_dsn))
    return made


async def filled(dsn: str) -> None:
    """Four letters: two that failed alike, one that nobody could read, and one of a job that is held."""
    ledger = await PostgresLedger.connect(dsn)
    session = await ledger.open_session("one", worker="w:1", version="1.2.3", lease_s=600)
    verdicts: dict[str, Bury | Hold] = {"a": Bury("gone"), "b": Bury("gone"), "held": Hold("unknown")}
    for key, verdict in verdicts.items():
        claimed = await ledger.claim(session, Claim(LANE, key, b"f" * 32, run="r1"))
        assert isinstance(claimed, Fresh)
        letter = Letter(
            LANE,
            verdict.reason,
            json.dumps({"id": key, "email": "secret@example"}).encode(),
            key,
            "r1",
            headers={"token": "secret", "tenant": "t"},
            properties={"as_sent_base64": "c2VjcmV0", "priority": 3},
        )
        now = claimed.now
        record = Record(LANE, key, claimed.fence, verdict, "permanent", "gone", now, now, letter=letter)
        await ledger.record(session, record)
    stray = Letter("", "unrouted", b"\x1b[31mred\xff secret", digest=b"d", routing_key="nowhere")
    await ledger.bury_stray(stray, worker="w:1", version="1.2.3")
    await ledger.close()


def ids(command: Command, *options: str) -> list[int]:
    return [one["id"] for one in command("dead", "list", *options, "--json").document["letters"]]


def test_groups_and_pages_are_told(command: Command) -> None:
    told = command("dead", "groups", "--json").document
    largest = told["groups"][0]
    assert (largest["lane"], largest["run"], largest["reason"], largest["letters"]) == (LANE, "r1", "gone", 2)
    assert (largest["trend"], largest["versions"], told["more"]) == ("rising", ["1.2.3"], False)
    assert command("dead", "groups", "--limit", "1", "--json").document["more"]
    assert "2  cleanup, run r1: gone" in command("dead", "groups").out
    first = command("dead", "list", "--limit", "3", "--json").document
    assert [one["reason"] for one in first["letters"]] == ["unrouted", "unknown", "gone"]
    last = command("dead", "list", "--limit", "3", "--after", first["next"], "--json").document
    assert ([one["key"] for one in last["letters"]], last["next"]) == (["a"], None)
    assert len(ids(command, "--fingerprint", largest["failure"])) == 2
    assert len(ids(command, "--since", "1h", "--lane", LANE)) == 3
    assert ids(command, "--until", "1h") == []
    assert "next: --after " in command("dead", "list", "--limit", "1").out


def test_a_message_is_shown_when_asked_for_and_redacted(command: Command) -> None:
    [letter, _] = ids(command, "--reason", "gone")
    bare = command("dead", "show", str(letter), "--json")
    assert "payload" not in bare.document
    assert "secret" not in bare.out
    assert (bare.document["key"], bare.document["payload_bytes"]) == ("b", 38)
    full = command("dead", "show", str(letter), "--payload", "--json")
    assert json.loads(full.document["payload"]) == {"id": "b", "email": "[redacted]"}
    assert full.document["headers"] == {"token": "[redacted]", "tenant": "t"}
    assert full.document["properties"] == {"priority": 3}
    assert "secret" not in full.out + command("dead", "show", str(letter), "--payload").out


def test_what_cannot_be_redacted_is_withheld_and_nothing_reaches_the_terminal(command: Command) -> None:
    [letter] = ids(command, "--reason", "unrouted")
    told = command("dead", "show", str(letter), "--payload", "--json").document
    assert (told["payload"], told["payload_form"]) == (None, "withheld")
    assert "not shown" in command("dead", "show", str(letter), "--payload").out
    command.configure()
    shown = command("dead", "show", str(letter), "--payload").out
    assert "\\x1b[31mred\\xff secret" in shown
    assert "\x1b" not in shown


def test_letters_are_exported_as_lines(command: Command) -> None:
    out = command.directory / "dead.jsonl"
    told = command("dead", "export", "--out", str(out), "--payload", "--json").document
    assert told == {"file": str(out), "letters": 4}
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["key"] for one in lines] == [None, "held", "b", "a"]
    assert "secret" not in out.read_text()
    [line] = command("dead", "export", "--reason", "unrouted").lines
    assert (line["routing_key"], "payload" in line) == ("nowhere", False)
    assert not list(command.directory.glob("*.part"))


def test_letters_are_dropped_with_a_reason_and_leave_a_trace(command: Command) -> None:
    [letter, other] = ids(command, "--reason", "gone")
    assert command("dead", "note", str(letter), "asked the provider", "--as", "day-shift").exit == Exit.OK
    shown = command("dead", "show", str(letter), "--json").document
    assert [(one["actor"], one["text"]) for one in shown["notes"]] == [("day-shift", "asked the provider")]
    assert command("dead", "drop", str(letter), "--why", "no use", "--dry-run", "--json").document == {
        "dropped": 1,
        "kept": 0,
        "missing": 0,
        "dry_run": True,
    }
    assert command("dead", "drop", str(letter), "--why", "no use", "--as", "night-shift").exit == Exit.OK
    assert ids(command, "--reason", "gone") == [other]
    gone = command("dead", "show", str(letter), "--json")
    assert gone.exit == Exit.NOT_FOUND
    assert [(one["actor"], one["text"]) for one in gone.document["notes"]][1] == ("night-shift", "no use")
    assert "night-shift" in command("dead", "show", str(letter)).out
    assert command("jobs", "show", "b", "--json").document["jobs"][0]["state"] == "dead"
    foreseen = command("dead", "drop", "--run", "r1", "--why", "all of it", "--dry-run", "--json")
    assert (foreseen.exit, foreseen.document["dropped"], foreseen.document["kept"]) == (Exit.INCOMPLETE, 1, 1)
    assert command("dead", "drop", "999", "--why", "x", "--dry-run", "--json").document["missing"] == 1
    kept = command("dead", "drop", "--run", "r1", "--why", "all of it", "--json")
    assert kept.exit == Exit.INCOMPLETE
    assert (kept.document["dropped"], kept.document["kept"]) == (1, 1)


def test_an_erased_letter_is_shown_as_what_is_left_of_it(command: Command) -> None:
    [letter] = [
        one["id"] for one in command("dead", "list", "--json").document["letters"] if one["key"] == "a"
    ]
    ask = ("ledger", "erase", "--key", "a", "--why", "they asked us to", "--json")
    counts = {"lane": LANE, "letters": 1, "attempts": 0, "results": 0, "kept": 0, "outbox": 0}
    told = {"key": "a", "dry_run": True, "erased": [counts], "left": []}
    assert command(*ask, "--dry-run").document == told
    assert command(*ask, "--as", "night-shift").document == told | {"dry_run": False}
    assert "nothing is left to erase" in command(*ask[:-1]).out
    [one] = [one for one in command("dead", "list", "--json").document["letters"] if one["id"] == letter]
    assert (one["reason"], one["detail"], one["payload_bytes"]) == ("gone", "", None)
    shown = command("dead", "show", str(letter), "--payload", "--json").document
    assert (shown["payload"], shown["payload_form"], shown["headers"]) == (None, "gone", {})
    assert shown["properties"] == {}
    assert "it was erased, or its retention is over" in command("dead", "show", str(letter), "--payload").out
    [line] = [one for one in command("dead", "export", "--payload").lines if one["id"] == letter]
    assert (line["payload"], line["headers"]) == (None, {})
    [entry] = command("audit", "--action", "ledger.erase", "--json").document["entries"]
    assert (entry["operator"], entry["key"], entry["reason"]) == ("night-shift", "a", "they asked us to")


def test_a_job_that_is_not_over_is_not_erased_and_told_with_its_remedy(command: Command) -> None:
    held = command("ledger", "erase", "--key", "held", "--why", "x", "--json")
    assert held.exit == Exit.INCOMPLETE
    [left] = held.document["left"]
    assert (left["lane"], left["why"], held.document["erased"]) == (LANE, "unresolved", [])
    assert left["remedy"] in command("ledger", "erase", "--key", "held", "--why", "x").out.replace("\n", " ")
    assert command("ledger", "erase", "--key", "held", "--lane", "mail", "--why", "x").exit == Exit.NOT_FOUND
    assert command("ledger", "erase", "--key", "nobody", "--why", "x").exit == Exit.NOT_FOUND
    assert command("ledger", "erase", "--key", "held").exit == Exit.USAGE
    assert command("ledger", "erase", "--key", "held", "--why", " ").exit == Exit.USAGE


def test_what_cannot_be_done_is_refused(command: Command) -> None:
    for words, code in {
        ("drop", "--why", "all"): Exit.USAGE,
        ("drop", "1", "--lane", LANE, "--why", "both"): Exit.USAGE,
        ("drop", "1"): Exit.USAGE,
        ("drop", "1", "--why", " "): Exit.USAGE,
        ("drop", "999", "--why", "x"): Exit.INCOMPLETE,
        ("show", "999"): Exit.NOT_FOUND,
        ("note", "999", "x"): Exit.NOT_FOUND,
        ("list", "--after", "yesterday"): Exit.USAGE,
        ("list", "--since", "yesterday"): Exit.USAGE,
    }.items():
        assert command("dead", *words).exit == code, words
