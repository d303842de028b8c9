"""A reload is followed as a whole or not at all, whatever goes wrong."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acklast import App
from acklast.config import Config
from acklast.lane import Lane
from acklast.ledger.backlog import Backlog
from acklast.ledger.standing import Standing
from acklast.notify import Notify
from acklast.pacing.lanes import LanePacing
from acklast.pacing.slots import Slots
from acklast.pacing.turn import Turns
from acklast.pruner import Pruner
from acklast.readiness import Readiness
from acklast.reloading import Followers, Reloading, Source
from acklast.sampler import Sampler
from acklast.steering import Steering
from acklast.telemetry.events import Emitter, Event, Notice
from harness.configs import GOOD, changed, read
from harness.waiting import eventually


class Empty:
    """Readings of a ledger without a job."""

    async def read(self, _: object) -> tuple[Backlog, Standing]:
        now = datetime(2030, 1, 1, tzinfo=UTC)
        return Backlog(now), Standing(now, 0, {}, {}, ())

    async def tidy(self, _: object) -> None: ...


class Place:
    """A daemon that runs with the good configuration."""

    def __init__(self, tmp_path: Path) -> None:
        self.events, self.levels, self.followed = list[Event](), list[str](), list[Config]()
        self.path, self.text, self.asked, self.broken = tmp_path, GOOD, asyncio.Event(), False
        config = read(tmp_path)
        self.lanes = [
            cast("Lane", SimpleNamespace(name=name, policy=one.policy(), pacing=LanePacing(Slots(1))))
            for name, one in config.lanes.items()
        ]
        self.pruner = Pruner(cast("Any", None), {}, Emitter(), every_s=0, chance=lambda: 0.0)
        self.reckoned = list[Config]()
        self.sampler = Sampler(
            config, cast("Any", Empty()), None, Emitter(), chance=lambda: 0.0, reckon=self.reckon
        )
        steering = cast("Steering", SimpleNamespace(follow=self.follow))
        self.readiness = Readiness(list(config.lanes), lambda said: None)
        self.reloading = Reloading(
            config,
            Source(lambda: read(self.path, self.text), self.levels.append),
            self.asked,
            Followers(App(), self.lanes, [self.pruner, self.sampler], steering),
            self.readiness,
            Notify({}),
            Emitter(self.events.append),
        )

    def reckon(self, config: Config, *_: object) -> tuple[()]:
        self.reckoned.append(config)
        return ()

    def follow(self, config: Config) -> None:
        self.followed.append(config)
        if self.broken and len(self.followed) == 1:
            raise RuntimeError("a defect")

    def said(self, name: str) -> list[Any]:
        return [event for event in self.events if isinstance(event, Notice) and event.name == name]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_followed_reaches_everything(place: Place) -> None:
    lane = place.lanes[1]
    turns = lane.pacing.turns = Turns(lane.name, 1.0, cast("Any", None))
    place.text = changed("concurrency = 3", "timeout_s = 3\nweight = 2.5\nkeep_done_s = 9000000")
    place.reloading.once()
    assert lane.policy.timeout_s == 3.0
    assert turns.lane_weight == 2.5
    assert place.pruner.keeps[lane.name].done_s == 9_000_000
    assert place.followed == [place.reloading.config]


async def test_forecasts_in_metrics_go_by_what_is_followed_as_those_of_commands_do(place: Place) -> None:
    place.text = changed("concurrency = 3", "concurrency = 30")
    place.reloading.once()
    await place.sampler.once()
    assert [one.lanes["rent-reminders"].concurrency for one in place.reckoned] == [30]


def test_a_bad_file_reaches_nothing(place: Place) -> None:
    place.text = changed("concurrency = 3", "concurrency = 0\nweight = -1")
    before = place.reloading.config
    place.reloading.once()
    assert place.reloading.config is before
    assert place.followed == []
    [failed] = place.said("config.reload_failed")
    assert "weight = -1" in failed.fields["error"]
    assert place.readiness.text().endswith("must be greater than or equal to 1 (and 1 more)")
    place.text = GOOD
    place.reloading.once()
    assert place.readiness.text() == "consuming 2 lanes"


def test_a_defect_on_the_way_is_taken_back(place: Place) -> None:
    place.text, place.broken = changed("concurrency = 3", "timeout_s = 3"), True
    before = place.reloading.config
    place.reloading.once()
    assert place.reloading.config is before
    assert place.followed[-1] is before
    assert place.lanes[1].policy.timeout_s == before.lanes["rent-reminders"].timeout_s
    assert "a defect" in place.said("config.reload_failed")[0].fields["error"]


@pytest.mark.parametrize(("old", "new"), [("warning", "info"), ("info", "warning")])
def test_a_change_of_the_level_is_said_at_the_louder_one(place: Place, old: str, new: str) -> None:
    for level in (old, new):
        place.text = GOOD + f'[log]\nlevel = "{level}"\n'
        place.reloading.once()
    assert place.levels[-2:] == ["info", new]


async def test_signals_that_come_together_are_one_reload_and_one_after_it_is_another(place: Place) -> None:
    place.asked.set()
    place.asked.set()
    place.reloading.start()
    await eventually(lambda: len(place.followed) == 1)
    place.asked.set()
    await eventually(lambda: len(place.followed) == 2)
    assert not place.asked.is_set()
    await place.reloading.close()
