"""Runs listed, and the proof of one, by the commands."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import json
from pathlib import Path

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import Claim, Fresh, ManifestRow, Record, Session
from acklast.ledger.postgres import PostgresLedger
from acklast.outcome import Complete
from harness.command import Command, Ended

LANE = "cleanup"


@pytest.fixture
def command(tmp_path: Path, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, "amqp://nobody/", ledger_dsn, capsys)


async def promised(ledger: PostgresLedger, run: str, *keys: str) -> None:
    await ledger.manifest(run, [ManifestRow(LANE, key, b"f" * 32) for key in keys])


async def done(ledger: PostgresLedger, session: Session, key: str, run: str | None = None) -> None:
    claimed = await ledger.claim(session, Claim(LANE, key, b"f" * 32, run=run))
    assert isinstance(claimed, Fresh)
    now = claimed.now
    await ledger.record(session, Record(LANE, key, claimed.fence, Complete(), "done", "", now, now))


@pytest.fixture
async def ledger(ledger_dsn: str) -> PostgresLedger:
    """Three runs with manifests, one without."""
    made = await PostgresLedger.connect(ledger_dsn)
    session = await made.open_session("one", worker="w:1", version="1.2.3", lease_s=600)
    for run in ("first", "second", "third"):
        await promised(made, run, f"{run}:a", f"{run}:b")
    await done(made, session, "second:a")
    await done(made, session, "foreign:a", run="foreign")
    await made.close()
    return made


def test_runs_are_listed_page_by_page_the_newest_first(ledger: PostgresLedger, command: Command) -> None:
    page = command("runs", "list", "--limit", "2", "--json").document["runs"]
    assert [one["run"] for one in page] == ["third", "second"]
    assert (page[1]["manifest"], page[1]["open"], page[1]["counts"]["done"]) == (2, 1, 1)
    page = command("runs", "list", "--before", "second", "--json").document["runs"]
    assert [one["run"] for one in page] == ["first"]
    assert command("runs", "list", "--before", "foreign", "--json").exit == Exit.NOT_FOUND
    [foreign] = command("runs", "list", "--by-header", "--json").document["runs"]
    assert (foreign["run"], foreign["manifest"], foreign["counts"]["done"]) == ("foreign", None, 1)
    assert "second: done 1, queued 1" in command("runs", "list").out


def test_runs_are_listed_by_what_they_are_about_and_how_they_stand(
    ledger: PostgresLedger, command: Command
) -> None:
    def runs(*options: str) -> list[str]:
        return [one["run"] for one in command("runs", "list", *options, "--json").document["runs"]]

    command("runs", "set", "first", "--owner", "billing", "--deadline", "2000-01-01T00:00:00Z")
    command("runs", "set", "second", "--owner", "billing", "--label", "team=rent", "--label", "kind=a")
    command("runs", "cancel", "third")
    assert runs() == ["third", "second", "first"]
    assert runs("--owner", "billing") == ["second", "first"]
    assert runs("--label", "team=rent", "--label", "kind=a") == ["second"]
    assert runs("--label", "team=mail") == []
    assert runs("--open") == ["second", "first"]
    assert runs("--open", "--limit", "1") == ["second"]
    assert runs("--late") == ["first"]
    [third, second, first] = command("runs", "list", "--json").document["runs"]
    assert (third["status"], third["open"], third["oldest"]) == ("cancelled", 0, None)
    assert (second["status"], second["attempts_per_success"]) == ("open", 1.0)
    assert (second["oldest"]["key"], second["oldest"]["state"]) == ("second:b", "queued")
    assert (first["status"], first["deadline"]) == ("late", "2000-01-01T00:00:00+00:00")
    assert "late" in command("runs", "list").out
    assert command("runs", "list", "--by-header", "--owner", "x").exit == Exit.USAGE


def test_a_run_that_is_too_large_is_listed_without_its_counts(
    ledger: PostgresLedger, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acklast.ledger.runs.COUNTED", 1)
    [second] = command("runs", "list", "--limit", "1", "--before", "third", "--json").document["runs"]
    assert [second[name] for name in ("counts", "open", "status", "oldest")] == [None] * 4
    assert len(command("runs", "list", "--open", "--json").document["runs"]) == 3
    assert "--exact" in command("runs", "list").out
    exact = command("runs", "list", "--exact", "--json").document["runs"]
    assert exact[1]["counts"]["done"] == 1


def test_a_run_shows_its_pace_and_its_oldest_open_job(ledger: PostgresLedger, command: Command) -> None:
    shown = command("runs", "show", "second", "--json").document
    assert (shown["status"], shown["attempts_per_success"], shown["left_s"] > 0) == ("open", 1.0, True)
    assert (shown["oldest"]["lane"], shown["oldest"]["key"]) == (LANE, "second:b")
    out = command("runs", "show", "second").out
    assert "1.00 attempts per success" in out
    assert "oldest open: cleanup second:b, queued for" in out


def test_a_watch_that_nothing_ends_ends_in_time(ledger: PostgresLedger, command: Command) -> None:
    ended = command("runs", "watch", "second", "--timeout", "1s", "--json")
    assert ended.exit == Exit.TIMED_OUT
    [only] = ended.lines
    assert (only["run"], only["open"], only["counts"]["done"]) == ("second", 1, 1)
    assert command("runs", "watch", "nobody").exit == Exit.NOT_FOUND


def test_a_proof_has_every_job_and_its_digest(ledger: PostgresLedger, command: Command) -> None:
    out = command.directory / "proof.csv"
    ended = command("runs", "proof", "second", "--out", str(out), "--json")
    assert ended.exit == Exit.OK
    told = ended.document
    assert (told["items"], told["manifest"], told["holds"]) == (2, 2, True)
    assert told["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [(row["key"], row["state"], row["worker"]) for row in rows] == [
        ("second:a", "done", "w:1"),
        ("second:b", "queued", ""),
    ]
    assert rows[0]["recorded_at"] > rows[0]["claimed_at"] > ""


async def test_a_proof_that_does_not_hold_says_so(
    ledger: PostgresLedger, ledger_dsn: str, command: Command
) -> None:
    connection = await asyncpg.connect(ledger_dsn)
    await connection.execute("delete from acklast.jobs where key = 'second:b'")
    await connection.close()
    out = command.directory / "proof.csv"
    ended = await asyncio.to_thread(command, "runs", "proof", "second", "--out", str(out))
    assert ended.exit == Exit.UNFIT
    assert "does not hold" in ended.out


def test_an_unknown_run_leaves_no_file(command: Command) -> None:
    out = command.directory / "proof.csv"
    assert command("runs", "proof", "nobody", "--out", str(out), "--json").exit == Exit.NOT_FOUND
    assert list(command.directory.glob("proof.csv*")) == []


async def test_what_a_run_is_about_is_set_and_audited(
    ledger: PostgresLedger, ledger_dsn: str, command: Command
) -> None:
    async def runs(*words: str) -> Ended:
        return await asyncio.to_thread(command, "runs", *words, "--json")

    set_ = ("set", "first", "--as", "day-shift")
    at = ("--deadline", "2030-01-31T19:00:00+01:00")
    told = (await runs(*set_, *at, "--owner", "billing", "--label", "team=rent")).document
    full = {"deadline": "2030-01-31T18:00:00+00:00", "owner": "billing", "labels": {"team": "rent"}}
    assert (told["changed"], told["after"]) == (True, full)
    assert not (await runs(*set_, "--owner", "billing")).document["changed"]
    shown = (await runs("show", "first")).document
    assert {name: shown[name] for name in full} == full
    none = ("--deadline", "none", "--owner", "none", "--label", "team=", "--label", "kind=a")
    told = (await runs(*set_, *none)).document
    assert told["after"] == {"deadline": None, "owner": None, "labels": {"kind": "a"}}
    connection = await asyncpg.connect(ledger_dsn)
    rows = await connection.fetch("select actor, action, run, detail from acklast.audit order by id")
    await connection.close()
    assert [tuple(row)[:3] for row in rows] == [("day-shift", "runs.set", "first")] * 2
    assert json.loads(rows[0]["detail"])["after"] == full


async def test_a_run_of_headers_alone_is_set_and_still_has_no_manifest(
    ledger: PostgresLedger, command: Command
) -> None:
    ended = await asyncio.to_thread(command, "runs", "set", "foreign", "--owner", "billing")
    assert ended.exit == Exit.OK
    shown = (await asyncio.to_thread(command, "runs", "show", "foreign", "--json")).document
    assert (shown["manifest"], shown["owner"], shown["balanced"]) == (None, "billing", True)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("nobody", "--owner", "x"), Exit.NOT_FOUND),
        (("first",), Exit.USAGE),
        (("first", "--label", "team"), Exit.USAGE),
        (("first", "--label", "a b=c"), Exit.USAGE),
        (("first", "--deadline", "2030-01-31T18:00:00"), Exit.USAGE),
    ],
)
def test_what_cannot_be_set_is_refused(
    ledger: PostgresLedger, command: Command, options: tuple[str, ...], code: Exit
) -> None:
    assert command("runs", "set", *options).exit == code


def test_a_proof_that_cannot_be_written_says_so(ledger: PostgresLedger, command: Command) -> None:
    out = command.directory / "nowhere" / "proof.csv"
    ended = command("runs", "proof", "second", "--out", str(out))
    assert ended.exit == Exit.USAGE
    assert "cannot be written" in ended.err
