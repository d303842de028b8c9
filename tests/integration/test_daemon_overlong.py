"""Handlers that run for longer than the broker lets a delivery be held."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from harness.site import NAMES, Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]


@one_receiver_else_soak
async def test_a_carrier_takes_the_place_of_a_delivery_whose_handler_runs_on(new_site: NewSite) -> None:
    async with new_site(longest_unacked_s=1) as place:
        await place.publish(scripted("long", {"do": "wait", "gate": "go"}))
        with place.daemon() as daemon:
            handed = await daemon.says("delivery.handed_on", key="long")
            assert handed["held_s"] >= 1
            assert await place.ready() == {NAMES.wait("work", 30): 1}
            assert (await place.job("long")).state is State.CLAIMED
            place.open_gate("go")
            await daemon.says("job.settled", key="long", disposition="complete")
            assert await daemon.drained() == Exit.OK
            assert not daemon.said("lane.interrupted")
        assert len(place.log.effects("long")) == 1
        assert await place.ready() == {NAMES.wait("work", 30): 1}, "nothing was settled twice"


@one_receiver_else_soak
async def test_what_waits_for_a_permit_goes_back_in_time(new_site: NewSite) -> None:
    """It stands in a slot, where no recall reaches it, and its downstream has asked for a long pause."""
    async with new_site(longest_unacked_s=2, concurrency=1, quota="5 per 1 s", backoff_cap_s=600) as place:
        await place.publish(scripted("first", {"do": "rate_limited", "retry_after": 6}, "done"))
        with place.daemon() as daemon:
            await daemon.says("job.settled", key="first", disposition="retry")
            await place.publish(scripted("waits", "done"))
            await daemon.says("deliveries.given_back", count=1)
            await place.reaches("waits", State.DONE)
            await place.reaches("first", State.DONE)
            assert await daemon.drained() == Exit.OK
            assert not daemon.said("lane.interrupted")
        assert len(place.log.effects("waits")) == len(place.log.effects("first")) == 1
        assert await place.ready() == {}


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_drain_cuts_a_handler_whose_carrier_waits_already(new_site: NewSite) -> None:
    async with new_site(longest_unacked_s=1, drain_s=0.1) as place:
        await place.publish(scripted("long", {"do": "wait", "gate": "never"}, "done"))
        with place.daemon() as daemon:
            await daemon.says("delivery.handed_on", key="long")
            assert await daemon.drained() == Exit.CUT
        assert await place.ready() == {NAMES.wait("work", 30): 1}
        assert (await place.job("long")).state is State.QUEUED
