"""What every command writes: nothing of what others made up reaches a terminal as a command, and where nobody
can have the answer that is told."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from acklast.cli.exits import UNREAD
from acklast.cli.standard import answering
from acklast.errors import Exit
from acklast.ledger.api import Claim, Fresh, Letter, ManifestRow, Record
from acklast.ledger.postgres import PostgresLedger
from acklast.outcome import Bury, Hold, Verdict
from harness import Broker
from harness.command import Command

LANE = "cleanup"
NASTY = "\x1b[31m\x9b2J\u202e\nall is well"
"""Turns a terminal red, empties it, turns text round, and makes a line of its own."""
FEW = (
    "top --once",
    "why held",
    "why NASTY",
    "runs list",
    "runs show NASTY",
    "jobs show dead",
    "lanes",
    "lanes history",
    "workers",
)
OTHERS = (
    "dead list",
    "dead groups",
    "dead show 1 --payload",
    "dead export",
    "unresolved list",
    "unresolved show held",
    "jobs show NASTY",
    "why dead",
    "why open",
    "why stray",
    "why held --lane NASTY",
    "audit",
    "forecast",
    "schedule list",
    "schedule history",
    "redrive list",
    "redrive status 1",
    "topology plan",
    "topology verify",
    "topology asyncapi",
    "topology export",
    "topology schema",
    "jobs missing",
    "check",
)
REFUSED = ("jobs show NASTY", "why held --lane NASTY")
listings = pytest.mark.parametrize(
    "listings", [pytest.param(FEW, id="few"), pytest.param(OTHERS, id="others", marks=pytest.mark.soak)]
)


@pytest.fixture
def command(tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    made = Command(tmp_path, broker.url, ledger_dsn, capsys)
    asyncio.run(filled(ledger_dsn))
    made("lanes", "pause", LANE, "--reason", NASTY, "--as", NASTY)
    made("redrive", "plan", "--lane", LANE, "--as", NASTY)
    made("dead", "note", "1", NASTY, "--as", NASTY)
    made("unresolved", "reconcile", "held", "--why", NASTY, "--no-wait")
    return made


async def filled(dsn: str) -> None:
    """Jobs of each kind, in whatever may come from outside: what is nasty."""
    ledger = await PostgresLedger.connect(dsn)
    session = await ledger.open_session(NASTY, worker=NASTY, version=NASTY, lease_s=600)
    verdicts: dict[str, Verdict] = {"dead": Bury(NASTY), "held": Hold(NASTY)}
    for key, verdict in verdicts.items():
        claimed = await ledger.claim(session, Claim(LANE, key, b"f" * 32, run=NASTY, type=NASTY))
        assert isinstance(claimed, Fresh)
        body = NASTY.replace("\n", "").encode()  # a message has lines of its own
        letter = Letter(LANE, NASTY, body, key, NASTY, headers={NASTY: NASTY}, detail=NASTY)
        times = claimed.now, claimed.now
        record = Record(LANE, key, claimed.fence, verdict, "permanent", NASTY, *times, letter=letter)
        await ledger.record(session, record)
    await ledger.manifest(NASTY, [ManifestRow(LANE, "open", b"f")])
    stray = Letter(NASTY, NASTY, NASTY.encode(), "stray", digest=b"d", routing_key=NASTY, detail=NASTY)
    await ledger.bury_stray(stray, worker=NASTY, version=NASTY)
    await ledger.close()
    connection = await asyncpg.connect(dsn)
    # Nobody waits for this daemon to follow.
    await connection.execute("update acklast.workers set lease_until = clock_timestamp()")
    await connection.close()


def words(listing: str) -> list[str]:
    return [NASTY if word == "NASTY" else word for word in listing.split()]


@listings
def test_nothing_that_others_made_up_reaches_the_terminal(command: Command, listings: Sequence[str]) -> None:
    for listing in listings:
        ended = command(*words(listing))
        assert ended.exit != Exit.SOFTWARE, (listing, ended)
        assert "--help" not in ended.err, (listing, ended)
        for told in (ended.out, ended.err):
            assert told.replace("\n", "").isprintable(), (listing, told)
            assert "\nall is well" not in told, (listing, told)


@pytest.mark.soak
def test_json_is_as_safe(command: Command) -> None:
    for listing in (*FEW, *OTHERS):
        said = command(*words(listing), "--json")
        text = said.out + said.err
        assert text.replace("\n", "").isprintable(), (listing, text)
        assert [json.loads(line) for line in text.splitlines()], listing


@contextmanager
def standard_output(number: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", sys.stderr)
        patch.setattr(sys, "stdout", answering(number, sys.stdout))
        yield
    os.close(number)


@listings
def test_an_answer_that_nobody_can_have_is_told(command: Command, listings: Sequence[str]) -> None:
    answered = [one for one in listings if one not in REFUSED]
    for number, listing in enumerate(answered[:3] if listings is FEW else answered):
        arguments = [*words(listing), *(["--json"] if number % 2 else [])]
        with standard_output(os.open("/dev/full", os.O_WRONLY)):
            ended = command(*arguments)
        assert "Traceback" not in ended.err, (listing, ended)
        assert (ended.exit, "No space left" in ended.err) == (Exit.OUTPUT, True), (listing, ended)
        reader, writer = os.pipe()
        os.close(reader)
        with standard_output(writer):
            ended = command(*arguments)
        assert (ended.exit, ended.err) == (UNREAD, ""), (listing, ended)
