"""The daemon stops as it is told to: what runs ends or is cut, what has not started goes back."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast.pacing.prefetch import prefetch_for
from harness import eventually
from harness.daemon import Daemon
from harness.scripted import LANE
from harness.site import NAMES, Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

WORK = NAMES.work(LANE)
WAIT = {"do": "wait", "gate": "go"}
RUNNING = 30
HELD = prefetch_for(1000, RUNNING, 0.0, None)
BUFFERED = HELD - RUNNING
UNTAKEN = 20


async def calls_made(place: Site, count: int) -> None:
    await eventually(lambda: len(place.log.calls()) >= count, what=f"{count} calls")


async def untaken(place: Site, count: int) -> bool:
    return await place.ready() == {WORK: count}


def receipt(daemon: Daemon) -> dict[str, Any]:
    """The receipt, which must be the very last line."""
    last = daemon.log()[-1]
    assert last["event"] == "drain.receipt"
    return last


async def test_sigterm_lets_running_jobs_end_and_gives_buffered_ones_back(new_site: NewSite) -> None:
    total = HELD + UNTAKEN
    async with new_site(concurrency=RUNNING) as place:
        await place.publish(*(scripted(f"job-{number}", WAIT) for number in range(total)))
        with place.daemon(fresh=True) as daemon:
            await calls_made(place, RUNNING)
            await eventually(lambda: untaken(place, UNTAKEN), what="all that fit are delivered")
            daemon.signal(signal.SIGTERM)
            await daemon.says("drain.started")
            place.open_gate("go")
            assert await daemon.ended() == Exit.OK
        told = receipt(daemon)
        assert (told["completed"], told["given_back"]) == (RUNNING, BUFFERED)
        assert (told["unknown"], told["left"], told["cut"]) == (0, 0, False)
        assert told["seconds"] < told["deadline_s"]
        # The broker may forget the last acks with the connection: those deliveries find their verdicts.
        assert BUFFERED + UNTAKEN <= (await place.ready())[WORK] <= total
        assert len(place.log.effects()) == len(place.log.calls()) == RUNNING
        with place.daemon() as successor:
            await eventually(lambda: len(place.log.effects()) == total, what="the rest is done")
            await place.quiet()
            assert await successor.drained() == Exit.OK
        assert not any(call.ambiguous for call in place.log.calls())


@one_receiver_else_soak
async def test_what_a_handler_leaves_in_threads_for_ever_does_not_keep_the_process(new_site: NewSite) -> None:
    """All of the event loop's own threads, by ``asyncio.to_thread`` and its like."""
    async with new_site() as place:
        await place.publish(scripted("job", {"do": "wreck", "what": "threads"}))
        with place.daemon() as daemon:
            await place.reaches("job", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert not receipt(daemon)["cut"]


@one_receiver_else_soak
async def test_a_handler_that_outlasts_the_deadline_is_cut_and_its_job_comes_back(new_site: NewSite) -> None:
    async with new_site(drain_s=0.5) as place:
        await place.publish(scripted("slow", WAIT))
        with place.daemon() as daemon:
            await calls_made(place, 1)
            assert await daemon.drained() == Exit.CUT
        told = receipt(daemon)
        assert (told["completed"], told["given_back"], told["unknown"]) == (0, 0, 1)
        assert told["cut"] is True
        assert await place.ready() == {WORK: 1}
        place.open_gate("go")
        await _successor_completes(place, "slow")


async def _successor_completes(place: Site, key: str) -> None:
    """The next daemon does what was cut, knows that it may have happened, and counts no attempt for it."""
    with place.daemon() as successor:
        job = await place.reaches(key, State.DONE)
        assert await successor.drained() == Exit.OK
    assert job.attempts == 1
    assert [(call.attempt, call.ambiguous) for call in place.log.calls(key)] == [(1, False), (1, True)]
    assert len(place.log.effects(key)) == 1
    assert await place.ready() == {}


@one_receiver_else_soak
async def test_a_second_sigint_cuts_short(new_site: NewSite) -> None:
    async with new_site(drain_s=600) as place:
        await place.publish(scripted("slow", WAIT))
        with place.daemon(fresh=True) as daemon:
            await calls_made(place, 1)
            daemon.signal(signal.SIGINT)
            await daemon.says("drain.started")
            assert daemon.process.poll() is None
            daemon.signal(signal.SIGINT)
            assert await daemon.ended() == Exit.CUT
        told = receipt(daemon)
        assert (told["unknown"], told["cut"], told["deadline_s"]) == (1, True, 600)
        place.open_gate("go")
        await _successor_completes(place, "slow")


@one_receiver_else_soak
async def test_a_second_sigterm_changes_nothing(new_site: NewSite) -> None:
    async with new_site() as place:
        await place.publish(scripted("slow", WAIT))
        with place.daemon() as daemon:
            await calls_made(place, 1)
            daemon.signal(signal.SIGTERM)
            await daemon.says("drain.started")
            daemon.signal(signal.SIGTERM)
            await eventually(lambda: len(daemon.said("signal.received", signal="SIGTERM")) == 2)
            place.open_gate("go")
            assert await daemon.ended() == Exit.OK
        told = receipt(daemon)
        assert (told["completed"], told["unknown"], told["cut"]) == (1, 0, False)
        assert len(place.log.effects()) == 1


@one_receiver_else_soak
async def test_one_daemon_for_each_instance(new_site: NewSite) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            await daemon.ready()
            with place.daemon() as intruder:
                assert await intruder.ended() == Exit.CONFIG
                assert "another daemon runs as instance 'one'" in intruder.text()
                assert "--instance" in intruder.text()
            with place.daemon("two") as neighbour:
                await neighbour.ready()
                assert await neighbour.drained() == Exit.OK
            assert await daemon.drained() == Exit.OK
