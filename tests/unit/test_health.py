"""Ready: every lane consumes, or does not on purpose. What is not so is said, lane by lane."""

from __future__ import annotations

import pytest

from acklast.health import Health, LaneHealth, health_of
from acklast.readiness import Readiness
from acklast.reporter import Standing

OPEN = {"rent": Standing.OPEN, "mail": Standing.OPEN}


@pytest.fixture
def known() -> Readiness:
    made = Readiness(["rent", "mail"], lambda _: None)
    made.started = True
    return made


def unready(health: Health) -> dict[str, tuple[str, str]]:
    assert not health.ready
    return {name: (lane.state, lane.why) for name, lane in health.lanes.items() if not lane.ready}


def test_all_is_well(known: Readiness) -> None:
    health = health_of(known, OPEN)
    assert (health.ready, health.draining, health.why) == (True, False, "")
    assert health.broker.ok
    assert health.ledger.ok
    assert health.lanes["rent"] == LaneHealth(True, "open", "")


def test_a_file_that_is_not_followed_is_told_and_no_reason(known: Readiness) -> None:
    assert health_of(known, OPEN).configuration == ""
    known.configured("configuration not reloaded: acklast.toml: concurrency = 0")
    health = health_of(known, OPEN)
    assert health.ready
    assert health.configuration == "configuration not reloaded: acklast.toml: concurrency = 0"


@pytest.mark.parametrize(
    "state", [Standing.PAUSED, Standing.BREAKER, Standing.QUIET, Standing.NO_PERMIT, Standing.SLOWED]
)
def test_a_lane_that_rests_on_purpose_is_ready(known: Readiness, state: Standing) -> None:
    health = health_of(known, OPEN | {"mail": state})
    assert health.ready
    assert health.lanes["mail"].state == state.value


def test_a_queue_that_is_opened_anew_is_no_reason(known: Readiness) -> None:
    health = health_of(known, OPEN | {"mail": Standing.NOT_CONSUMING})
    assert health.ready
    assert health.lanes["mail"].state == "opening"


@pytest.mark.parametrize("state", [Standing.NOT_CONSUMING, Standing.PAUSED])
def test_a_lane_that_the_broker_does_not_serve_is_not_ready_paused_or_not(
    known: Readiness, state: Standing
) -> None:
    known.lane("mail", "mail.work", "it is a classic queue")
    health = health_of(known, OPEN | {"mail": state})
    assert unready(health) == {"mail": ("not_consuming", "it is a classic queue")}
    assert "mail: it is a classic queue" in health.why
    known.lane("mail", "mail.work", "")
    assert health_of(known, OPEN).ready


def test_without_the_broker_no_lane_is_ready(known: Readiness) -> None:
    known.link("consumer", "no broker can be used")
    health = health_of(known, OPEN)
    assert set(unready(health)) == {"rent", "mail"}
    assert (health.broker.ok, health.broker.why) == (False, "no broker can be used")


def test_a_broker_that_takes_nothing_in_is_told_and_the_lanes_go_on(known: Readiness) -> None:
    known.link("publisher", "the broker is short of memory")
    health = health_of(known, OPEN)
    assert health.ready
    assert health.broker.why == "the broker is short of memory"


def test_without_the_ledger_it_is_not_ready_whatever_is_consumed(known: Readiness) -> None:
    known.ledger("the ledger does not answer")
    health = health_of(known, OPEN)
    assert not health.ready
    assert (health.ledger.ok, health.why) == (False, "the ledger does not answer; nothing starts")


def test_without_a_session_no_lane_is_ready(known: Readiness) -> None:
    health = health_of(known, OPEN | {"rent": Standing.LEASE_LOST})
    assert unready(health)["rent"][0] == "lease_lost"
    assert health.why.startswith("rent: no live session")


def test_it_is_starting_until_every_lane_was_consumed(known: Readiness) -> None:
    known.started = False
    assert unready(health_of(known, {})) == {"rent": ("starting", ""), "mail": ("starting", "")}
    begun = health_of(known, OPEN | {"mail": Standing.NOT_CONSUMING})
    assert unready(begun) == {"mail": ("starting", "")}
    assert (health_of(known, OPEN).ready, begun.why) == (False, "starting")


def test_who_drains_is_not_ready(known: Readiness) -> None:
    known.leaving = True
    health = health_of(known, OPEN)
    assert unready(health) == {"rent": ("draining", ""), "mail": ("draining", "")}
    assert (health.draining, health.why) == (True, "draining")
