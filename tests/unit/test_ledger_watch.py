"""What is said of a ledger that does not answer: once, and once more when it does again."""

from __future__ import annotations

from acklast.errors import LedgerUnavailable
from acklast.ledger.watch import LedgerWatch
from acklast.telemetry.events import Emitter, Event, Notice

AWAY = LedgerUnavailable("it does not answer", "wait")


class World:
    """A watch, what it said, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.said: list[str] = []
        self.status: list[str] = []
        self.watch = LedgerWatch(Emitter(self._note), self.status.append, lambda: self.now)

    def _note(self, event: Event) -> None:
        assert isinstance(event, Notice)
        self.said.append(event.name)


def test_it_is_said_once_whoever_asks_and_however_often() -> None:
    world = World()
    for _ in range(50):
        for who in ("lease", "work", "rent"):
            world.watch.missed(who, AWAY)
        world.now += 1
    assert world.said == ["ledger.unavailable"]
    assert world.status == ["it does not answer"]
    for who in ("work", "lease"):
        world.watch.answered(who)
    assert world.said == ["ledger.unavailable"], "one still asks in vain"
    world.watch.answered("rent")
    assert world.said == ["ledger.unavailable", "ledger.back"]
    assert world.status == ["it does not answer", ""]


def test_who_asks_no_more_keeps_nobody_from_being_answered() -> None:
    world = World()
    world.watch.missed("rent", AWAY)
    world.watch.missed("work", AWAY)
    world.now += 61
    world.watch.answered("work")
    assert world.said == ["ledger.unavailable", "ledger.back"]


def test_a_ledger_that_comes_and_goes_does_not_fill_the_log() -> None:
    world = World()
    for _ in range(600):
        world.watch.missed("work", AWAY)
        world.now += 0.5
        world.watch.answered("work")
        world.now += 0.5
    assert len(world.said) < 20
    assert not world.watch.away
    world.now += 60
    world.watch.missed("work", AWAY)
    assert world.said[-1] == "ledger.unavailable", "it had been well for a while"


def test_answers_while_nothing_is_amiss_say_nothing() -> None:
    world = World()
    world.watch.answered("work")
    assert world.said == world.status == []
