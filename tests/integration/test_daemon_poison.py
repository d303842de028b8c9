"""A job that ends the process which runs it: it stops at the cap, and nobody else is blamed for it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

OTHERS = ["left", "right"]
NEVER = {"do": "wait", "gate": "never"}
AMONG_OTHERS = {"do": "kill", "after": OTHERS}
ALONE = {"do": "kill", "after": []}


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)  # five lives: once is enough
async def test_a_job_that_kills_its_process_is_buried_and_its_neighbours_are_not(new_site: NewSite) -> None:
    async with new_site(max_attempts=4, concurrency=3) as place:
        jobs = [scripted("poison", AMONG_OTHERS, AMONG_OTHERS, ALONE)]
        jobs += [scripted(key, NEVER, NEVER, "done") for key in OTHERS]
        await place.promise(jobs)
        await place.publish(*jobs)
        for _ in range(4):
            with place.daemon() as daemon:
                assert await daemon.ended() == -signal.SIGKILL
        with place.daemon() as last:
            await last.ready()
            await place.quiet()
            assert await last.drained() == Exit.OK
        poison = await place.job("poison")
        assert (poison.state, poison.reason) == (State.DEAD, "crashed")
        assert [attempt.outcome for attempt in poison.history].count("crashed") == 4
        assert len(place.log.calls("poison")) == 4
        for key in OTHERS:
            job = await place.job(key)
            assert job.state is State.DONE
            assert len(place.log.effects(key)) == 1
            assert [attempt.outcome for attempt in job.history].count("crashed") == 2
