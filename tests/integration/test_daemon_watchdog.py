"""A daemon tells its manager that it gets on, as long as it does."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from acklast.errors import Exit
from harness import eventually
from harness.manager import Manager
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

WITHIN_S = 0.6
"""Five beats a second."""


def beats(manager: Manager) -> int:
    return manager.heard().count("WATCHDOG=1")


async def more_beats(manager: Manager, count: int = 10, timeout_s: float = 30) -> None:
    wanted = beats(manager) + count
    await eventually(lambda: beats(manager) >= wanted, timeout_s, f"{count} more beats")


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_long_handler_a_quiet_lane_and_a_drain_are_no_reason_to_miss_a_beat(
    new_site: NewSite, tmp_path: Path
) -> None:
    with Manager(tmp_path) as manager:
        async with new_site(concurrency=1) as place:
            with place.daemon(env=manager.watching(WITHIN_S)) as daemon:
                await daemon.ready()
                await more_beats(manager)
                await place.publish(
                    scripted("long", {"do": "wait", "gate": "go"}), scripted("behind", "done")
                )
                await eventually(lambda: len(place.log.calls()) == 1)
                await more_beats(manager)
                daemon.signal(signal.SIGTERM)
                await eventually(lambda: "STOPPING=1" in manager.heard())
                await more_beats(manager)
                told = "draining: 1 running, 0 to give back or record, "
                await eventually(lambda: told in manager.statuses()[-1])
                place.open_gate("go")
                assert await daemon.ended() == Exit.OK
        assert not any("stuck" in status for status in manager.statuses())


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_loop_that_a_handler_blocks_misses_them_until_it_goes_on(
    new_site: NewSite, tmp_path: Path
) -> None:
    with Manager(tmp_path) as manager:
        async with new_site() as place:
            with place.daemon(env=manager.watching(WITHIN_S)) as daemon:
                await daemon.ready()
                await more_beats(manager)
                await place.publish(scripted("rude", {"do": "wreck", "what": "loop"}))
                await eventually(lambda: len(place.log.calls()) == 1)
                with pytest.raises(AssertionError, match="1 more beats"):
                    await more_beats(manager, 1, timeout_s=1.5)
                place.open_gate("go")
                await more_beats(manager)
                assert await daemon.drained() == Exit.OK


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
@pytest.mark.parametrize(
    "task",
    ["lease", *(pytest.param(name, marks=pytest.mark.soak) for name in ("steering", "overlong", "relay"))],
)
async def test_a_loop_that_turns_around_a_part_that_has_ended_feeds_nothing(
    new_site: NewSite, tmp_path: Path, task: str
) -> None:
    with Manager(tmp_path) as manager:
        async with new_site() as place:
            with place.daemon(env=manager.watching(WITHIN_S)) as daemon:
                await daemon.ready()
                await more_beats(manager)
                await place.publish(scripted("wrecker", {"do": "wreck", "what": task}))
                told = await daemon.says("daemon.stuck")
                assert told["why"].endswith("has ended")
                with pytest.raises(AssertionError, match="1 more beats"):
                    await more_beats(manager, 1, timeout_s=1)
                assert manager.statuses()[-1] == f"stuck: {told['why']}"
                daemon.process.kill()
