"""The watchdog is fed while the loop turns and all comes round; on a real socket, as the manager hears it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from acklast.notify import Notify
from acklast.progress import Part
from acklast.telemetry.events import Emitter, Event, Notice
from acklast.watchdog import Watchdog
from harness.manager import Manager
from harness.virtual import elapse, turns, virtual
from harness.waiting import until


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with Manager(tmp_path) as listening:
        yield listening


class Dog:
    """A watchdog over one part, which a test lets stand still."""

    def __init__(self, manager: Manager, within_s: float = 30.0) -> None:
        self.parts = [Part("a lane")]
        self.said: list[tuple[str, str]] = []
        self.of = Watchdog(Notify(manager.watching(within_s)), Emitter(self._hear), lambda: self.parts)

    def _hear(self, event: Event) -> None:
        assert isinstance(event, Notice)
        self.said.append((event.name, str(event.fields.get("why", event.fields.get("was")))))


@virtual
async def _ninety_seconds(dog: Dog) -> None:
    dog.of.start()
    await turns()
    await elapse(89)
    await dog.of.close()


def test_it_is_fed_three_times_in_the_time_that_the_manager_waits(manager: Manager) -> None:
    dog = Dog(manager)
    _ninety_seconds(dog)
    assert manager.heard() == ["WATCHDOG=1"] * 9
    assert dog.said == []


def test_it_is_not_fed_while_something_stands_still_and_says_so_once(manager: Manager) -> None:
    dog = Dog(manager)
    dog.parts = [Part("a lane", 100.0)]
    _ninety_seconds(dog)
    assert manager.heard() == ["STATUS=stuck: a lane stands still for 100 s"]
    assert dog.said == [("daemon.stuck", "a lane stands still for 100 s")]


def test_what_goes_on_after_all_is_fed_again(manager: Manager) -> None:
    dog = Dog(manager)
    dog.parts = [Part("a lane", 100.0)]
    dog.of.look()
    dog.parts = [Part("a lane")]
    dog.of.look()
    assert manager.heard()[-1] == "WATCHDOG=1"
    assert dog.said[-1] == ("daemon.gets_on", "a lane stands still for 100 s")


def test_at_the_end_it_is_enough_that_the_loop_turns(manager: Manager) -> None:
    dog = Dog(manager)
    dog.parts = [Part("a lane", ended=True)]
    dog.of.ending = True
    dog.of.look()
    assert manager.heard() == ["WATCHDOG=1"]


def test_a_loop_that_is_blocked_feeds_nothing(manager: Manager) -> None:
    dog, go, blocked = Dog(manager, within_s=0.15), threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        go.wait(30)

    async def run() -> None:
        dog.of.start()
        await asyncio.to_thread(until, lambda: len(manager.heard()) > 2 or None)
        asyncio.get_running_loop().call_soon(block)
        await asyncio.to_thread(until, lambda: (go.is_set() and len(manager.heard()) > heard) or None)
        await dog.of.close()

    heard = 0
    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert blocked.wait(30)
    heard = len(manager.heard())
    assert not threading.Event().wait(0.5)  # ten times as long as between two beats
    assert len(manager.heard()) == heard
    go.set()
    thread.join(30)
    assert len(manager.heard()) > heard


@pytest.mark.parametrize(
    ("env", "within_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_manager_says_whether_it_waits_and_for_whom(env: dict[str, str], within_s: float | None) -> None:
    assert Notify(env).watchdog_s == within_s


async def test_nothing_runs_where_nobody_waits() -> None:
    idle = Watchdog(Notify({}), Emitter(), lambda: [Part("a lane", ended=True)])
    idle.start()
    assert len(asyncio.all_tasks()) == 1
    await idle.close()
