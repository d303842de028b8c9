"""The metrics of a real daemon: all that there are, and with the ledger's own figures."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import aio_pika
import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.about import RunAbout
from acklast.ledger.api import ManifestRow, State
from acklast.telemetry import catalogue as of
from acklast.telemetry.catalogue import OF_DAEMONS
from acklast.telemetry.metric import Origin
from harness import eventually
from harness.daemon import Daemon
from harness.scraping import OPENMETRICS, Scraped, scrape
from harness.scripted import LANE
from harness.site import NAMES, Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
HEALTH = """
[health]
listen = "unix:h.sock"
relay_listen = "unix:relay.sock"
"""
_EVERY_S = 0.2
ONCE = pytest.mark.parametrize("receiver", ["bulk"], indirect=True)


FORECASTS = {of.LANE_FORECAST, of.RUN_FORECAST}
"""There is none where there is nothing to reckon by: they have tests of their own."""
FLEET = [one for one in OF_DAEMONS if one.origin is Origin.FLEET and one not in FORECASTS]


def socket_of(place: Site, name: str = "h.sock") -> Path:
    return place.directory / "state" / name


async def becomes(place: Site, so: Callable[[Scraped], bool], what: str) -> Scraped:
    """Scrape until it is so, and not all the time: to write the text takes a busy machine a while."""
    last = float("-inf")

    async def looked() -> Scraped | None:
        nonlocal last
        if time.monotonic() - last < _EVERY_S:
            return None
        last = time.monotonic()
        found = await scrape(socket_of(place))
        return found if so(found) else None

    return await eventually(looked, 60, what)


async def of_all_kinds(place: Site) -> list[str]:
    """Have jobs done, retried, refused, dead, in conflict, too late, and come twice; all keys."""
    past = datetime.now(UTC) - timedelta(hours=1)
    jobs = [
        *(scripted(f"done-{number}", "done") for number in range(3)),
        scripted("retried", "transient", "done"),
        scripted("refused", {"do": "rate_limited", "retry_after": 0.1}, "done"),
        scripted("dead", "permanent"),
        scripted("late", "done", deadline=past),
        scripted("important", "done", priority=9),
    ]
    await place.promise(jobs)
    await place.publish(*jobs)
    for job in jobs:
        state = State.DEAD if job.key in {"dead", "late"} else State.DONE
        await place.reaches(job.key, state)
    await place.publish(jobs[0], scripted("done-1", "permanent"))
    async with place.connection.channel() as channel:
        exchange = await channel.get_exchange(NAMES.ingress, ensure=False)
        await exchange.publish(aio_pika.Message(b"{}", headers={"job-key": "k" * 300}), LANE)
    await place.quiet()
    return [job.key for job in jobs]


@ONCE
async def test_every_metric_is_there_and_tells_what_the_ledger_does(new_site: NewSite) -> None:
    async with new_site(more=HEALTH, quota="1000 per 1 s", lease_s=3) as place:
        deadline = datetime.now(UTC) + timedelta(hours=1)
        await place.ledger.manifest("later", [ManifestRow(LANE, "not-sent", bytes(32))], RunAbout(deadline))
        with place.daemon() as daemon:
            await daemon.ready()
            before = await scrape(socket_of(place))
            keys = await of_all_kinds(place)
            after = await becomes(
                place,
                lambda found: (
                    found.value(of.DUPLICATES) == 1
                    and found.value(of.BURIED) == 4
                    and found.value(of.LEASE_RENEWALS) > 0
                ),
                "all deliveries are counted",
            )
            views = [await place.job(key) for key in keys]
            opened = await scrape(socket_of(place), OPENMETRICS)
            fleet = await becomes(
                place, lambda found: all(map(found.has, FLEET)), "the fleet is looked at, with what it did"
            )
    counting = [one for one in OF_DAEMONS if one.origin is Origin.PROCESS]
    for told in (before, after, opened):
        assert [one.name for one in counting if not told.has(one)] == []
    assert fleet.value(of.JOBS, lane=LANE, state="queued") == 1
    assert 3500 < fleet.value(of.RUN_DEADLINE, run="later") <= 3600
    assert fleet.value(of.WORKERS, lane=LANE) == 1
    assert before.value(of.DELIVERIES) == before.value(of.JOBS_DONE) == 0

    done = [view for view in views if view.state is State.DONE]
    assert after.value(of.JOBS_DONE, lane=LANE) == len(done) == 6
    started = [view for view in views if view.key != "late"]
    assert after.value(of.ATTEMPTS, lane=LANE) == sum(view.attempts for view in started) == 8
    assert after.value(of.HANDLER_DURATION, lane=LANE) == 9
    assert after.value(of.RATE_LIMITED, lane=LANE, budget="api") == 1
    assert after.value(of.DUPLICATES, lane=LANE) == 1
    assert after.value(of.PUBLISHED_TOTAL, kind="retry") == 2
    for reason in ("refused", "deadline_exceeded", "key_conflict", "invalid_key"):
        assert after.value(of.BURIED, lane=LANE, reason=reason) == 1, reason
    assert after.value(of.BURIED) == 4
    assert after.value(of.OUTCOMES_TOTAL, outcome="transient", reason="not_now") == 1
    assert after.value(of.DELIVERIES, disposition="complete") == 6
    assert after.value(of.FLUSH_SIZE) == after.value(of.FLUSH_DURATION) > 0
    assert after.value(of.LEASE_RENEWALS, result="renewed") == after.value(of.LEASE_RENEWALS)
    assert after.value(of.LANE_STATE, state="open") == after.value(of.LANE_STATE) == 1
    assert after.value(of.BUDGET_CONFIGURED, budget="api") == 1000
    assert after.value(of.BROKER_CONNECTED, role="consumer") == after.value(of.LEDGER_REACHABLE) == 1
    assert 0 < after.value(of.LEASE_LEFT) <= 3
    assert after.value(of.IN_FLIGHT) == after.value(of.DRAINING) == after.value(of.LEASE_LOST) == 0


@ONCE
async def test_a_drain_can_be_followed_to_its_end(new_site: NewSite) -> None:
    async with new_site(more=HEALTH, drain_s=60) as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.publish(scripted("long", {"do": "wait", "gate": "go"}), scripted("short", "done"))
            await becomes(place, lambda found: found.value(of.IN_FLIGHT) == 1, "one is at work")
            daemon.process.send_signal(signal.SIGTERM)
            found = await becomes(place, lambda found: found.value(of.DRAINING) == 1, "it drains")
            assert found.value(of.DRAIN_RUNNING) == found.value(of.DRAIN_HELD) == 1
            assert 0 < found.value(of.DRAIN_LEFT) <= 60
            assert found.value(of.JOBS_DONE) == 1
            place.open_gate("go")
            assert await asyncio.to_thread(daemon.process.wait) == Exit.OK


@ONCE
async def test_what_operators_and_downstreams_hold_back_is_seen(new_site: NewSite) -> None:
    async with new_site(more=HEALTH, quota="100 per 1 s") as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.command("lanes", "pause", LANE, "--reason", "a test")
            await becomes(
                place,
                lambda found: (
                    found.value(of.LANE_STATE, state="paused") == 1
                    and found.value(of.LANE_PAUSED, lane=LANE) > 0
                ),
                "it is paused",
            )
            await place.command("lanes", "resume", LANE, "--reason", "a test")
            await place.publish(scripted("refused", {"do": "rate_limited", "retry_after": 20}))
            found = await becomes(
                place, lambda found: found.value(of.BUDGET_PAUSED, budget="api") > 0, "its budget is paused"
            )
            assert found.value(of.LANE_PAUSED, lane=LANE) == found.value(of.BUDGET_EFFECTIVE) == 0
            assert found.value(of.LANE_STATE, state="quiet") == 1


@ONCE
async def test_a_relay_tells_what_it_has_published(new_site: NewSite, ledger_dsn: str) -> None:
    async with new_site(more=HEALTH) as place:
        (place.directory / "state").mkdir()
        with Daemon(place.config, "one", env={}, command="relay") as relay:
            await relay.says("relay.ready")
            found = await scrape(socket_of(place, "relay.sock"))
            assert found.value(of.PUBLISHED_TOTAL, kind="relay") == 0
            assert found.value(of.BUILD_INFO) == 1
            assert "acklast_in_flight" not in found.families
            sql = await asyncpg.connect(ledger_dsn)
            await sql.execute(f"select acklast.enqueue('{LANE}', 'promised', '{{}}')")
            await sql.close()

            async def told() -> bool | None:
                now = await scrape(socket_of(place, "relay.sock"))
                return now.value(of.PUBLISHED_TOTAL, kind="relay") == 1 or None

            await eventually(told, 60, "it tells of one message")
