"""SIGHUP: a running daemon follows its changed configuration, or keeps the old one and says why."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from harness import Broker, eventually
from harness.daemon import Daemon
from harness.manager import Manager
from harness.scripted import LANE
from harness.site import Site, scripted, site

NewPlace: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
HUP_AT_IMPORT = """
import os, signal
os.kill(os.getpid(), signal.SIGHUP)
from harness.scripted import app
"""


@pytest.fixture
def new_place(broker: Broker, ledger_dsn: str, tmp_path: Path) -> NewPlace:
    return partial(site, tmp_path, broker.url, ledger_dsn)


def edit(place: Site, old: str, new: str) -> None:
    text = place.config.read_text()
    assert old in text
    place.config.write_text(text.replace(old, new))


async def reloaded(daemon: Daemon, **fields: Any) -> dict[str, Any]:
    """SIGHUP, and wait for what it says of it."""
    before = len(daemon.said("config.reloaded"))
    daemon.signal(signal.SIGHUP)
    await eventually(lambda: len(daemon.said("config.reloaded")) > before)
    told = daemon.said("config.reloaded")[-1]
    assert fields.items() <= told.items(), told
    return told


async def calls(place: Site, count: int) -> None:
    await eventually(lambda: len(place.log.calls()) >= count, what=f"{count} calls")


async def test_more_and_fewer_at_once_and_operators_have_their_say(new_place: NewPlace) -> None:
    async with new_place(concurrency=2, prefetch=20) as place:
        first = [scripted(f"a-{number}", {"do": "wait", "gate": "one"}) for number in range(5)]
        second = [scripted(f"b-{number}", {"do": "wait", "gate": "two"}) for number in range(5)]
        await place.promise([*first, *second])
        await place.publish(*first)
        with place.daemon() as daemon:
            await calls(place, 2)
            edit(place, "concurrency = 2", "concurrency = 5")
            changed = {f"lanes.{LANE}.concurrency": {"old": 2, "new": 5}}
            await reloaded(daemon, changed=changed, restart=[], level="info")
            await calls(place, 5)
            await place.command(
                "lanes", "set", LANE, "--concurrency", "3", "--reason", "slow", "--as", "duty"
            )
            await daemon.says("lane.concurrency", concurrency=3, configured=5)
            edit(place, "concurrency = 5", "concurrency = 4")
            await reloaded(daemon)
            await place.publish(*second)
            place.open_gate("one")
            await calls(place, 8)
            edit(place, "concurrency = 4", "concurrency = 1")
            await reloaded(daemon)
            await daemon.says("lane.concurrency", concurrency=1, configured=1)
            assert len(place.log.calls()) == 8, "4 are configured, and an operator asks for 3"
            place.open_gate("two")
            await place.quiet()
            assert len(place.log.calls()) == 10, "what ran when fewer were let in was not cut"
            assert await daemon.drained() == Exit.OK


def worst(place: Site, since: float, until: float) -> int:
    """The most starts in any second of this time."""
    times = sorted(call.at for call in place.log.calls() if since < call.at < until)
    return max((sum(at <= other < at + 1.0 for other in times) for at in times), default=0)


async def test_a_quota_is_lowered_by_one_and_raised_by_all(new_place: NewPlace) -> None:
    async with new_place(quota="40 per 1 s") as place:
        await place.publish(*(scripted(f"k-{number:03}", "done") for number in range(400)))
        with ExitStack() as running:
            daemons = [running.enter_context(place.daemon(name)) for name in ("one", "two")]
            for daemon in daemons:
                await daemon.ready()
            await calls(place, 40)
            edit(place, "40 per 1 s", "10 per 1 s")
            await reloaded(
                daemons[0], changed={"budgets.api.quota": {"old": "40 per 1 s", "new": "10 per 1 s"}}
            )
            lowered_at, before = time.monotonic(), len(place.log.calls())
            await calls(place, before + 30)
            raised_at = time.monotonic()
            # One beat of the exchange, in which the other one hears of it.
            assert worst(place, lowered_at + 1.0, raised_at) <= 10
            edit(place, "10 per 1 s", "80 per 1 s")
            for daemon in daemons:
                await reloaded(daemon)
            await eventually(
                lambda: worst(place, raised_at, float("inf")) > 40, what="more than at the start"
            )


async def test_the_next_attempt_goes_by_the_new_policy_and_the_log_by_the_new_level(
    new_place: NewPlace,
) -> None:
    async with new_place(max_attempts=100) as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.publish(scripted("fails", "transient"))
            await calls(place, 2)
            assert (await place.job("fails")).state is not State.DEAD
            edit(place, "max_attempts = 100", 'max_attempts = 1\n[log]\nlevel = "warning"')
            await reloaded(daemon)
            job = await place.reaches("fails", State.DEAD)
            assert (job.reason, job.attempts < 100) == ("not_now", True), "of what it failed, and of no crash"
            await place.publish(scripted("quiet", "done"))
            await place.reaches("quiet", State.DONE)
            edit(place, 'level = "warning"', 'level = "debug"')
            await reloaded(daemon, changed={"log.level": {"old": "warning", "new": "debug"}})
            await place.publish(scripted("loud", "done"))
            await daemon.says("job.settled", key="loud")
            assert daemon.said("job.settled", key="fails", disposition="retry")
            assert not daemon.said("job.settled", key="quiet")


async def test_a_bad_file_changes_nothing_and_what_waits_is_named(
    new_place: NewPlace, tmp_path: Path
) -> None:
    async with new_place(concurrency=2) as place:
        with Manager(tmp_path) as manager, place.daemon(env=manager.env) as daemon:
            await daemon.ready()
            edit(place, "concurrency = 2", "concurrency = 0\nweight = 7")
            daemon.signal(signal.SIGHUP)
            told = await daemon.says("config.reload_failed")
            assert (
                f"acklast.toml: lanes.{LANE}.concurrency = 0: must be greater than or equal to 1"
                in told["error"]
            )
            assert told["remedy"]
            await eventually(lambda: manager.heard().count("READY=1") == 2)
            assert f"lanes.{LANE}.concurrency = 0" in manager.statuses()[-1]
            place.config.write_text(place.config.read_text() + "[lanes")
            daemon.signal(signal.SIGHUP)
            await eventually(lambda: len(daemon.said("config.reload_failed")) == 2)
            edit(place, "concurrency = 0\nweight = 7", 'concurrency = 3\non_unknown = "reconcile"')
            place.config.write_text(place.config.read_text().removesuffix("[lanes"))
            daemon.signal(signal.SIGHUP)
            await eventually(lambda: len(daemon.said("config.reload_failed")) == 3)
            assert "has no reconcile" in daemon.said("config.reload_failed")[-1]["error"]
            assert not daemon.said("lane.concurrency"), "not half of a file either"
            edit(place, 'on_unknown = "reconcile"', 'fair_by = "run"')
            restart = [f"lanes.{LANE}.fair_by"]
            told = await reloaded(daemon, restart=restart, level="warning")
            assert list(told["changed"]) == [f"lanes.{LANE}.concurrency"]
            await eventually(lambda: "a restart is needed" in manager.statuses()[-1])
            assert manager.heard().count("RELOADING=1") == manager.heard().count("READY=1") - 1 == 4
            edit(place, 'fair_by = "run"', "")
            await reloaded(daemon, restart=[])
            await eventually(lambda: manager.statuses()[-1] == "consuming 1 lanes")
            assert await daemon.drained() == Exit.OK


async def test_a_signal_during_the_start_is_heeded_after_it(new_place: NewPlace, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HUP_AT_IMPORT)
    async with new_place(app="hanging:app") as place:
        with place.daemon() as daemon:
            await daemon.says("config.reloaded", changed={}, restart=[])
            await daemon.ready()
            held = scripted("held", {"do": "wait", "gate": "go"})
            await place.publish(held)
            await calls(place, 1)
            daemon.signal(signal.SIGTERM)
            await daemon.says("signal.received", signal="SIGTERM")
            daemon.signal(signal.SIGHUP)
            await daemon.says("config.reload_ignored", why="it is ending")
            place.open_gate("go")
            assert await daemon.ended() == Exit.OK


async def test_a_relay_is_not_ended_by_it(new_place: NewPlace) -> None:
    async with new_place() as place:
        with Daemon(place.config, "one", env={}, command="relay") as relay:
            await relay.says("relay.ready")
            relay.signal(signal.SIGHUP)
            await relay.says("config.reload_ignored")
            assert await relay.drained() == Exit.OK
