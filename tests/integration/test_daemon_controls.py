"""Operators pause and lower lanes while daemons run: at once, everywhere, and through every restart."""

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
from acklast_topology.names import Names
from dev.postgres import Cluster
from harness import Broker, eventually
from harness.scripted import LANE
from harness.site import Site, scripted, site

NewPlace: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
WHY = ("--reason", "provider incident", "--as", "duty")


@pytest.fixture
def new_place(broker: Broker, ledger_dsn: str, tmp_path: Path) -> NewPlace:
    """Makes the test's site. Once, on the usual receiver: a pause acts before anything is received."""
    return partial(site, tmp_path, broker.url, ledger_dsn)


async def is_unserved(place: Site) -> bool:
    """Whether nobody consumes the lane's queue."""
    async with place.connection.channel() as channel:
        queue = await channel.declare_queue(Names().work(LANE), passive=True)
    return not queue.declaration_result.consumer_count


async def standing(place: Site) -> dict[str, Any]:
    """The lane as ``acklast lanes`` shows it."""
    [lane] = (await place.command("lanes"))["lanes"]
    return dict(lane)


async def lane_is(place: Site, **wanted: Any) -> dict[str, Any]:
    """Wait until ``acklast lanes`` shows it like this."""

    async def there() -> dict[str, Any] | None:
        lane = await standing(place)
        return lane if wanted.items() <= lane.items() else None

    return await eventually(there, 30, f"the lane is {wanted}")


def starts(place: Site, since: float, until: float = float("inf")) -> int:
    """How many handlers were started in between, on this machine's monotonic clock."""
    return sum(since < call.at < until for call in place.log.calls())


def worst(place: Site, since: float, until: float) -> int:
    """The most starts in any second of this time."""
    times = sorted(call.at for call in place.log.calls() if since < call.at < until)
    return max((sum(at <= other < at + 1.0 for other in times) for at in times), default=0)


@pytest.mark.parametrize("more", [{}, {"fair_by": "run"}], ids=["plain", "fair"])
async def test_a_pause_lets_what_runs_end_and_starts_nothing_more(
    new_place: NewPlace, more: dict[str, Any]
) -> None:
    async with new_place(concurrency=5, **more) as place:
        held = [scripted(f"held-{number}", {"do": "wait", "gate": "go"}) for number in range(5)]
        rest = [scripted(f"k-{number:03}", "done") for number in range(195)]
        await place.promise([*held, *rest])
        await place.publish(*held, *rest)
        with place.daemon() as daemon:
            await eventually(lambda: len(place.log.calls()) == 5)
            done = await place.command("lanes", "pause", LANE, *WHY)
            assert (done["changed"], len(done["followed"]), done["waiting"]) == (True, 1, [])
            await daemon.says("lane.standing_by")
            lane = await lane_is(place, state="paused", in_flight=5, waiting=195, held=0)
            assert "paused by duty" in lane["why"]
            assert "provider incident; 5 that had started run on" in lane["why"]
            place.open_gate("go")
            await lane_is(place, in_flight=0)
            assert len(place.log.calls()) == 5, "a slot that came free was not used"
            assert (await place.run()).counts[State.DONE] == 5
            await place.command("lanes", "resume", LANE)
            await place.quiet()
            assert (await place.run()).counts == {State.DONE: 200}
            assert await daemon.drained() == Exit.OK
        assert len(place.log.calls()) == 200, "what was given back was not started twice"
        history = (await place.command("lanes", "history", LANE))["history"]
        assert [(one["action"], one["actor"], one["reason"]) for one in history] == [
            ("pause", "duty", "provider incident"),
            ("resume", history[1]["login"].partition("@")[0], ""),
        ]
        assert history[0]["after"] == history[1]["before"]


async def test_two_daemons_stop_at_once_and_go_on_together(new_place: NewPlace) -> None:
    async with new_place(quota="50 per 1 s") as place:
        jobs = [scripted(f"k-{number:03}", "done") for number in range(300)]
        await place.promise(jobs)
        with ExitStack() as running:
            daemons = [running.enter_context(place.daemon(name)) for name in ("one", "two")]
            for daemon in daemons:
                await daemon.ready()
            await place.publish(*jobs)
            await eventually(lambda: len({call.pid for call in place.log.calls()}) == 2)
            done = await place.command("lanes", "pause", "--budget", "api", *WHY)
            paused_at = time.monotonic()
            assert len(done["followed"]) == 2
            await eventually(partial(is_unserved, place))
            lane = await lane_is(place, state="paused", in_flight=0, held=0)
            assert lane["effective_per_s"] == 0
            assert "its budget api was paused by duty" in lane["why"]
            resumed_at = time.monotonic()
            assert starts(place, paused_at, resumed_at) == 0
            await place.command("lanes", "resume", "--budget", "api")
            await place.quiet()
            assert {call.pid for call in place.log.calls() if call.at > resumed_at} == {
                daemon.process.pid for daemon in daemons
            }
        assert (await place.run()).counts == {State.DONE: 300}


async def test_a_pause_holds_for_daemons_that_start_later_and_start_again(new_place: NewPlace) -> None:
    async with new_place() as place:
        done = await place.command("lanes", "pause", LANE, *WHY)
        assert (done["changed"], done["followed"]) == (True, [])
        await place.publish(scripted("waits", "done"))
        with place.daemon() as first:
            await first.says("lane.paused", lane=LANE, actor="duty")
            await first.ready()
            first.signal(signal.SIGKILL)
            await first.ended()
        with place.daemon() as second:
            await second.ready()
            assert second.said("lane.standing_by")
            assert not second.said("lane.consuming")
            assert place.log.calls() == []
            await place.command("lanes", "resume", LANE)
            await place.reaches("waits", State.DONE)
            assert await second.drained() == Exit.OK


async def test_a_pause_for_a_time_ends_by_itself_and_not_before(new_place: NewPlace) -> None:
    async with new_place() as place:
        with place.daemon() as daemon:
            await daemon.ready()
            asked_at = time.monotonic()
            await place.command("lanes", "pause", LANE, *WHY, "--for", "4s")
            await place.publish(scripted("waits", "done"))
            await place.reaches("waits", State.DONE)
            assert place.log.calls()[0].at >= asked_at + 4.0
            assert await daemon.drained() == Exit.OK
        assert (await standing(place))["paused"] is None


@pytest.mark.soak
async def test_a_lowered_rate_is_kept_by_all_and_given_back(new_place: NewPlace) -> None:
    async with new_place(quota="40 per 1 s") as place:
        await place.publish(*(scripted(f"k-{number:03}", "done") for number in range(1000)))
        with ExitStack() as running:
            daemons = [running.enter_context(place.daemon(name)) for name in ("one", "two")]
            await eventually(lambda: len(place.log.calls()) >= 40)
            done = await place.command("lanes", "set", LANE, "--rate", "10", *WHY)
            lowered_at = time.monotonic()
            assert (done["target"], done["name"], len(done["followed"])) == ("budget", "api", 2)
            before = len(place.log.calls())
            await eventually(lambda: len(place.log.calls()) >= before + 40)
            cleared_at = time.monotonic()
            assert worst(place, lowered_at + 0.5, cleared_at) <= 10
            lane = await standing(place)
            assert lane["quota_in_force"] == "10 per 1 s"
            assert lane["effective_per_s"] == pytest.approx(10, abs=1)
            await place.command("lanes", "set", "--clear", "--budget", "api")
            before = len(place.log.calls())
            await eventually(lambda: len(place.log.calls()) >= before + 60)
            assert worst(place, cleared_at, float("inf")) > 15
            assert not any(daemon.said("budget.disagrees") for daemon in daemons)
        assert worst(place, 0, float("inf")) <= 40


async def test_fewer_at_once_and_the_configured_many_again(new_place: NewPlace) -> None:
    async with new_place(concurrency=5) as place:
        await place.command("lanes", "set", LANE, "--concurrency", "2", *WHY)
        jobs = [scripted(f"k-{number}", {"do": "wait", "gate": "go"}) for number in range(8)]
        await place.promise(jobs)
        await place.publish(*jobs)
        with place.daemon() as daemon:
            await daemon.says("lane.concurrency", concurrency=2, configured=5)
            lane = await lane_is(place, in_flight=2)
            assert "lowered by duty to 2 at once" in lane["why"]
            assert len(place.log.calls()) == 2
            await place.command("lanes", "set", LANE, "--clear")
            await eventually(lambda: len(place.log.calls()) == 5)
            place.open_gate("go")
            await place.quiet()
            assert await daemon.drained() == Exit.OK


async def test_a_restart_of_the_ledger_forgets_no_pause(new_place: NewPlace, ledger_cluster: Cluster) -> None:
    async with new_place() as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.command("lanes", "pause", LANE, *WHY)
            await daemon.says("lane.standing_by")
            ledger_cluster.stop()
            try:
                await daemon.says("controls.unread")
            finally:
                ledger_cluster.start()
            await place.publish(scripted("waits", "done"))
            lane = await lane_is(place, state="paused", waiting=1)
            assert len(lane["daemons"]) == 1
            await eventually(partial(resumes, place))
            await place.reaches("waits", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert len(place.log.calls()) == 1


async def resumes(place: Site) -> bool:
    """Resume; whether the daemon has followed."""
    return bool((await place.command("lanes", "resume", LANE))["followed"])
