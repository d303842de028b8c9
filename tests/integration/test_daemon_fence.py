"""A daemon that was away past its lease: another one took over, and its own late word counts no more."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from acklast.errors import Exit
from acklast.ledger.api import State
from harness import eventually
from harness.site import Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]


@one_receiver_else_soak
async def test_the_late_completion_of_a_stopped_daemon_is_refused(new_site: NewSite) -> None:
    # The broker takes a stopped client's deliveries back after two missed heartbeats.
    async with new_site(lease_s=2, heartbeat_s=2) as place:
        await place.publish(scripted("contested", {"do": "wait", "gate": "go"}, "done"))
        with place.daemon("one") as stopped, place.daemon("two") as heir:
            await heir.ready()
            await eventually(lambda: place.log.calls(), what="the first call")
            owner, other = stopped, heir
            if place.log.calls()[0].pid == heir.process.pid:
                owner, other = heir, stopped
            await other.ready()
            owner.signal(signal.SIGSTOP)
            await place.reaches("contested", State.DONE)
            owner.signal(signal.SIGCONT)
            place.open_gate("go")
            lost = await owner.says("job.settled", disposition="claim_lost", key="contested")
            job = await place.reaches("contested", State.DONE)
            assert await owner.drained() == Exit.OK
            assert await other.drained() == Exit.OK
        taken_over, late = place.log.effects("contested")
        assert (taken_over.pid, taken_over.ambiguous) == (other.process.pid, True)
        assert (late.pid, late.ambiguous) == (owner.process.pid, False)
        assert lost["fence"] < job.fence
        assert job.worker is not None
        assert f":{other.process.pid}" in job.worker
        assert [attempt.outcome for attempt in job.history] == ["crashed", "done"]
