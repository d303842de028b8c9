"""The daemon's one line: which lanes it consumes, and why not the others."""

from __future__ import annotations

import pytest

from acklast.readiness import Readiness


class Line:
    def __init__(self, *lanes: str) -> None:
        self.said: list[str] = []
        self.of = Readiness(lanes, self.said.append)


@pytest.fixture
def line() -> Line:
    return Line("rent", "cleanup")


def test_all_is_well(line: Line) -> None:
    assert line.of.text() == "consuming 2 lanes"


def test_a_lane_that_is_not_consumed_says_why_until_it_is(line: Line) -> None:
    line.of.lane("rent", "rent.work", "it is a classic queue")
    line.of.lane("rent", "rent.work", "it is a classic queue")
    line.of.lane("rent", "rent.work", "")
    assert line.said == ["consuming 1 of 2 lanes; rent: it is a classic queue", "consuming 2 lanes"]


def test_a_lane_with_one_queue_of_two_is_not_consumed(line: Line) -> None:
    line.of.lane("rent", "rent.fair.1", "gone")
    line.of.lane("rent", "rent.work", "")
    assert line.said == ["consuming 1 of 2 lanes; rent: gone"]


def test_a_broker_that_is_away_is_said_once_for_all_lanes(line: Line) -> None:
    line.of.lane("rent", "rent.work", "reset")
    line.of.lane("cleanup", "cleanup.work", "reset")
    line.of.link("consumer", "no broker can be used")
    line.of.link("publisher", "no broker can be used")
    assert line.said[-1] == "consuming 0 of 2 lanes; no broker can be used"


def test_a_broker_that_takes_nothing_in_holds_retries_up_alone(line: Line) -> None:
    line.of.link("publisher", "the broker is short of memory")
    line.of.link("publisher", "")
    assert line.said == [
        "consuming 2 lanes; retries wait: the broker is short of memory",
        "consuming 2 lanes",
    ]


def test_paused_lanes_are_named(line: Line) -> None:
    line.of.paused(["rent"])
    assert line.said == ["consuming 1 of 2 lanes; paused: rent"]


def test_without_the_ledger_nothing_starts_whatever_is_consumed(line: Line) -> None:
    line.of.ledger("the ledger is away")
    line.of.paused(["rent"])
    line.of.ledger("")
    assert line.said == ["the ledger is away; nothing starts", "consuming 1 of 2 lanes; paused: rent"]


def test_a_queue_of_the_letterbox_that_is_not_read_is_told(line: Line) -> None:
    line.of.letterbox("acklast.v1.unrouted", "it is a classic queue")
    line.of.letterbox("acklast.v1.unrouted", "")
    assert line.said == [
        "consuming 2 lanes; letterbox, acklast.v1.unrouted: it is a classic queue",
        "consuming 2 lanes",
    ]


def test_while_the_broker_is_away_its_reason_is_told_once(line: Line) -> None:
    line.of.link("consumer", "no broker can be used")
    line.of.lane("rent", "rent.work", "no broker can be used")
    line.of.letterbox("acklast.v1.unrouted", "no broker can be used")
    assert line.said[-1] == "consuming 1 of 2 lanes; no broker can be used"
    assert line.of.away() == "no broker can be used"


def test_which_server_is_away(line: Line) -> None:
    assert line.of.away() == ""
    line.of.link("publisher", "the broker takes in no messages")
    assert line.of.away() == "the broker takes in no messages"
    line.of.ledger("Postgres does not answer")
    assert line.of.away() == "Postgres does not answer"


def test_while_it_drains_the_drain_speaks(line: Line) -> None:
    line.of.leaving = True
    line.of.lane("rent", "rent.work", "it is a classic queue")
    assert line.said == []


def test_a_configuration_that_is_not_followed_is_said_beside_the_rest(line: Line) -> None:
    line.of.configured("a restart is needed for namespace")
    line.of.paused(["rent"])
    line.of.configured("")
    assert line.said == [
        "consuming 2 lanes; a restart is needed for namespace",
        "consuming 1 of 2 lanes; paused: rent; a restart is needed for namespace",
        "consuming 1 of 2 lanes; paused: rent",
    ]
