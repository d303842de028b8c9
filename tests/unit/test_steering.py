"""A daemon follows what is asked for, also while the ledger is away, and ends no pause before its time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from acklast import steering
from acklast.errors import LedgerUnavailable
from acklast.lane import Lane
from acklast.ledger.api import Session
from acklast.ledger.controls import Control, DrainAsked, Kind, Read, Report, Target
from acklast.ledger.lease import Lease
from acklast.pacing.exchange import Exchange
from acklast.pacing.lanes import LanePacing
from acklast.pacing.prefetch import Prefetch
from acklast.pacing.slots import Slots
from acklast.steering import Steering
from acklast.telemetry.events import Emitter, Event, Notice
from harness.configs import changed, read
from harness.controls import control, pause
from harness.virtual import elapse, turns, virtual, virtual_clock

REPORT = Report("rent-reminders", 3, 0, 0, 0, 5.0, None, None, None, "open")


class FakeWire:
    """The ledger's answers, while it answers."""

    def __init__(self) -> None:
        self.controls: tuple[Control, ...] = ()
        self.away = False
        self.heard = 0
        self.reads = 0
        self.drains: dict[int, DrainAsked] = {}
        self.draining: list[bool] = []
        self.reports: list[tuple[int, int, Sequence[Report]]] = []

    async def read(self, sessions: Sequence[int] = ()) -> Read:
        await asyncio.sleep(0)
        if self.away:
            raise LedgerUnavailable("no answer", "wait")
        self.reads += 1
        return Read(self.heard, self.controls, self.drains.get(max(sessions, default=0)))

    async def report(
        self, session: int, heard: int, reports: Sequence[Report], *, draining: bool = False
    ) -> None:
        self.reports.append((session, heard, reports))
        self.draining.append(draining)

    async def close(self) -> None:
        self.away = True


class FakeLease:
    live = True
    sessions = (1,)

    async def current(self) -> Session:
        return Session(1, "i", 15.0)


class Place:
    """One daemon with one lane that has no budget, configured with 3 at once."""

    def __init__(self, tmp_path: Path) -> None:
        self.wire, self.events, self.paused = FakeWire(), list[Event](), list[list[str]]()
        self.drained = list[bool]()
        lease, emitter = cast("Lease", FakeLease()), Emitter(self.events.append)
        config = read(tmp_path).only(["rent-reminders"])
        self.pacing = LanePacing(Slots(3))
        self.prefetch = Prefetch(100, 3)
        self.report = REPORT
        self.steering = Steering(
            config, Exchange([], lease, emitter), lease, emitter, on_paused=self.paused.append
        )

    async def start(self) -> None:
        await self.steering.start(self.wire)
        lane = cast("Lane", SimpleNamespace(pacing=self.pacing))
        self.steering.steer(
            {"rent-reminders": lane},
            {"rent-reminders": [self.prefetch]},
            lambda: [self.report],
            lambda: self.drained.append(True),
        )

    def asks(self, *controls: Control) -> None:
        """Somebody changes what is in force, and the notice arrives."""
        self.wire.controls, self.wire.heard = controls, self.wire.heard + 1
        self.steering.changed()

    def said(self, name: str) -> list[Any]:
        return [event for event in self.events if isinstance(event, Notice) and event.name == name]


def paused(left_s: float | None = None) -> Control:
    return pause(Target.LANE, "rent-reminders", left_s)


def at_once(count: int, left_s: float | None = None) -> Control:
    return control(Target.LANE, "rent-reminders", Kind.CONCURRENCY, amount=count, left_s=left_s)


@virtual
async def test_what_is_in_force_at_the_start_holds_before_the_first_delivery(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        place.wire.controls = (paused(), at_once(2))
        await place.start()
        assert not place.pacing.gate.is_open
        assert (place.pacing.slots.count, place.prefetch.concurrency) == (2, 2)
        assert place.paused == [["rent-reminders"]]
        await place.steering.close()


@virtual
async def test_a_notice_is_followed_at_once_and_said_to_the_ledger(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        await place.start()
        await elapse(1.5)
        began = asyncio.get_running_loop().time()
        place.asks(paused())
        await turns(10)
        assert place.pacing.gate.paused
        assert place.wire.reports[-1][1] == 1
        place.asks()
        await turns(10)
        assert place.pacing.gate.is_open
        assert asyncio.get_running_loop().time() == began
        assert place.paused == [["rent-reminders"], []]
        await place.steering.close()


@virtual
async def test_a_pause_ends_by_itself_in_time_though_the_ledger_is_away(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        await place.start()
        began = asyncio.get_running_loop().time()
        place.asks(paused(60.0), at_once(1, 90.0))
        await turns(10)
        place.wire.away = True
        await place.pacing.gate.opened.wait()
        assert 60.0 <= asyncio.get_running_loop().time() - began < 60.1
        assert place.pacing.slots.count == 1
        await elapse(29.0)
        assert place.pacing.slots.count == 1
        await elapse(1.2)
        assert (place.pacing.slots.count, place.prefetch.concurrency) == (3, 3)
        assert len(place.said("controls.unread")) == 1, "an outage is told once, not at every try"
        await place.steering.close()


@virtual
async def test_an_outage_changes_nothing_and_what_was_missed_is_followed_after_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        await place.start()
        place.asks(paused())
        await turns(10)
        place.wire.away, place.wire.controls = True, ()
        place.steering.changed()
        await elapse(30)
        assert place.pacing.gate.paused
        place.wire.away = False
        await elapse(0.5)
        assert place.pacing.gate.is_open
        await place.steering.close()


@virtual
async def test_a_notice_that_was_lost_is_made_up_for_within_seconds(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        await place.start()
        place.wire.controls = (paused(),)
        await elapse(6.5)
        assert place.pacing.gate.paused
        await place.steering.close()


@virtual
async def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        await place.start()
        await elapse(60)
        assert len(place.wire.reports) == 1
        assert place.wire.reads < 20
        place.report = Report("rent-reminders", 3, 2, 0, 0, 5.0, None, None, None, "open")
        await elapse(1.5)
        assert len(place.wire.reports) == 2
        await place.steering.close()


@virtual
async def test_a_daemon_that_is_asked_to_drain_begins_at_once_and_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        await place.start()
        await elapse(1.5)
        assert place.drained == []
        place.wire.drains = {1: DrainAsked("duty", "new version")}
        place.asks()
        await turns(10)
        assert place.drained == [True]
        [said] = place.said("drain.asked")
        assert (said.fields["actor"], said.fields["reason"]) == ("duty", "new version")
        place.asks()
        await elapse(12)
        assert place.drained == [True]
        await place.steering.close()


@virtual
async def test_what_was_asked_while_the_ledger_was_away_is_heard_afterwards(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        await place.start()
        place.wire.away = True
        place.wire.drains = {1: DrainAsked("duty", "new version")}
        await elapse(20)
        assert place.drained == []
        place.wire.away = False
        await elapse(1)
        assert place.drained == [True]
        await place.steering.close()


@virtual
async def test_a_drain_is_told_to_the_ledger_whatever_was_told_before(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        await place.start()
        await elapse(1.5)
        place.steering.leave()
        await turns(10)
        assert place.wire.draining == [False, True]
        await elapse(20)
        assert place.wire.draining == [False, True]
        await place.steering.close()


@virtual
async def test_another_configuration_is_followed_under_what_operators_ask(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with virtual_clock(steering):
        await place.start()
        place.asks(at_once(4), paused())
        await turns(10)
        assert place.pacing.slots.count == 3
        text = changed("concurrency = 3", "concurrency = 9\nprefetch = 7")
        place.steering.follow(read(tmp_path, text).only(["rent-reminders"]))
        assert place.pacing.slots.count == place.prefetch.concurrency == 4
        assert place.prefetch.ceiling == 7
        assert place.pacing.gate.paused
        place.asks()
        await turns(10)
        assert place.pacing.slots.count == 9
        await place.steering.close()
