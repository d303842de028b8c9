"""Redrives by the commands: planned, started, looked at, answered. A daemon's part is written by hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import Claim, Fresh, Letter, Record
from acklast.ledger.postgres import PostgresLedger
from acklast.outcome import Bury, Hold
from harness.command import Command

LANE = "cleanup"
WHY = ("--why", "INC-42 is mended")


@pytest.fixture
def command(tmp_path: Path, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    made = Command(tmp_path, "amqp://nobody/", ledger_dsn, capsys)
    made.configure(more='version = "1.2.3"')
    asyncio.run(filled(ledger_dsn))
    return made


async def filled(dsn: str) -> None:
    """Three letters of one kind, one of another, one of a job that is held, and one of another lane."""
    ledger = await PostgresLedger.connect(dsn)
    session = await ledger.open_session("one", worker="w:1", version="1.2.3", lease_s=600)
    verdicts: dict[str, Bury | Hold] = {key: Bury("gone") for key in "abc"}
    verdicts |= {"shut": Bury("shut"), "held": Hold("unknown"), "far": Bury("gone")}
    for key, verdict in verdicts.items():
        lane = "other" if key == "far" else LANE
        claimed = await ledger.claim(session, Claim(lane, key, b"f" * 32, run="r1"))
        assert isinstance(claimed, Fresh)
        letter = Letter(lane, verdict.reason, b"{}", key, "r1")
        now = claimed.now
        record = Record(lane, key, claimed.fence, verdict, "permanent", "gone", now, now, letter=letter)
        await ledger.record(session, record)
    await ledger.close()


def sql(command: Command, statement: str, *args: Any) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(command.dsn)
        await connection.execute(statement, *args)
        await connection.close()

    asyncio.run(run())


def planned(command: Command, *options: str) -> int:
    plan = command("redrive", "plan", *(options or ("--lane", LANE)), "--as", "night-shift", "--json")
    assert plan.exit == Exit.OK, plan.err
    return int(plan.document["id"])


def test_a_plan_is_shown_before_anything_starts(command: Command) -> None:
    told = command("redrive", "plan", "--lane", LANE, "--json").document
    assert (told["id"], told["status"], told["letters"], told["lane"]) == (1, "planned", 4, LANE)
    assert (told["excluded"], told["unchanged"], told["versions"]) == ({"unresolved": 1}, 0, [])
    assert [(kind["reason"], kind["letters"]) for kind in told["kinds"]] == [("gone", 3), ("shut", 1)]
    assert sorted(told["first"]) == ["a", "b", "c", "shut"]
    assert "shut" in told["first"][:2]
    assert (told["takes_s"], told["missing"], told["more"]) == (0.8, 0, False)
    assert told["expires_at"] > told["planned_at"]
    said = command("redrive", "plan", "--lane", LANE, "--reason", "gone").out
    assert "redrive 2 of lane cleanup: planned, 3 letters" in said
    assert "no living daemon serves lane cleanup" in said
    assert 'acklast redrive start 2 --why "..."' in said
    # By id: one that is held, and one that is not there.
    letters = command("dead", "list", "--lane", LANE, "--json").document["letters"]
    by_key = {letter["key"]: str(letter["id"]) for letter in letters}
    by_id = command("redrive", "plan", by_key["a"], by_key["held"], "999", "--json").document
    assert (by_id["letters"], by_id["excluded"], by_id["missing"]) == (1, {"unresolved": 1}, 1)
    listed = command("redrive", "list", "--json").document["redrives"]
    assert [one["id"] for one in listed] == [3, 2, 1]
    assert "redrive 3 of lane cleanup: planned, 1 letters" in command("redrive", "list", "--limit", "1").out


def test_a_redrive_is_started_paused_resumed_and_cancelled(command: Command) -> None:
    number = str(planned(command))
    begun = command("redrive", "start", number, *WHY, "--tolerate", "2%", "--as", "night-shift", "--json")
    assert (begun.document["status"], begun.document["steps"]) == ("running", [1, 4])
    assert (begun.document["rate_per_s"], begun.document["tolerate"]) == (5.0, 0.02)
    assert command("redrive", "start", number, *WHY).exit == Exit.USAGE
    assert command("redrive", "pause", number, "--why", "a look", "--json").document["changed"]
    assert "nothing has changed" in command("redrive", "pause", number, "--why", "a look").out
    assert command("redrive", "resume", number, "--json").document["status"] == "running"
    status = command("redrive", "status", number).out
    for text in ("running, 0 done of 4", "INC-42 is mended", "step      1 of 2", "none yet", "5/s at most"):
        assert text in status
    assert command("redrive", "cancel", number, "--why", "no need", "--json").document["ended_at"]
    entries = command("audit", "--action", "redrive", "--json").document["entries"]
    assert [entry["action"] for entry in reversed(entries)] == [
        f"redrive.{name}" for name in ("plan", "start", "pause", "resume", "cancel")
    ]
    assert {entry["operator"] for entry in entries} >= {"night-shift"}
    assert [one["id"] for one in command("redrive", "list", "--open", "--json").document["redrives"]] == []


def test_the_letters_of_a_set_are_listed_page_by_page(command: Command) -> None:
    number = str(planned(command))
    command("redrive", "start", number, *WHY)
    for position, state, more in [
        (1, "settled", "outcome = 'done', released_at = now(), settled_at = now()"),
        (
            2,
            "settled",
            "outcome = 'dead', released_at = now(), settled_at = now(), new_reason = 'gone',"
            " new_failure = failure",
        ),
        (3, "refused", "refusal = 'unchanged'"),
    ]:
        where = f"where redrive = {number} and position = {position}"
        sql(command, f"update acklast.redrive_letters set state = '{state}', {more} {where}")
    page = command("redrive", "status", number, "--letters", "--limit", "3", "--json").document
    assert [one["position"] for one in page["letters_listed"]] == [1, 2, 3]
    assert page["next"] == 3
    last = command("redrive", "status", number, "--letters", "--after", "3", "--json").document
    assert (len(last["letters_listed"]), last["next"]) == (1, None)
    said = command("redrive", "status", number, "--letters", "--limit", "3").out
    for text in ("done at", "dead as before at", "not tried: unchanged", "next: --after 3"):
        assert text in said
    tried = page["letters_listed"][1]
    shown = command("dead", "show", str(tried["letter"]), "--json").document["redrives"]
    assert [(one["redrive"], one["outcome"]) for one in shown] == [(1, "dead")]
    assert "redrive 1: dead as before" in command("dead", "show", str(tried["letter"])).out
    [job] = command("jobs", "show", tried["key"], "--lane", LANE, "--json").document["jobs"]
    assert [one["position"] for one in job["redrives"]] == [2]
    moments = {moment["what"]: moment["detail"] for moment in job["timeline"]}
    assert moments["redrive 1 found it"] == "dead, gone, as before"
    assert moments["redrive 1 tries it"] == f"dead letter no. {tried['letter']}"


def test_a_verdict_shows_what_was_found_and_answers_it(command: Command) -> None:
    number = str(planned(command))
    command("redrive", "start", number, *WHY)
    assert "no daemon has found anything" in command("redrive", "verdict", number).out
    said = {
        "at": "2026-03-02T02:10:00Z",
        "verdict": "stop",
        "why": "same_failure",
        "step": 0,
        "released": 1,
        "kinds": [
            {
                "failure": "v1-0",
                "reason": "gone\x1b[31m",
                "count": 1,
                "key": "a",
                "outcome": "dead",
                "live": 7,
            }
        ],
        "live": {"since": 3, "before": 2},
    }
    stopped = "update acklast.redrives set status = 'stopped', same = 1, released = 1, said = $1"
    sql(command, stopped, json.dumps(said))
    shown = command("redrive", "verdict", number).out
    assert "it is not mended" in shown
    for text in (
        "step 1 of 2, 1 released",
        "1  dead: gone\\x1b[31m  v1-0, such as a; 7 other jobs",
        "3 failed since",
    ):
        assert text in shown
    assert command("redrive", "verdict", number, "--json").document["said"]["verdict"] == "stop"
    assert command("redrive", "status", number, "--watch").exit == Exit.UNFIT
    gone_on = command("redrive", "verdict", number, "go-on", "--why", "known", "--tolerate", "5%", "--json")
    assert (gone_on.document["status"], gone_on.document["tolerate"]) == ("running", 0.05)
    assert command("redrive", "verdict", number, "go-on", "--why", "again").exit == Exit.USAGE
    # Odd words of another version are shown as they are.
    sql(command, stopped, json.dumps({"verdict": 7, "kinds": "none", "live": [1]}))
    assert command("redrive", "verdict", number).exit == Exit.OK
    ended = command("redrive", "verdict", number, "stop", "--why", "not mended", "--json").document
    assert (ended["status"], ended["left"], ended["out"]) == ("cancelled", 3, 0)
    assert command("redrive", "status", number, "--watch").exit == Exit.CANCELLED


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("status = 'finished', ended_at = now(), released = 4, done = 4", Exit.OK),
        ("status = 'finished', ended_at = now(), released = 4, done = 3, same = 1", Exit.INCOMPLETE),
        ("status = 'asking', released = 1, other = 1", Exit.UNFIT),
        ("status = 'running', released = 1", Exit.TIMED_OUT),
    ],
)
def test_who_watches_is_told_by_the_exit_code_how_it_ended(command: Command, change: str, code: Exit) -> None:
    number = str(planned(command))
    sql(command, f"update acklast.redrives set {change}")
    watched = command("redrive", "status", number, "--watch", "--timeout", "1s", "--json")
    assert watched.exit == code
    assert watched.lines[-1]["id"] == int(number)
    assert (
        "redrive 1 of lane cleanup" in command("redrive", "status", number, "--watch", "--timeout", "1s").out
    )


def test_what_failed_again_with_the_version_that_runs_needs_a_reason(command: Command) -> None:
    first = planned(command, "--lane", LANE, "--reason", "gone")
    sql(
        command,
        "update acklast.redrive_letters set state = 'settled', released_at = now(), settled_at = now(),"
        " outcome = 'dead', new_reason = reason, new_failure = failure",
    )
    sql(command, "update acklast.redrives set status = 'finished', ended_at = now()")
    told = command("redrive", "plan", "--lane", LANE, "--reason", "gone", "--json").document
    assert (told["letters"], told["unchanged"]) == (3, 3)
    refused = command("redrive", "start", str(told["id"]), *WHY)
    assert (refused.exit, "--force" in refused.err) == (Exit.USAGE, True)
    forced = command(
        "redrive", "start", str(told["id"]), *WHY, "--force", "they mended it", "--json"
    ).document
    assert (forced["status"], forced["forced"]) == ("running", "they mended it")
    # With another version it is another try.
    command.configure(more='version = "1.2.4"')
    sql(command, "update acklast.redrives set status = 'finished', ended_at = now()")
    again = command("redrive", "plan", "--lane", LANE, "--reason", "gone", "--json").document
    assert again["unchanged"] == 0
    assert command("redrive", "start", str(again["id"]), *WHY).exit == Exit.OK
    assert first == 1


def test_what_cannot_be_done_is_refused_with_what_to_do(command: Command) -> None:
    number = str(planned(command))
    for words, code, said in [
        (("plan",), Exit.USAGE, "which letters"),
        (("plan", "1", "--lane", LANE), Exit.USAGE, "which letters"),
        (("plan", "--reason", "gone"), Exit.USAGE, "--lane"),
        (("plan", "--lane", "nowhere"), Exit.NOT_FOUND, "acklast dead groups"),
        (("plan", "9" * 20), Exit.USAGE, "Invalid value"),
        (("status", "9" * 20), Exit.USAGE, "Invalid value"),
        (("plan", "--lane", LANE, "--reason", "unknown"), Exit.NOT_FOUND, "acklast unresolved"),
        (("plan", "--lane", LANE, "--since", "yesterday"), Exit.USAGE, "RFC 3339"),
        (("start", number), Exit.USAGE, "--why"),
        (("start", number, "--why", " "), Exit.USAGE, "why"),
        (("start", number, *WHY, "--steps", "5,1"), Exit.USAGE, "1,5,20,100%"),
        (("start", number, *WHY, "--rate", "fast"), Exit.USAGE, "5/s"),
        (("start", number, *WHY, "--tolerate", "2"), Exit.USAGE, "0%"),
        (("start", number, *WHY, "--force", ""), Exit.USAGE, "why"),
        (("start", "999", *WHY), Exit.NOT_FOUND, "redrive list"),
        (("status", "999"), Exit.NOT_FOUND, "redrive list"),
        (("status", "999", "--watch"), Exit.NOT_FOUND, "redrive list"),
        (("status", "first"), Exit.USAGE, "integer"),
        (("pause", number, "--why", "x"), Exit.USAGE, "redrive start"),
        (("resume", number), Exit.USAGE, "redrive start"),
        (("cancel", "999", "--why", "x"), Exit.NOT_FOUND, "redrive list"),
        (("verdict", number, "go-on"), Exit.USAGE, "--why"),
        (("verdict", number, "go-on", "--why", "x"), Exit.USAGE, "redrive start"),
        (("verdict", number, "stop", "--why", "x", "--tolerate", "1%"), Exit.USAGE, "go-on"),
        (("verdict", number, "--why", "x"), Exit.USAGE, "go-on"),
        (("verdict", number, "perhaps"), Exit.USAGE, "perhaps"),
    ]:
        ended = command("redrive", *words)
        assert (ended.exit, said in ended.err) == (code, True), (words, ended.err)
    assert command("redrive", "cancel", number, "--why", "not needed").exit == Exit.OK
