"""Log lines: one JSON object each, loud where something is to be looked at, and never a payload."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from acklast.telemetry import log, wire
from acklast.telemetry.batches import Batches
from acklast.telemetry.events import Emitter, Settled
from acklast.telemetry.exports import Exports
from acklast.telemetry.records import Records
from acklast.telemetry.variables import Batching, Signal


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Logging belongs to the whole process: give it back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in log._CLIENT_LOGGERS}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == "", "standard output belongs to the commands"
    return [json.loads(line) for line in captured.err.splitlines()]


def emitter(level: str = "info") -> Emitter:
    return Emitter(log.configure(level, "json"))


def test_a_job_is_one_line_with_what_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    emitter().emit(
        Settled(
            "complete",
            "rent",
            "k-1",
            type="rent.v1",
            run="r-1",
            outcome="done",
            attempt=1,
            fence=4,
            trace_id="a" * 32,
            handler_s=0.12345678,
            total_s=0.2,
        )
    )
    [line] = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "job.settled",
        "level": "info",
        "disposition": "complete",
        "lane": "rent",
        "key": "k-1",
        "type": "rent.v1",
        "run": "r-1",
        "outcome": "done",
        "attempt": 1,
        "fence": 4,
        "trace_id": "a" * 32,
        "handler_s": 0.123457,
        "total_s": 0.2,
    }


def test_what_is_out_of_the_ordinary_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    emitter().emit(Settled("retry", "rent", "k-1", ambiguous=True, acked=False))
    [line] = lines(capsys)
    assert line["ambiguous"] is True
    assert line["acked"] is False


texts = st.text(st.characters(), max_size=8)
seconds = st.none() | st.floats(0, 1e9).map(lambda s: round(s, 6))


@given(
    st.builds(
        Settled,
        texts,
        texts,
        *[st.none() | texts] * 5,
        *[st.none() | st.integers(0, 2**63)] * 2,
        st.booleans(),
        *[seconds] * 2,
        st.booleans(),
        trace_id=st.none() | texts,
    )
)
def test_a_line_says_the_same_as_structlog_would_whatever_it_holds(event: Settled) -> None:
    line = json.loads(log._line(event, "info"))
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "job.settled", "level": "info"} | log._said(event)


@pytest.mark.parametrize(
    ("disposition", "level"),
    [
        ("complete", "info"),
        ("retry", "info"),
        ("give_back", "info"),
        ("decided", "info"),
        ("not_due", "info"),
        ("held", "info"),
        ("bury", "warning"),
        ("hold", "warning"),
        ("malformed", "warning"),
        ("conflict", "warning"),
        ("claim_lost", "warning"),
    ],
)
def test_what_needs_a_look_is_a_warning(
    disposition: str, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    emitter().emit(Settled(disposition, "rent", None))
    [line] = lines(capsys)
    assert line["level"] == level
    assert "key" not in line


def test_an_event_of_a_job_has_no_room_for_a_payload() -> None:
    names = {field.name for field in fields(Settled)}
    assert not names & {"payload", "body", "headers", "properties", "detail", "result"}


def test_a_notice_keeps_its_name_its_level_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    telling = emitter()
    telling.notice("session.lost", "error", session=7, instance="one")
    telling.notice("broker.connected", generation=2)
    lost, connected = lines(capsys)
    assert (lost["event"], lost["level"], lost["session"]) == ("session.lost", "error", 7)
    assert (connected["event"], connected["level"], connected["generation"]) == (
        "broker.connected",
        "info",
        2,
    )


def test_a_defect_comes_with_its_traceback_on_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError("a defect")
    except RuntimeError as defect:
        emitter().notice("delivery.defect", "error", lane="rent", exc_info=defect)
    [line] = lines(capsys)
    assert "RuntimeError: a defect" in line["exception"]
    assert "test_events_log.py" in line["exception"]


def test_a_value_that_json_does_not_know_is_written_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    told = emitter()
    told.notice("broker.connected", host=frozenset({"h"}))
    assert lines(capsys)[0]["host"] == "frozenset({'h'})"
    assert told.failures == 0


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


RING: Final[list[Any]] = []
RING.append(RING)


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize(
    "value", [{(1, 2): 3}, RING, 10**5000, Broken()], ids=["odd key", "ring", "endless", "broken"]
)
def test_a_handlers_line_is_written_whatever_it_holds(
    style: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes after the effect: an error of the log's would make an uncertain attempt of a good one."""
    taken: list[Any] = []
    batches = Batches(Signal.LOGS, taken.extend, Exports(), Batching(10, 1, 0.01))
    log.configure("info", style, Records(batches, wire.record))
    structlog.get_logger().info("sent", order="4711", value=value)
    told = capsys.readouterr().err
    assert "sent" in told
    assert "4711" in told
    if style == "json":
        assert json.loads(told)["value"] == f"<{type(value).__name__}>"
    asyncio.run(batches.close())
    assert b"4711" in b"".join(taken)


def test_a_terminal_obeys_nothing_that_is_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A job's type is its publisher's own text."""
    try:
        raise RuntimeError("\x1b[2Jgone")
    except RuntimeError as defect:
        telling = Emitter(log.configure("info", "console"))
        telling.emit(Settled("complete", "rent", "k-1", type="rent\x1b[2J\x9b\u202eö"))
        telling.notice("relay.defect", "error", exc_info=defect)
    text = capsys.readouterr().err
    colours = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert all(line.isprintable() for line in colours.splitlines())
    assert "rent\\x1b[2J\\x9b\\u202eö" in text
    assert text.count("\n") > 3


def test_below_the_level_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = emitter("warning")
    quiet.emit(Settled("complete", "rent", "k-1"))
    quiet.emit(Settled("bury", "rent", "k-2", reason="refused"))
    assert [line["key"] for line in lines(capsys)] == ["k-2"]


def test_other_libraries_write_the_same_shape(capsys: pytest.CaptureFixture[str]) -> None:
    emitter()
    logging.getLogger("some.library").warning("careful: %s", 1)
    logging.getLogger("some.library").info("chatter")
    [line] = lines(capsys)
    assert (line["event"], line["level"]) == ("careful: 1", "warning")


def test_the_client_libraries_do_not_report_every_lost_connection_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    emitter()
    logging.getLogger("aiormq.connection").error("connection lost")
    logging.getLogger("aio_pika.robust").error("connection lost")
    assert lines(capsys) == []


def test_the_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    Emitter(log.configure("info", "console")).emit(Settled("complete", "rent", "k-1"))
    text = capsys.readouterr().err
    assert "job.settled" in text
    assert "k-1" in text
    assert not text.startswith("{")


@pytest.mark.parametrize("style", ["auto", "json"])
def test_where_no_terminal_reads_it_is_json(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    Emitter(log.configure("info", style)).notice("daemon.ready")
    assert lines(capsys)[0]["event"] == "daemon.ready"
