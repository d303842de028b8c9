"""A run is watched while a daemon works on it, until it is finished."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from acklast.cli.run_watch import exit_of, views
from acklast.errors import Exit
from acklast.ledger.api import State
from harness import Broker
from harness.site import RUN, Site, scripted, site

NewPlace: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]


@pytest.fixture
def new_place(broker: Broker, ledger_dsn: str, tmp_path: Path) -> NewPlace:
    """Makes the test's site. Once, on the usual receiver: a watch reads the ledger alone."""
    return partial(site, tmp_path, broker.url, ledger_dsn)


async def test_a_watch_follows_a_run_to_its_end(new_place: NewPlace) -> None:
    async with new_place() as place:
        held = scripted("b", {"do": "wait", "gate": "go"})
        jobs = [scripted("a", "done"), held, scripted("c", "permanent")]
        await place.promise(jobs)
        with place.daemon():
            await place.publish(*jobs)
            seen = []
            async for view in views(place.ledger, RUN, 60):
                seen.append(view)
                if view.counts.get(State.CLAIMED) and view.open == 1:
                    place.open_gate("go")
        assert len(seen) > 1
        assert seen[-1].counts == {State.DONE: 2, State.DEAD: 1}
        assert exit_of(seen[-1]) == Exit.INCOMPLETE
        assert await place.exit_of("runs", "watch", RUN) == Exit.INCOMPLETE


@pytest.mark.soak
async def test_a_watch_ends_with_a_cancel(new_place: NewPlace) -> None:
    async with new_place() as place:
        await place.promise([scripted("a", "done")])
        seen = views(place.ledger, RUN, 60)
        assert (await anext(seen)).open == 1
        await place.command("runs", "cancel", RUN)
        last = [view async for view in seen][-1]
        assert exit_of(last) == Exit.CANCELLED
