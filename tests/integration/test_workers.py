"""Who runs what is told by the ledger, and a daemon can be asked from afar to drain."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import asyncpg
import pytest

from acklast import __version__
from acklast.errors import Exit
from acklast.ledger.api import State
from harness import eventually
from harness.scripted import LANE
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

ONCE = pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
WHY = ("--why", "new version", "--as", "duty")


async def workers(place: Site, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await place.command("workers", *options))["workers"]
    return found


async def becomes(place: Site, instance: str, **wanted: Any) -> dict[str, Any]:
    """Wait until a daemon is shown so."""

    async def so() -> Any:
        found = [one for one in await workers(place, "--all") if one["instance"] == instance]
        return found[-1] if found and wanted.items() <= found[-1].items() else None

    shown: dict[str, Any] = await eventually(so, 60, f"{instance} is {wanted}")
    return shown


@ONCE
async def test_a_daemon_is_asked_to_drain_and_the_other_goes_on(new_site: NewSite) -> None:
    async with new_site(drain_s=60, concurrency=1) as place:
        with place.daemon("one", env={"ACKLAST_VERSION": "2026.11"}) as one:
            await one.ready()
            await place.publish(scripted("long", {"do": "wait", "gate": "go"}))
            await eventually(lambda: len(place.log.calls()) == 1)
            with place.daemon("two") as two:
                await two.ready()
                shown = await becomes(place, "one", state="live", in_flight=1, lanes=[LANE])
                assert (shown["version"], shown["release"]) == ("2026.11", __version__)
                assert shown["lease_left_s"] > 0
                assert [view["instance"] for view in await workers(place)] == ["one", "two"]

                # A busy machine may take longer than the command waits: it is asked all the same.
                assert await place.exit_of("workers", "drain", "one", *WHY) in (Exit.OK, Exit.INCOMPLETE)
                asked = await becomes(place, "one", state="draining", in_flight=1)
                assert (asked["drain_by"], asked["drain_reason"]) == ("duty", "new version")
                assert one.said("drain.asked", actor="duty", reason="new version")
                again = await place.command("workers", "drain", shown["worker"], *WHY)
                assert again["drain_asked_at"] == asked["drain_asked_at"]
                place.open_gate("go")
                assert await one.ended() == Exit.OK
                await place.reaches("long", State.DONE)

                assert [view["instance"] for view in await workers(place)] == ["two"]
                ended = await becomes(place, "one", state="ended")
                assert (ended["lanes"], ended["in_flight"]) == ([], None)
                assert await place.exit_of("workers", "drain", "one", *WHY) == Exit.USAGE
                assert await place.exit_of("workers", "drain", "nobody", *WHY) == Exit.NOT_FOUND
                assert await place.exit_of("workers", "drain", "two", "--why", " ") == Exit.USAGE
                audit = (await place.command("audit", "--action", "workers.drain"))["entries"]
                assert [(entry["operator"], entry["effect"]["worker"]) for entry in audit] == [
                    ("duty", shown["worker"])
                ]
                await place.publish(scripted("next", "done"))
                await place.reaches("next", State.DONE)
                assert await two.drained() == Exit.OK
                assert not two.said("drain.asked")
        # Whoever starts it again starts another session, of which nothing is asked.
        with place.daemon("one") as restarted:
            await restarted.ready()
            await becomes(place, "one", state="live", drain_asked_at=None)


@ONCE
async def test_one_that_was_killed_is_silent_and_hears_nothing(new_site: NewSite, ledger_dsn: str) -> None:
    async with new_site() as place:
        with place.daemon("one") as daemon:
            await daemon.ready()
            daemon.process.kill()
            daemon.process.wait()
        connection = await asyncpg.connect(ledger_dsn)
        try:
            await connection.execute("update acklast.workers set lease_until = clock_timestamp()")
            [view] = await workers(place)
            assert (view["state"], view["lease_left_s"]) == ("silent", 0)
            assert await place.exit_of("workers", "drain", "one", *WHY) == Exit.USAGE
            assert await connection.fetchval("select drain_asked_at from acklast.workers") is None
            await connection.execute("update acklast.workers set lease_until = now() - interval '2 h'")
            assert await workers(place) == []
            assert [view["state"] for view in await workers(place, "--all")] == ["silent"]
        finally:
            await connection.close()
