"""What keeps the watchdog from being fed: what stands still by our own fault, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from acklast.broker import BLOCKED, Link
from acklast.chores import Chore
from acklast.consumer import Consumer
from acklast.intake import Intake
from acklast.ledger.batch import Answer, Batch, Batcher
from acklast.ledger.lease import Lease
from acklast.ledger.memory import MemoryLedger
from acklast.pacing.prefetch import Prefetch
from acklast.pacing.slots import Slots
from acklast.progress import Part, stuck
from acklast.settle import Delivery
from acklast.telemetry.events import Emitter
from acklast.vitals import Vitals
from acklast_topology.contract import RawMessage
from harness.virtual import turns
from ledger.worlds import a_claim

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER_S = 10_000.0
"""Longer than anything may take."""


def soon() -> float:
    return time.monotonic()


def later() -> float:
    return time.monotonic() + LATER_S


def test_all_that_comes_round_is_well() -> None:
    assert stuck([]) == ""
    assert stuck([Part("a"), Part("b", 60.0, 60.0)]) == ""


def test_what_stands_still_is_named() -> None:
    assert stuck([Part("a"), Part("b", 61.0, 60.0)]) == "b stands still for 61 s"


def test_what_waits_for_a_server_that_is_away_is_excused() -> None:
    assert stuck([Part("b", 1e6, 60.0, excuse="no broker can be used")]) == ""


def test_what_has_ended_has_no_excuse() -> None:
    assert stuck([Part("b", ended=True, excuse="no broker can be used")]) == "b has ended"


# --- the parts -------------------------------------------------------------------------------------------


class Silent:
    """A ledger that never answers what is flushed to it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def send(self, batch: Batch) -> Mapping[int, Answer]:
        await self.open.wait()
        raise ValueError("refused")


async def test_a_flush_that_never_comes_back_is_seen_and_none_is_missed_where_nothing_is_asked() -> None:
    silent = Silent()
    batcher = Batcher(silent.send)
    assert stuck([batcher.part(later())]) == ""
    asked = batcher.claim(1, a_claim())
    await turns()
    assert stuck([batcher.part(soon())]) == ""
    assert "the flush to the ledger stands still" in stuck([batcher.part(later())])
    silent.open.set()
    with pytest.raises(ValueError, match="refused"):
        await asked
    await batcher.close()
    assert stuck([batcher.part(later())]) == ""


async def test_a_lease_that_nobody_renews_any_more_is_seen() -> None:
    lease = Lease(MemoryLedger(lambda: NOW), Emitter(), instance="i", worker="w", version="1", lease_s=15)
    await lease.start()
    assert stuck([lease.part(soon())]) == ""
    assert "the lease stands still" in stuck([lease.part(later())])
    assert lease._task is not None
    lease._task.cancel()
    await asyncio.wait([lease._task])
    assert stuck([lease.part(soon())]) == "the lease has ended"


def consumer_of(link: object) -> Consumer:
    def take(delivery: Delivery) -> None:
        raise AssertionError("nothing is delivered here")

    prefetch = Prefetch(5, 5)
    return Consumer("rent", "rent.work", prefetch, cast("Link", link), take, lambda before: [], Emitter())


class Far:
    """A link to a broker that nobody reaches."""

    why = ""
    changed_at = 0.0
    heartbeat_s = 15
    protocol = None

    async def connect_insisting(self) -> Any:
        await asyncio.Event().wait()


async def test_a_consumer_that_waits_for_a_broker_is_excused_as_long_as_it_is_known_to_be_away() -> None:
    link = Far()
    consumer = consumer_of(link)
    running = asyncio.create_task(consumer.run())
    await turns()
    assert stuck([consumer.part(soon())]) == ""
    assert "the consumer of rent.work stands still" in stuck([consumer.part(later())])
    link.why = BLOCKED
    assert stuck([consumer.part(later())]) == ""
    link.why, link.changed_at = "", later() - 1  # it is back: who waited goes on in a moment
    assert stuck([consumer.part(later())]) == ""
    running.cancel()
    await asyncio.wait([running])


async def test_a_long_heartbeat_gives_a_silent_broker_as_long() -> None:
    link = Far()
    link.heartbeat_s = 3600
    assert stuck([consumer_of(link).part(time.monotonic() + 3600)]) == ""


def delivery() -> Delivery:
    return Delivery(RawMessage(b""), 1, cast("Any", None))


def test_a_lane_is_stuck_where_jobs_wait_and_no_slot_is_held() -> None:
    slots = Slots(1)
    intake = Intake(slots, lambda one: None)
    assert stuck([intake.part(later())]) == "", "a quiet lane"
    intake.take(delivery())
    intake.take(delivery())
    assert len(intake) == 1
    slots.held = 1
    assert stuck([intake.part(later())]) == "", "its slot is held: a long handler, a permit, an outage"
    slots.held = 0  # and nobody was told
    assert "with jobs and free slots, stands still" in stuck([intake.part(later())])
    assert stuck([intake.part(soon())]) == ""


class Short(Chore):
    name = "short"

    async def run(self) -> None:
        return


async def test_what_should_go_on_for_ever_and_does_not_is_seen() -> None:
    chore, vitals, over = Short(), Vitals(), asyncio.Event()
    over.set()
    vitals.add(chore)
    assert stuck(vitals.parts()) == "", "not started: nothing to miss"
    chore.start()
    await turns()
    assert stuck(vitals.parts()) == "the short has ended"


async def test_a_task_that_ends_is_seen() -> None:
    vitals, go = Vitals(), asyncio.Event()

    async def until_told() -> None:
        await go.wait()

    vitals.task("nothing", None)
    vitals.task("the exchange", asyncio.create_task(until_told()))
    assert stuck(vitals.parts()) == ""
    go.set()
    await turns()
    assert stuck(vitals.parts()) == "the exchange has ended"
