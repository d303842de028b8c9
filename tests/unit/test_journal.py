"""What systemd's journal is told: fields for what the daemon says of itself, priorities for all else."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acklast.telemetry import journal
from acklast.telemetry.journal import Journal

SAYS = """
import logging, os, sys
about = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{about.st_dev}:{about.st_ino}"
from acklast.telemetry import journal, log
from acklast.telemetry.events import Emitter, Settled
journal.Journal.__init__.__defaults__ = (sys.argv[1],)
emitter = Emitter(log.configure("info", "auto"))
emitter.emit(Settled("complete", "rent", "k-1", outcome="done"))
emitter.emit(Settled("bury", "rent", "k-2", outcome="permanent"))
emitter.notice("drain.receipt", completed=3, cut=False, text="two\\nlines")
logging.getLogger("another").warning("of another library")
assert not emitter.failures
"""


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "journal"))
        bound.settimeout(5)
        yield bound


def entry(data: bytes) -> dict[str, str]:
    """An entry, read as the journal reads it."""
    found = {}
    while data:
        name, _, rest = data.partition(b"\n")
        size = int.from_bytes(rest[:8], "little")
        found[name.decode()] = rest[8 : 8 + size].decode()
        assert rest[8 + size : 9 + size] == b"\n"
        data = rest[9 + size :]
    return found


def said(address: Path) -> list[str]:
    """What a process whose standard error the journal reads writes there."""
    done = subprocess.run(
        [sys.executable, "-c", SAYS, str(address)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def line_of(text: str, priority: str) -> dict[str, Any]:
    assert text.startswith(priority)
    found = json.loads(text.removeprefix(priority))
    assert isinstance(found, dict)
    return found


def test_the_receipt_is_an_entry_with_its_fields(listening: socket.socket) -> None:
    stream = said(Path(listening.getsockname()))
    found = entry(listening.recv(65_536))
    assert found["PRIORITY"] == "6"
    assert found["SYSLOG_IDENTIFIER"] == "acklast"
    assert json.loads(found["MESSAGE"])["completed"] == 3
    fields = {name: found[f"ACKLAST_{name}"] for name in ("EVENT", "LEVEL", "COMPLETED", "CUT", "TEXT")}
    assert fields == {
        "EVENT": "drain.receipt",
        "LEVEL": "info",
        "COMPLETED": "3",
        "CUT": "false",
        "TEXT": "two\nlines",
    }
    lines = zip(stream, ("<6>", "<4>", "<4>"), strict=True)
    events = [line_of(text, priority)["event"] for text, priority in lines]
    assert events == ["job.settled", "job.settled", "of another library"]


def test_what_the_journal_does_not_take_is_on_the_stream(tmp_path: Path) -> None:
    stream = said(tmp_path / "nobody")
    assert len(stream) == 4
    assert line_of(stream[2], "<6>")["event"] == "drain.receipt"


def test_an_entry_that_is_too_large_is_not_taken(listening: socket.socket) -> None:
    to = Journal(str(listening.getsockname()))
    assert not to.takes("x" * 2**24, "info", {})
    assert to.takes("x", "info", {"no-field of the journal's": 1})
    assert set(entry(listening.recv(100))) == {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER"}


@pytest.mark.parametrize(("level", "priority"), [*journal.PRIORITIES.items(), ("odd", 6)])
def test_every_level_has_its_priority(level: str, priority: int) -> None:
    assert journal.prefix(level) == f"<{priority}>"
    assert set(journal.PRIORITIES) == {
        name.lower() for name in logging.getLevelNamesMapping() if name not in ("NOTSET", "WARN", "FATAL")
    }


def test_only_the_stream_that_the_journal_reads_is_taken_for_it(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file, (tmp_path / "other").open("w") as other:
        about = os.fstat(file.fileno())
        env = {"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"}
        assert journal.reads(file, env)
        assert not journal.reads(other, env)
        assert not journal.reads(file, {})
    assert not journal.reads(file, env), "closed"
